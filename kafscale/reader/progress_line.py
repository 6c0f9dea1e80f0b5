"""A line on a terminal that says how far a read has come."""

import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

from kafscale.reader.topic_batches import ReadProgress

_INTERVAL_SEC: Final = 0.5


class ProgressLine:
    """Call it with each progress. Writes at most twice a second, over its last line on a terminal."""

    def __init__(self, output: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._output = sys.stderr if output is None else output
        self._clock = clock
        self._next = clock() + _INTERVAL_SEC
        self._checked_bytes = 0
        self._reading_since: float | None = None

    def checked(self, size_bytes: int) -> None:
        """Count an object that was checked before the read, as of a bucket without a metadata store."""
        self._checked_bytes += size_bytes
        now = self._clock()
        if now >= self._next:
            self._write(f"checked {self._checked_bytes / 1e6:,.0f} MB of the bucket", now)

    def __call__(self, progress: ReadProgress) -> None:
        """Show it, if it is time to or the read is done."""
        now = self._clock()
        if self._reading_since is None:
            self._reading_since = now
        is_done = progress.offsets_done >= progress.offsets_total
        if now < self._next and not is_done:
            return
        unit, name = (1e6, "MB") if progress.bytes_total >= 10e6 else (1e3, "kB")
        share = 100 * progress.offsets_done // max(progress.offsets_total, 1)
        line = (
            f"{progress.topic}: {share:3d} % of {progress.offsets_total:,} offsets, "
            f"{progress.bytes_done / unit:,.0f} of {progress.bytes_total / unit:,.0f} {name}, "
            f"{now - self._reading_since:.1f} s, partition {progress.partition}"
        )
        self._write(line, now, is_last=is_done)

    def _write(self, line: str, now: float, *, is_last: bool = False) -> None:
        self._next = now + _INTERVAL_SEC
        if self._output.isatty():
            end = "\n" if is_last else ""
            self._output.write(f"\r{line}\033[K{end}")
        else:
            self._output.write(f"{line}\n")
        self._output.flush()
