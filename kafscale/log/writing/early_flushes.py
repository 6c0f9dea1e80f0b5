"""Decides which buffers are flushed before their interval ends, and how many. Pure.

A producer with few requests in flight sends nothing more until one of them is acknowledged. Where a flush costs
little, two syncs of a folder, it therefore begins at once while few are in progress, and what comes meanwhile
gathers. Two bounds keep that from costing more than it gives:

- *A stream gathers.* A partition whose buffer, or whose last segment, is large has producers that do not wait for
  single acknowledgements. It is flushed early only when nothing has come for `PAUSE_SEC`: larger segments cost less
  for each byte, now and when they are merged.
- *A trickle is limited.* Each early flush takes a token, of which there are `FLUSHES_PER_SEC`; every `FREE_BYTES`
  that it stores give one back. So there are not as many small files as there are small requests.
"""

from kafscale.log.partition import Partition
from kafscale.log.writing.segment_buffer import SegmentBuffer

STREAM_BYTES = 512 * 1024
PAUSE_SEC = 0.002
FLUSHES_PER_SEC = 100
BURST_FLUSHES = 50
FREE_BYTES = 16 * 1024


class EarlyFlushes:
    """The early flushes of one broker. One may begin while fewer than `most_in_progress` flushes are; never if 0."""

    __slots__ = ("_counted_at_sec", "_most_in_progress", "_tokens")

    def __init__(self, most_in_progress: int, now_sec: float) -> None:
        self._most_in_progress = most_in_progress
        self._tokens = float(BURST_FLUSHES)
        self._counted_at_sec = now_sec

    @property
    def are_allowed(self) -> bool:
        """True if early flushes are switched on."""
        return self._most_in_progress > 0

    def have_place(self, in_progress: int) -> bool:
        """True if one more may begin beside so many flushes of any kind."""
        return in_progress < self._most_in_progress

    def wait_sec(self, now_sec: float) -> float:
        """Seconds until there is a token, 0 if there is one. `now_sec`: by a clock that does not go back."""
        returned = (now_sec - self._counted_at_sec) * FLUSHES_PER_SEC
        self._counted_at_sec = now_sec
        self._tokens = min(self._tokens + returned, BURST_FLUSHES)
        return max(0.0, 1 - self._tokens) / FLUSHES_PER_SEC

    def take(self, size_bytes: int) -> None:
        """Take a token for the early flush of a buffer of this size."""
        self._tokens = min(self._tokens - 1 + size_bytes / FREE_BYTES, BURST_FLUSHES)


def is_stream(partition: Partition, buffer: SegmentBuffer) -> bool:
    """True if the partition's producers have much in flight."""
    if buffer.size_bytes >= STREAM_BYTES:
        return True
    segments = partition.record.segments
    return bool(segments) and segments[-1].size_bytes >= STREAM_BYTES
