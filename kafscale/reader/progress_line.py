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
        self._started = clock()
        self._next = self._started + _INTERVAL_SEC

    def __call__(self, progress: ReadProgress) -> None:
        """Show it, if it is time to or the read is done."""
        now = self._clock()
        is_done = progress.offsets_done >= progress.offsets_total
        if now < self._next and not is_done:
            return
        self._next = now + _INTERVAL_SEC
        share = 100 * progress.offsets_done // max(progress.offsets_total, 1)
        rate = progress.offsets_done / max(now - self._started, 0.001)
        line = (
            f"{progress.topic}: {share:3d} % of {progress.offsets_total:,} offsets, {rate:,.0f} a second, "
            f"{progress.bytes_done / 1e6:,.0f} MB, partition {progress.partition}"
        )
        on_terminal = self._output.isatty()
        end = "\n" if is_done or not on_terminal else ""
        self._output.write(f"\r{line}\033[K{end}" if on_terminal else f"{line}\n")
        self._output.flush()
