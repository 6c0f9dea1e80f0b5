"""The end of a stream's next micro-batch: no more than a limit, not before enough waits, not beyond an end."""

import time
from collections.abc import Callable

from kafscale.reader.topic_state import Positions
from spark_jobs.source.offset_ranges import Bounds, limit_positions, waiting_offsets
from spark_jobs.source.trigger_options import TriggerOptions


class TriggerLimits:
    """Remembers when the last micro-batch was, and where the stream ends. `clock`: monotonic seconds."""

    def __init__(self, options: TriggerOptions, clock: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._clock = clock
        self._last_at: float | None = None
        self._available: Positions | None = None

    def end_of(self, starts: Positions, latest: Positions, logs: Bounds) -> Positions | None:
        """The end of the micro-batch that begins at `starts`; None if it has to wait.

        As in Spark's Kafka source, the first one of a process never waits.
        """
        options = self._options
        if options.ends_at_latest:
            latest = self._within_end(latest)
        if options.min_offsets is not None and self._has_to_wait(
            sum(waiting_offsets(starts, latest, logs).values()), options.min_offsets
        ):
            return None
        if options.max_offsets is None:
            return latest
        return limit_positions(starts, latest, logs, options.max_offsets)

    def _within_end(self, latest: Positions) -> Positions:
        if self._available is None:
            self._available = latest
        return {key: min(end, self._available[key]) for key, end in latest.items() if key in self._available}

    def _has_to_wait(self, waiting: int, least: int) -> bool:
        now = self._clock()
        is_due = self._last_at is None or now - self._last_at >= self._options.max_delay_sec
        if waiting < least and not is_due:
            return True
        self._last_at = now
        return False
