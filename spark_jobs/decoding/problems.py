"""Why a value does not decode: the field's path and the problem, as one line of text."""

from kafscale.errors import KafscaleError

_SHOWN_CHARACTERS = 60


class UndecodableError(KafscaleError):
    """A value does not decode. `path` leads from the value to the field: names and indexes."""

    def __init__(self, problem: str, *path: str | int) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str | int] = list(path)

    def within(self, step: str | int) -> "UndecodableError":
        """The same problem with `step` in front of its path."""
        self.path.insert(0, step)
        return self

    def reason(self) -> str:
        """One line: the path from `value` on, and the problem."""
        steps = "".join(f"[{step}]" if isinstance(step, int) else f".{_name(step)}" for step in self.path)
        return f"value{steps}: {self.problem}"


def shown(value: object) -> str:
    """`value` for a message: printable ASCII, no longer than a line."""
    text = ascii(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def _name(step: str) -> str:
    return step if step.isidentifier() and step.isascii() else shown(step)
