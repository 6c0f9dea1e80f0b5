"""Which buffers are flushed before their time, and how many: pure, apart from the time that it is given.

A producer with few requests in flight sends nothing more until one of them is acknowledged. Where a flush costs
little, two syncs of a folder, it therefore begins at once while few are under way, and what comes meanwhile
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
    """The early flushes of one broker. `most_under_way`: one may begin while fewer flushes are; 0: none may."""

    __slots__ = ("_counted_at_sec", "_most_under_way", "_tokens")

    def __init__(self, most_under_way: int, now_sec: float) -> None:
        self._most_under_way = most_under_way
        self._tokens = float(BURST_FLUSHES)
        self._counted_at_sec = now_sec

    @property
    def are_allowed(self) -> bool:
        """Whether there are any at all."""
        return self._most_under_way > 0

    def have_place(self, under_way: int) -> bool:
        """Whether one more may begin beside so many flushes, of whatever kind."""
        return under_way < self._most_under_way

    def wait_sec(self, now_sec: float) -> float:
        """How long until there is a token, 0 when there is one. `now_sec`: by a clock that does not go back."""
        gained = (now_sec - self._counted_at_sec) * FLUSHES_PER_SEC
        self._counted_at_sec = now_sec
        self._tokens = min(self._tokens + gained, BURST_FLUSHES)
        return max(0.0, 1 - self._tokens) / FLUSHES_PER_SEC

    def take(self, size_bytes: int) -> None:
        """A buffer of this size is flushed early."""
        self._tokens = min(self._tokens - 1 + size_bytes / FREE_BYTES, BURST_FLUSHES)


def is_stream(partition: Partition, buffer: SegmentBuffer) -> bool:
    """Whether the partition's producers have much under way."""
    if buffer.size_bytes >= STREAM_BYTES:
        return True
    segments = partition.record.segments
    return bool(segments) and segments[-1].size_bytes >= STREAM_BYTES
