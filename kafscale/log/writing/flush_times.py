"""The times at which the flush of one buffer reached its steps."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class FlushTimes:
    """Times of `time.perf_counter`; 0.0 for a step that is not reached.

    `puts`: requests to the object store that the segment took. More than one: it was hedged or retried.
    """

    sealed_sec: float = 0.0
    uploaded_sec: float = 0.0
    published_sec: float = 0.0
    puts: int = 0
