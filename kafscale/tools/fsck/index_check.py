"""The check of an index against its segment's batches, and the index as it should be. Pure."""

from array import array
from bisect import bisect_left

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.index import build_index, interval_for, parse_index
from kafscale.formats.segment import HEADER_SIZE
from kafscale.protocol.record_batch import BatchHeader
from kafscale.tools.fsck.findings import FindingKind


class BatchTable:
    """The positions of a segment's batches: fed with them in order, while the segment is read."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._positions = array("q")
        self._counts = array("i")
        self._next_position = HEADER_SIZE
        self._last_offset = -1

    def add(self, position: int, header: BatchHeader) -> None:
        """The next batch."""
        self._offsets.append(header.base_offset)
        self._positions.append(position)
        self._counts.append(header.record_count)
        self._next_position = position + header.size_bytes
        self._last_offset = header.last_offset

    def build(self, version: int) -> bytes:
        """The index that the segment should have. Raises `IndexPositionError`, `IndexOffsetError`."""
        entries = zip(self._offsets, self._positions, self._counts, strict=True)
        return build_index(entries, interval_for(self._next_position, sum(self._counts)), version=version)

    def problem_of(self, key: str, data: bytes) -> tuple[FindingKind, str] | None:
        """The fault of the stored index; None when it may be used."""
        try:
            index = parse_index(key, data, self._offsets[0])
        except UnknownFormatVersionError as problem:
            return FindingKind.INDEX_VERSION, problem.problem
        except CorruptDataError as problem:
            return FindingKind.INDEX_DAMAGED, problem.problem
        try:
            index.check(last_offset=self._last_offset, body_end=self._next_position)
        except CorruptDataError as problem:
            return FindingKind.INDEX_LIES, problem.problem
        for offset, position in zip(index.offsets, index.positions, strict=True):
            place = bisect_left(self._offsets, offset)
            if place == len(self._offsets) or (self._offsets[place], self._positions[place]) != (
                offset,
                position,
            ):
                return (
                    FindingKind.INDEX_LIES,
                    f"there is no batch with offset {offset} at position {position}",
                )
        return None
