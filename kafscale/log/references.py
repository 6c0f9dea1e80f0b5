"""The published segments of one partition, in order of their offsets, and how to find an offset among them."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

from kafscale.formats.partition_record import SegmentReference


class SegmentReferences:
    """Ascending references without overlaps. Gaps between them are legal (architecture.md, "Publish")."""

    __slots__ = ("_base_offsets", "_references", "size_bytes")

    def __init__(self, references: Iterable[SegmentReference] = ()) -> None:
        self._references: list[SegmentReference] = []
        self._base_offsets = array("q")
        self.size_bytes = 0
        for reference in references:
            self.append(reference)

    def __len__(self) -> int:
        return len(self._references)

    def __iter__(self) -> Iterator[SegmentReference]:
        return iter(self._references)

    def append(self, reference: SegmentReference) -> None:
        """Add the newest segment. Raises `ValueError` when it does not lie above the last one."""
        if self._references and reference.base_offset <= self._references[-1].last_offset:
            raise ValueError(
                f"segment {reference.base_offset} overlaps the one that ends at {self._references[-1].last_offset}"
            )
        self._references.append(reference)
        self._base_offsets.append(reference.base_offset)
        self.size_bytes += reference.size_bytes

    def from_offset(self, offset: int) -> Iterator[SegmentReference]:
        """The segments that hold `offset` or anything after it, ascending."""
        position = bisect_right(self._base_offsets, offset)
        if position and self._references[position - 1].last_offset >= offset:
            position -= 1
        for index in range(position, len(self._references)):
            yield self._references[index]

    def drop_below(self, offset: int) -> list[SegmentReference]:
        """Remove and return the segments that end below `offset`."""
        count = 0
        while count < len(self._references) and self._references[count].last_offset < offset:
            count += 1
        dropped = self._references[:count]
        del self._references[:count]
        del self._base_offsets[:count]
        self.size_bytes -= sum(reference.size_bytes for reference in dropped)
        return dropped

    def sources_of(self, merged: SegmentReference) -> list[SegmentReference]:
        """The segments in whose place `merged` can be put; none once the first of them has left.

        Raises `ValueError` when a segment lies across one of its ends.
        """
        start, end = self._within(merged)
        sources = self._references[start:end]
        before = self._references[start - 1].last_offset if start else -1
        if before >= merged.base_offset or (sources and sources[-1].last_offset > merged.last_offset):
            raise ValueError(f"segment {merged.base_offset} to {merged.last_offset} divides another")
        return sources if sources and sources[0].base_offset == merged.base_offset else []

    def replace(self, merged: SegmentReference) -> list[SegmentReference]:
        """Put `merged` in the place of its `sources_of`, which come back."""
        sources = self.sources_of(merged)
        if sources:
            start, end = self._within(merged)
            self._references[start:end] = [merged]
            self._base_offsets[start:end] = array("q", [merged.base_offset])
            self.size_bytes += merged.size_bytes - sum(source.size_bytes for source in sources)
        return sources

    def _within(self, merged: SegmentReference) -> tuple[int, int]:
        offsets = self._base_offsets
        return bisect_left(offsets, merged.base_offset), bisect_right(offsets, merged.last_offset)
