"""The division of a large segment into chunks, each read with one request.

Pure. Every chunk starts and ends at the start of a batch, and which chunk an offset lies in follows from the
segment's index alone, so that all who read the segment want the same chunks.
"""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.formats.index import SparseIndex

# A chunk may be this many times as large as wanted where index entries are far apart.
_TOLERANCE = 4
_UNKNOWN = -2
"""In place of a chunk's largest timestamp: -1 is that of batches without any."""

# What a layout costs in memory beside its arrays, about.
_OVERHEAD_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRange:
    """One chunk: the bytes from `start` to `end` of the file, the offsets from `first_offset` to `next_offset`.

    `end` is where the next chunk starts, or the body ends. `crc`: the CRC-32C of its bytes, where the whole body
    was held against its own; else None. Without it the first batch must start with `first_offset`, and that of the
    next chunk with `next_offset`; with it offsets are divided so that a gap between batches lies before a chunk's
    first batch, never behind its last one.
    """

    number: int
    start: int
    end: int
    first_offset: int
    next_offset: int
    is_last: bool
    crc: int | None

    @property
    def size_bytes(self) -> int:
        return self.end - self.start


class SegmentLayout:
    """The chunks of one segment; the values of the L2 cache.

    `crcs` are those of the chunks, of a segment whose body was verified. `is_coarse`: whether chunks are much
    larger than wanted, because the index that the layout was made from has few entries.
    """

    __slots__ = ("_crcs", "_max_timestamps", "_offsets", "_positions", "is_coarse")

    def __init__(
        self,
        offsets: Sequence[int],
        positions: Sequence[int],
        *,
        last_offset: int,
        body_end: int,
        crcs: Sequence[int] | None = None,
        is_coarse: bool = False,
    ) -> None:
        """`offsets` and `positions` are where the chunks start, as `ChunkRange` has it."""
        self._offsets = array("q", (*offsets, last_offset + 1))
        self._positions = array("q", (*positions, body_end))
        self._crcs = None if crcs is None else array("Q", crcs)
        self._max_timestamps = array("q", [_UNKNOWN]) * len(offsets)
        self.is_coarse = is_coarse

    def __len__(self) -> int:
        return len(self._max_timestamps)

    @property
    def is_verified(self) -> bool:
        """True if the body's CRC vouches for every chunk's."""
        return self._crcs is not None

    @property
    def size_bytes(self) -> int:
        """The memory that the layout takes, for a cache's bookkeeping."""
        return _OVERHEAD_BYTES + 32 * len(self)

    def at_offset(self, offset: int) -> ChunkRange:
        """The chunk that holds `offset`; the first or the last one for an offset outside the segment."""
        return self._range(bisect_right(self._offsets, offset, 1, len(self)) - 1)

    def _range(self, number: int) -> ChunkRange:
        return ChunkRange(
            number=number,
            start=self._positions[number],
            end=self._positions[number + 1],
            first_offset=self._offsets[number],
            next_offset=self._offsets[number + 1],
            is_last=number == len(self) - 1,
            crc=None if self._crcs is None else self._crcs[number],
        )

    def note_max_timestamp(self, first_offset: int, timestamp_ms: int) -> None:
        """Remember the largest timestamp of the chunk that was read and starts with `first_offset`."""
        number = bisect_right(self._offsets, first_offset, 1, len(self)) - 1
        if self._offsets[number] == first_offset:
            self._max_timestamps[number] = timestamp_ms

    def is_before(self, offset: int, timestamp_ms: int) -> bool:
        """True if the chunk with `offset` is known to hold nothing as late as `timestamp_ms`."""
        known = self._max_timestamps[self.at_offset(offset).number]
        return _UNKNOWN < known < timestamp_ms


def layout_of(index: SparseIndex, *, last_offset: int, body_end: int, chunk_bytes: int) -> SegmentLayout:
    """Chunks of up to `chunk_bytes`, as far as the index's entries allow.

    `index` has been checked to lie inside the segment (`SparseIndex.check`).
    """
    positions = index.positions
    chosen = [0]
    largest = 0
    while True:
        start = positions[chosen[-1]]
        entry = bisect_right(positions, start + chunk_bytes) - 1
        if entry == chosen[-1]:
            entry += 1
        at_end = entry >= len(positions) or body_end - start <= chunk_bytes
        largest = max(largest, (body_end if at_end else positions[entry]) - start)
        if at_end:
            break
        chosen.append(entry)
    return SegmentLayout(
        [index.offsets[entry] for entry in chosen],
        [positions[entry] for entry in chosen],
        last_offset=last_offset,
        body_end=body_end,
        is_coarse=largest > _TOLERANCE * chunk_bytes,
    )
