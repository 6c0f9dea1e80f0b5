"""Windows of merges: merges whose sources are read together, and the ranges to read for them. Pure.

Theory of operation. Segments of several partitions may lie next to each other in one object, sorted by partition.
Merges of neighbouring partitions then need neighbouring ranges of the same objects, so they share a window, whose
ranges are read once, by one request where they touch or nearly do. A segment with an object of its own shares
nothing, and its merge is a window by itself. A window is read into memory whole: it is small. A larger merge is a
window by itself, too, and its sources are streamed.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from kafscale.formats.object_keys import shares_its_object
from kafscale.formats.partition_record import SegmentReference

MIB: Final = 1024 * 1024
WINDOW_BYTES: Final = 8 * MIB
"""The size up to which sources are read into memory, and how much of them shares a window."""

MERGES_OF_A_WINDOW: Final = 64
"""They are made one after the other, so that a window is a bounded piece of work."""

GAP_BYTES: Final = 64 * 1024
"""Reading so much that is not needed takes less time and money than another request."""

Owner = TypeVar("Owner")


@dataclass(frozen=True, slots=True)
class PlannedMerge(Generic[Owner]):
    """A merge that is to be made: neighbouring sources of one partition, oldest first."""

    owner: Owner
    sources: tuple[SegmentReference, ...]

    @property
    def size_bytes(self) -> int:
        """The bytes to read."""
        return sum(source.size_bytes for source in self.sources)


@dataclass(frozen=True, slots=True)
class Window(Generic[Owner]):
    """Merges to make one after the other, of sources that are read together."""

    merges: tuple[PlannedMerge[Owner], ...]

    @property
    def size_bytes(self) -> int:
        """The bytes of all sources."""
        return sum(merge.size_bytes for merge in self.merges)

    @property
    def is_streamed(self) -> bool:
        """True if the window is too large to be read into memory."""
        return self.size_bytes > WINDOW_BYTES


def windows(planned: Iterable[PlannedMerge[Owner]]) -> Iterator[Window[Owner]]:
    """Every merge in one window: those of whole objects in their order, then those of shared objects."""
    sharing: list[PlannedMerge[Owner]] = []
    for merge in planned:
        if any(map(shares_its_object, merge.sources)):
            sharing.append(merge)
        else:
            yield Window((merge,))
    sharing.sort(key=_place)
    together: list[PlannedMerge[Owner]] = []
    size_bytes = 0
    for merge in sharing:
        is_full = size_bytes + merge.size_bytes > WINDOW_BYTES or len(together) == MERGES_OF_A_WINDOW
        if together and is_full:
            yield Window(tuple(together))
            together, size_bytes = [], 0
        together.append(merge)
        size_bytes += merge.size_bytes
    if together:
        yield Window(tuple(together))


def _place(merge: PlannedMerge[Owner]) -> tuple[str, int]:
    """Of the newest source: neighbours have it in the same object, where the older ones may differ."""
    return merge.sources[-1].object_key, merge.sources[-1].start


@dataclass(frozen=True, slots=True)
class Slice:
    """A segment in an object: `source` by its number among those that are read together."""

    source: int
    key: str
    start: int
    length: int

    @property
    def end(self) -> int:
        """The position after its last byte."""
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class Extent:
    """A range of an object that is read by one request, and the slices that lie in it."""

    key: str
    start: int
    length: int
    slices: tuple[Slice, ...]


def extents(slices: Sequence[Slice], most_bytes: int, gap_bytes: int = GAP_BYTES) -> list[Extent]:
    """The fewest ranges with all slices, none of which exceeds `most_bytes` unless one slice does.

    Slices of an object share a range where at most `gap_bytes` lie between them. In the order of the first slice of
    each, so that the sources that are needed first are read first.
    """
    found: list[Extent] = []
    together: list[Slice] = []
    end = 0
    for one in sorted(slices, key=lambda each: (each.key, each.start)):
        if together:
            first = together[0]
            joins = one.key == first.key and one.start <= end + gap_bytes
            if not joins or max(end, one.end) - first.start > most_bytes:
                found.append(Extent(first.key, first.start, end - first.start, tuple(together)))
                together, end = [], 0
        together.append(one)
        end = max(end, one.end)
    if together:
        first = together[0]
        found.append(Extent(first.key, first.start, end - first.start, tuple(together)))
    found.sort(key=lambda extent: min(one.source for one in extent.slices))
    return found
