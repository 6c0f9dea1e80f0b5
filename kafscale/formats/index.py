"""The sparse index `.index`: where in a segment the batch with an offset is found.

Stored format: docs/format/index.md. All integers are big-endian.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import lt
from struct import Struct
from typing import NamedTuple

from kafscale.errors import CorruptDataError, KafscaleError, UnknownFormatVersionError
from kafscale.formats.features import FINALIZE_COMMAND, LARGE_SEGMENTS_LEVEL, SEGMENT_FORMAT
from kafscale.formats.segment import HEADER_SIZE as SEGMENT_HEADER_SIZE
from kafscale.protocol.types import Buffer

MAGIC = b"IDX\0"
LEGACY_VERSION = 1
LARGE_VERSION = 2
HEADER_SIZE = 16
ENTRY_SIZE = 12
DEFAULT_INTERVAL = 100
# Between two entries there should be no more than a reader wants to read at once.
_INDEXED_BYTES = 4 * 1024 * 1024
MAX_LEGACY_POSITION = 2**31 - 1
MAX_RELATIVE_OFFSET = 2**31 - 1
"""The farthest that a batch of a version 2 index may lie from its segment's first offset: Kafka's signed int32."""

MAX_OFFSET = 2**63 - 1

_HEADER = Struct(">4sHIIH")


class IndexPositionError(KafscaleError):
    """A batch lies too far into its segment for the index version that is being written."""

    def __init__(self, position: int) -> None:
        super().__init__(
            f"position {position} does not fit a version {LEGACY_VERSION} index, whose last is "
            f"{MAX_LEGACY_POSITION}: larger segments need the feature level {SEGMENT_FORMAT} to be "
            f"finalized at {LARGE_SEGMENTS_LEVEL}: `{FINALIZE_COMMAND}`"
        )
        self.position = position


class IndexOffsetError(KafscaleError):
    """A batch lies too many offsets after the segment's first for the index version that is being written."""

    def __init__(self, base_offset: int, offset: int) -> None:
        super().__init__(
            f"offset {offset} does not fit a version {LARGE_VERSION} index of a segment that starts with offset "
            f"{base_offset}: its entries hold at most {MAX_RELATIVE_OFFSET} offsets after the first"
        )
        self.offset = offset


def index_version_at(segment_format: int) -> int:
    """The version to write at the finalized level of the feature `SEGMENT_FORMAT`. Both stay readable."""
    return LARGE_VERSION if segment_format >= LARGE_SEGMENTS_LEVEL else LEGACY_VERSION


def interval_for(size_bytes: int, record_count: int) -> int:
    """The interval for a segment of that size: `DEFAULT_INTERVAL`, less where its records are large."""
    return max(1, min(DEFAULT_INTERVAL, _INDEXED_BYTES * record_count // size_bytes))


class IndexHeader(NamedTuple):
    """The first 16 bytes. `interval`: messages between entries."""

    version: int
    entry_count: int
    interval: int


class SparseIndex:
    """An index in memory: offsets and positions, both strictly increasing. Never empty.

    The first entry is the segment's first batch. `version` and `interval` (messages between entries) are
    what the header said.
    """

    __slots__ = ("interval", "name", "offsets", "positions", "version")

    def __init__(
        self, *, name: str, version: int, interval: int, offsets: "array[int]", positions: "array[int]"
    ) -> None:
        self.name = name
        self.version = version
        self.interval = interval
        self.offsets = offsets
        self.positions = positions

    @property
    def size_bytes(self) -> int:
        """The memory that the entries take, for a cache's bookkeeping."""
        return len(self.offsets) * (self.offsets.itemsize + self.positions.itemsize)

    def position_for(self, offset: int) -> int:
        """The position from which to look for `offset`: the batch of the last entry at or before it.

        For an offset before the segment that is the first batch.
        """
        return self.positions[max(bisect_right(self.offsets, offset) - 1, 0)]

    def position_limit(self, max_position: int) -> int:
        """The last indexed batch start at or before `max_position`; the first batch when none is."""
        return self.positions[max(bisect_right(self.positions, max_position) - 1, 0)]

    def check(self, *, last_offset: int, body_end: int) -> None:
        """Raise `CorruptDataError` when an entry is not inside the segment that ends there."""
        if self.offsets[-1] > last_offset or self.positions[-1] >= body_end:
            raise CorruptDataError(
                self.name,
                f"the last entry, offset {self.offsets[-1]} at position {self.positions[-1]}, is outside its "
                f"segment, which ends with offset {last_offset} before position {body_end}",
            )


def build_index(
    batches: Iterable[tuple[int, int, int]],
    interval: int = DEFAULT_INTERVAL,
    *,
    version: int = LEGACY_VERSION,
) -> bytes:
    """The stored index of a segment, from its batches' (base offset, position in the file, record count).

    The batches are in the file's order; there is at least one. The first one gets an entry, and each one
    before which `interval` records have passed since the last entry. `version`: see `index_version_at`.
    Raises `IndexPositionError` (version 1), `IndexOffsetError` (version 2).
    """
    entries = _indexed(batches, interval)
    layout = _legacy_entries(entries) if version == LEGACY_VERSION else _large_entries(entries)
    header = _HEADER.pack(MAGIC, version, len(entries) // 2, interval, 0)
    return header + layout.pack(*entries)


def sparse_index(name: str, batches: Iterable[tuple[int, int, int]], interval: int) -> SparseIndex:
    """The index in memory of a segment that is not stored with one; arguments as for `build_index`."""
    entries = _indexed(batches, interval)
    return SparseIndex(
        name=name,
        version=LARGE_VERSION,
        interval=interval,
        offsets=array("q", entries[0::2]),
        positions=array("q", entries[1::2]),
    )


def _indexed(batches: Iterable[tuple[int, int, int]], interval: int) -> list[int]:
    """Offset and position, in turns, of the batches that get an entry."""
    entries: list[int] = []
    passed = interval
    for offset, position, count in batches:
        if passed >= interval:
            entries += (offset, position)
            passed = 0
        passed += count
    if not entries:
        raise ValueError("an index needs a batch")
    return entries


def _legacy_entries(entries: list[int]) -> Struct:
    """Check that the entries, offsets and positions in turns, fit version 1."""
    if entries[-1] > MAX_LEGACY_POSITION:
        raise IndexPositionError(next(entry for entry in entries[1::2] if entry > MAX_LEGACY_POSITION))
    return _entries_struct("qi", len(entries) // 2)


def _large_entries(entries: list[int]) -> Struct:
    """Make the offsets relative, as version 2 has them."""
    base_offset, limit = entries[0], entries[0] + MAX_RELATIVE_OFFSET
    if entries[-2] > limit:
        raise IndexOffsetError(base_offset, next(entry for entry in entries[0::2] if entry > limit))
    entries[0::2] = [offset - base_offset for offset in entries[0::2]]
    return _entries_struct("iq", len(entries) // 2)


def parse_index_header(name: str, data: Buffer) -> IndexHeader:
    """The header of either version, the count not compared with the file's length.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    if len(data) < HEADER_SIZE:
        raise CorruptDataError(name, f"{len(data)} bytes are shorter than an index header's {HEADER_SIZE}")
    magic, version, count, interval, _ = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise CorruptDataError(name, f"an index starts with {MAGIC!r}, this with {magic!r}")
    if version not in (LEGACY_VERSION, LARGE_VERSION):
        raise UnknownFormatVersionError(name, version, f"{LEGACY_VERSION}, {LARGE_VERSION}")
    return IndexHeader(version, count, interval)


def read_entries(data: Buffer, version: int, base_offset: int) -> list[tuple[int, int]]:
    """The entries in `data`, a part of an index of that version, as (offset, position), unchecked.

    `base_offset`: of the segment; with 0 the offsets of version 2 are relative.
    """
    count = len(data) // ENTRY_SIZE
    offsets, positions = _entries(data, version, count, base_offset, 0)
    return list(zip(offsets, positions, strict=True))


def parse_index(name: str, data: Buffer, base_offset: int) -> SparseIndex:
    """The index of either version of a segment that starts with `base_offset`.

    Checks all that can be checked without the segment; `SparseIndex.check` checks the rest. Raises
    `CorruptDataError`, `UnknownFormatVersionError`; `name` says in them which object this is.
    """
    version, count, interval = parse_index_header(name, data)
    if count * ENTRY_SIZE != len(data) - HEADER_SIZE:
        raise CorruptDataError(
            name, f"{count} entries do not fill the {len(data) - HEADER_SIZE} bytes after the header"
        )
    if not count:
        raise CorruptDataError(name, "an index without an entry")
    offsets, positions = _entries(data, version, count, base_offset)
    if offsets[0] != base_offset or positions[0] != SEGMENT_HEADER_SIZE:
        raise CorruptDataError(
            name,
            f"the first entry is offset {offsets[0]} at position {positions[0]}, not the first batch: "
            f"{base_offset} at {SEGMENT_HEADER_SIZE}",
        )
    if not _is_increasing(offsets) or not _is_increasing(positions):
        raise CorruptDataError(name, "its entries are not strictly increasing")
    if offsets[-1] > MAX_OFFSET:
        raise CorruptDataError(name, f"its last offset {offsets[-1]} is beyond Kafka's largest, {MAX_OFFSET}")
    return SparseIndex(
        name=name,
        version=version,
        interval=interval,
        offsets=array("q", offsets),
        positions=array("q", positions),
    )


def _entries(
    data: Buffer, version: int, count: int, base_offset: int, start: int = HEADER_SIZE
) -> tuple[Sequence[int], Sequence[int]]:
    """Absolute offsets and positions of the entries that begin at byte `start`."""
    if version == LEGACY_VERSION:
        fields = _entries_struct("qi", count).unpack_from(data, start)
        return fields[0::2], fields[1::2]
    fields = _entries_struct("iq", count).unpack_from(data, start)
    return [base_offset + relative_offset for relative_offset in fields[0::2]], fields[1::2]


def _entries_struct(entry: str, count: int) -> Struct:
    # Not the functions of `struct`: they keep what they were called with, which is large for a large index.
    return Struct(">" + entry * count)


def _is_increasing(numbers: Sequence[int]) -> bool:
    return all(map(lt, numbers, islice(numbers, 1, None)))
