"""The memory that a fetch's reply consists of, kept until the reply has left."""

from collections.abc import Iterator, Sequence

from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.read import Read


class ReplyReads:
    """The memory that a reply's buffers are views of."""

    __slots__ = ("_loaded", "_reads")

    def __init__(self, loaded: Sequence[CachedSegment]) -> None:
        self._loaded = loaded
        self._reads: list[Read] = []

    def add(self, read: Read) -> None:
        """Keep the memory of a read, too."""
        self._reads.append(read)

    def __iter__(self) -> Iterator[Read]:
        return iter(self._reads)

    @property
    def has_any(self) -> bool:
        """True if there is something to send."""
        return any(read.size_bytes for read in self._reads)

    def release(self) -> None:
        """The buffers have left."""
        for read in self._reads:
            read.release()
        for segment in self._loaded:
            segment.release()
