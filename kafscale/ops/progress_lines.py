"""Lines that say how far long work has come, seldom enough to be read."""

from collections.abc import Callable


class PacedLines:
    """Writes a line every `interval_sec` at most; nothing where the work is done before."""

    def __init__(self, write: Callable[[str], None], clock: Callable[[], float], interval_sec: float) -> None:
        self._write = write
        self._clock = clock
        self._interval_sec = interval_sec
        self._next = clock() + interval_sec

    def say(self, line: str) -> None:
        """Write the line, if it is time for one."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._interval_sec
            self._write(line)
