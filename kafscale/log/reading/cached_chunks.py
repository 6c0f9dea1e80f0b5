"""The chunks of large segments that are in memory, found by an offset in them."""

from bisect import bisect_right, insort

from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.stored_segment import SegmentKey


def _first_offset(chunk: CachedSegment) -> int:
    return chunk.first_offset


class CachedChunks:
    """The chunks by segment. Where an index was rebuilt they may overlap: any of them is right."""

    def __init__(self) -> None:
        self._chunks: dict[SegmentKey, list[CachedSegment]] = {}

    def add(self, key: SegmentKey, chunk: CachedSegment) -> None:
        """Add a chunk of the segment, which is in the cache now."""
        insort(self._chunks.setdefault(key, []), chunk, key=_first_offset)

    def remove(self, key: SegmentKey, chunk: CachedSegment) -> None:
        """Remove the chunk, if it is there."""
        chunks = self._chunks.get(key, [])
        if chunk in chunks:
            chunks.remove(chunk)
            if not chunks:
                del self._chunks[key]

    def of(self, key: SegmentKey) -> tuple[CachedSegment, ...]:
        """All cached chunks of a segment."""
        return tuple(self._chunks.get(key, ()))

    def find(self, key: SegmentKey, offset: int) -> CachedSegment | None:
        """The chunk with `offset`, or None."""
        chunks = self._chunks.get(key)
        if chunks is None:
            return None
        place = bisect_right(chunks, offset, key=_first_offset) - 1
        return chunks[place] if place >= 0 and chunks[place].covers(offset) else None
