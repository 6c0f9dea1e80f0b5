"""The package's extras, as in `pip install 'kafscale[cluster]'`: the error where one is needed and not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from kafscale.errors import StartupError

_OWN_PACKAGES = ("kafscale", "pyspark_kafscale", "spark_jobs")


class MissingExtraError(StartupError):
    """A setting, a command or a function needs an extra that is not installed; the message says how to get it."""

    def __init__(self, needed_by: str, extra: str, module: str) -> None:
        super().__init__(
            f"{needed_by} needs the Python module {module}, which is not installed: "
            f"pip install 'kafscale[{extra}]'"
        )


@contextmanager
def extra_needed(extra: str, needed_by: str) -> Iterator[None]:
    """For the imports of what needs an extra. Raises `MissingExtraError` if a module of another package is missing.

    `needed_by` names what the user chose: a setting with its value, a command, a function.
    """
    try:
        yield
    except ModuleNotFoundError as problem:
        module = problem.name or str(problem)
        if module.partition(".")[0] in _OWN_PACKAGES:
            raise
        raise MissingExtraError(needed_by, extra, module) from problem
