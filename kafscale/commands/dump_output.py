"""Where a dump's lines go: what was asked for to standard output, problems and progress to standard error."""

import io
from collections.abc import Callable
from typing import Final, TextIO

from kafscale.commands.dump_values import shown_name
from kafscale.masking import without_credentials

PROGRESS_SEC: Final = 5.0

_CHARACTERS_AT_ONCE: Final = 1 << 18
_LINES_AT_ONCE: Final = 1024


def escaping(stream: TextIO) -> TextIO:
    """The stream, made to escape what its encoding cannot say instead of failing."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")
    return stream


class Progress:
    """Says every few seconds how much was read."""

    def __init__(self, errors: TextIO, clock: Callable[[], float]) -> None:
        self._errors = errors
        self._clock = clock
        self._next = clock() + PROGRESS_SEC
        self._bytes = 0

    def read(self, count: int) -> None:
        """So many more bytes were read."""
        self._bytes += count
        if self._clock() >= self._next:
            self._next = self._clock() + PROGRESS_SEC
            print(f"kafscale: read {self._bytes / 1e9:.2f} GB", file=self._errors, flush=True)


class Lines:
    """Lines for standard output, written in large parts and always before a line for standard error."""

    def __init__(self, output: TextIO, errors: TextIO) -> None:
        self._output = output
        self._errors = errors
        self._waiting: list[str] = []
        self._characters = 0

    def write(self, line: str) -> None:
        """A line for standard output, some time before the next `flush` ends."""
        self._waiting.append(line)
        self._characters += len(line)
        if self._characters >= _CHARACTERS_AT_ONCE or len(self._waiting) >= _LINES_AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Have all lines written."""
        if self._waiting:
            self._waiting.append("")
            self._output.write("\n".join(self._waiting))
            self._waiting.clear()
            self._characters = 0
        self._output.flush()

    def report(self, line: str) -> None:
        """A line for standard error."""
        self.flush()
        print(f"kafscale: {without_credentials(shown_name(line))}", file=self._errors, flush=True)
