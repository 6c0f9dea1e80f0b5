"""A segment's batches in memory, all or a chunk: the values of the L1 cache, where a fetch finds its ranges."""

from collections.abc import Iterator, Sequence
from struct import Struct

from kafscale.errors import CorruptDataError
from kafscale.formats.index import SparseIndex
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.reading.stored_segment import CacheKey, SegmentKey
from kafscale.memory.pieces import Pieces
from kafscale.memory.slab import Slab, SlabPool
from kafscale.protocol.record_batch import HEADER_SIZE, BatchHeader, read_header

_BATCH_PREFIX = Struct(">qi")
_BATCH_SPAN = Struct(">qi11xi")
_PREFIX_BYTES = 12

OVERHEAD_BYTES = 2048
"""The memory of a cached segment beside its bytes, roughly: it makes the size of a cache of small ones true."""


class CachedSegment:
    """The batches of one segment from `first_offset` to before `next_offset`, in pieces that may divide a batch.

    Positions count from the segment's first byte, its header included, as the index's do. A user of the views of
    `slices` holds the segment as long as it has them: its memory is reused after the last `release`. `is_ahead`: it
    was read ahead, and no reader has used it yet.
    """

    __slots__ = (
        "__weakref__",
        "_holders",
        "_index",
        "_pieces",
        "_pool",
        "_slabs",
        "_start",
        "end",
        "first_offset",
        "is_ahead",
        "is_from_store",
        "next_offset",
        "partition_number",
        "reference",
    )

    def __init__(
        self,
        reference: SegmentReference,
        pieces: Sequence[memoryview],
        start: int,
        index: SparseIndex | None,
        *,
        partition_number: int,
        first_offset: int | None = None,
        next_offset: int | None = None,
        slabs: Sequence[Slab] = (),
        pool: SlabPool | None = None,
        is_from_store: bool = False,
    ) -> None:
        """`start`: the position of the first batch. No offsets: the segment is here as a whole.

        `index`: None for a whole segment with too few records for one.
        """
        self.reference = reference
        self.partition_number = partition_number
        self.first_offset = reference.base_offset if first_offset is None else first_offset
        self.next_offset = reference.last_offset + 1 if next_offset is None else next_offset
        self._index = index
        self._pieces = Pieces(pieces, start)
        self._start = start
        self.end = self._pieces.end
        self._slabs = tuple(slabs)
        self._pool = pool
        self.is_from_store = is_from_store
        self.is_ahead = False
        self._holders = 1

    @property
    def segment_key(self) -> SegmentKey:
        """The key of the segment in the caches."""
        return self.partition_number, self.reference.base_offset, self.reference.object_key

    @property
    def key(self) -> CacheKey:
        """Its own key in the cache: the segment's key, and for a chunk where it starts."""
        return self.segment_key if self.is_whole else (*self.segment_key, self._start)

    @property
    def is_whole(self) -> bool:
        """True if all of the segment is here."""
        reference = self.reference
        return self.first_offset == reference.base_offset and self.next_offset > reference.last_offset

    def covers(self, offset: int) -> bool:
        """True if the record with `offset` is here, if there is one."""
        return self.first_offset <= offset < self.next_offset

    @property
    def size_bytes(self) -> int:
        """The memory that this segment keeps from other use."""
        used = OVERHEAD_BYTES + (0 if self._index is None else self._index.size_bytes)
        if self._slabs:
            return used + sum(slab.capacity_bytes for slab in self._slabs)
        return used + self.end - self._start

    @property
    def is_held(self) -> bool:
        """True while any user, the cache included, needs the memory."""
        return self._holders > 0

    def hold(self) -> "CachedSegment":
        """Keep the memory until a matching `release`."""
        self._holders += 1
        return self

    def release(self) -> None:
        """Release one `hold`: the caller has no views any more."""
        self._holders -= 1
        if self._holders == 0 and self._pool is not None:
            self._pieces.clear()
            for slab in self._slabs:
                self._pool.release(slab)
            self._slabs = ()

    def position_of(self, offset: int) -> int:
        """The start of the first batch whose last offset is not below `offset`; `end` if there is none.

        Raises `CorruptDataError`, as `limit` does, at an impossible batch, where the walk would not end.
        """
        if offset <= self.first_offset:
            return self._start
        position = self._start if self._index is None else self._index.position_for(offset)
        while position < self.end:
            base_offset, length, last_delta = self._pieces.unpack(_BATCH_SPAN, position)
            if base_offset + last_delta >= offset:
                return position
            position += self._whole(length, position)
        return self.end

    def limit(self, start: int, max_bytes: int, at_least_one: bool) -> int:
        """The end of the last whole batch after `start` that fits into `max_bytes`.

        The first batch counts as fitting when `at_least_one`, whatever its size.
        """
        if self.end - start <= max_bytes:
            return self.end
        position = start
        if self._index is not None:
            position = max(start, self._index.position_limit(start + max_bytes))
        while position < self.end:
            following = position + self._batch_bytes(position)
            if following - start > max_bytes and not (at_least_one and position == start):
                break
            position = following
        return position

    def offset_at(self, position: int) -> int:
        """The offset of the first record of the batch at `position`; at `end`, the one after the last record."""
        if position >= self.end:
            return self.next_offset
        return int(self._pieces.unpack(_BATCH_PREFIX, position)[0])

    def batches(self, start: int) -> Iterator[tuple[memoryview, BatchHeader]]:
        """The batches from `start` on, as views."""
        position = start
        while position < self.end:
            following = position + self._batch_bytes(position)
            batch = self._pieces.contiguous(position, following)
            yield batch, read_header(batch, 0)
            position = following

    def slices(self, start: int, end: int) -> list[memoryview]:
        """The bytes from `start` to `end`, without a copy."""
        return self._pieces.slices(start, end)

    def _batch_bytes(self, position: int) -> int:
        _, length = self._pieces.unpack(_BATCH_PREFIX, position)
        return self._whole(length, position)

    def _whole(self, batch_length: int, position: int) -> int:
        size_bytes = _PREFIX_BYTES + batch_length
        if not HEADER_SIZE <= size_bytes <= self.end - position:
            raise CorruptDataError(
                f"segment {self.reference.base_offset}",
                f"the batch at position {position} has length {batch_length}",
            )
        return size_bytes
