"""The published segments of one partition, in order of their offsets, and how to find an offset among them."""

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator

from kafscale.metadata.partition_record import SegmentReference


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
