"""The result of one read of a partition: views of batches in memory, and the segments that they keep there."""

from dataclasses import dataclass, field

from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.reply_memory import ReplyMemory


@dataclass(slots=True)
class Read:
    """Whole batches of one partition, as views. `segments` are held: release them when the views are gone.

    `is_missing`: it is empty because the segment with the offset is not in memory. `next_offset`: the one after the
    last batch.
    """

    views: list[memoryview] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0
    next_offset: int = 0
    segments: list[CachedSegment] = field(default_factory=list)
    is_missing: bool = False
    reply_memory: ReplyMemory | None = None

    def detach(self) -> None:
        """Copy the views, so that no segment is held for them."""
        self.views = [memoryview(b"".join(self.views))]
        self.release()

    def join(self, reply_memory: ReplyMemory) -> None:
        """Copy the views, which are many and small, and count the copy."""
        self.detach()
        self.reply_memory = reply_memory
        reply_memory.copied(self.size_bytes)

    def replace(
        self, reply_memory: ReplyMemory, views: list[memoryview], size_bytes: int, record_count: int
    ) -> None:
        """Replace the read by these bytes, most of which are in memory of their own."""
        reply_memory.copied(size_bytes if self.reply_memory is None else size_bytes - self.size_bytes)
        self.views, self.size_bytes, self.record_count, self.reply_memory = (
            views,
            size_bytes,
            record_count,
            reply_memory,
        )

    def release(self) -> None:
        """Release the segments and the counted copy: the views are not used any more."""
        for segment in self.segments:
            segment.release()
        self.segments.clear()
        if self.reply_memory is not None:
            self.reply_memory.copied(-self.size_bytes)
            self.reply_memory = None
