"""How much of each partition one commit takes: no more than the limit, also of segments that are larger. Pure.

A commit takes whole segments while they fit, and the rest of its room of the next one, up to a place that the
segment's index knows. What brokers would read as one chunk is not divided where there is room for a chunk: the next
commit would read it again. If partitions are more than fit, some are taken, and the next commit begins behind them.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kafscale.formats.partition_record import SegmentReference
from kafscale.lake.ranges import Range
from kafscale.reader.splits import WHOLE_SEGMENT_BYTES
from kafscale.reader.topic_state import PartitionLog

LEAST_SHARE_BYTES: Final = WHOLE_SEGMENT_BYTES
"""A partition that is taken has room for this much: what is read with one request is then read once."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A place in a segment where a batch starts: its offset, and the bytes of batches before it.

    `ends_chunk`: what lies before it is read without anything that lies behind it.
    """

    offset: int
    size_bytes: int
    ends_chunk: bool


FindCuts = Callable[[Sequence[tuple[PartitionLog, SegmentReference]]], Sequence[Sequence[Cut]]]
"""For each of the segments its cuts, ascending; none where no index tells them."""

Wanted = Mapping[int, tuple[PartitionLog, Range]]
"""By partition: its log, and the offsets that one commit may take of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The offsets that a commit takes of a partition, and their bytes as far as references and cuts show them."""

    taken: Range
    size_bytes: int


def no_cuts(segments: Sequence[tuple[PartitionLog, SegmentReference]]) -> list[Sequence[Cut]]:
    """For segments without an index."""
    return [()] * len(segments)


def references_within(log: PartitionLog, wanted: Range) -> list[SegmentReference]:
    """The references with one of these offsets, ascending."""
    return [one for one in log.references if one.base_offset < wanted[1] and one.last_offset >= wanted[0]]


def shares_of(wanted: Wanted, max_bytes: int, find_cuts: FindCuts, begins_at: int) -> dict[int, Share]:
    """The shares of one commit, in the order in which partitions had their turn, from `begins_at` on.

    Beyond `max_bytes` there may be one interval of the index for each partition, or a segment without an index.
    `find_cuts` is called twice at most, only if not everything fits.
    """
    segments = _Segments(find_cuts)
    sizes = {index: segments.size(log, some) for index, (log, some) in wanted.items()}
    if _whole_bytes(wanted) > max_bytes:
        segments.look_up(
            (log, one)
            for log, some in wanted.values()
            for one in references_within(log, some)
            if _is_chunked(one) and (one.base_offset < some[0] or one.last_offset >= some[1])
        )
        sizes = {index: segments.size(log, some) for index, (log, some) in wanted.items()}
    if sum(sizes.values()) <= max_bytes:
        return {
            index: Share(taken=some, size_bytes=sizes[index]) for index, (_, some) in sorted(wanted.items())
        }
    fillings = {
        index: _Filling(*wanted[index], room, segments)
        for index, room in _rooms(sizes, max_bytes, begins_at).items()
    }
    segments.look_up(one.divided for one in fillings.values() if one.divided is not None)
    return {index: share for index, one in fillings.items() if (share := one.share()) is not None}


def _whole_bytes(wanted: Wanted) -> int:
    return sum(one.size_bytes for log, some in wanted.values() for one in references_within(log, some))


def _is_chunked(reference: SegmentReference) -> bool:
    """True for a segment that is read in parts; others are read whole, however little is wanted of them."""
    return reference.size_bytes > WHOLE_SEGMENT_BYTES


def _rooms(sizes: Mapping[int, int], max_bytes: int, begins_at: int) -> dict[int, int]:
    """By partition: the bytes that it may take, in proportion to what is left of it."""
    ordered = sorted(sizes)
    turn = bisect_left(ordered, begins_at)
    least: dict[int, int] = {}
    left_bytes = max_bytes
    for index in (*ordered[turn:], *ordered[:turn]):
        least_bytes = min(sizes[index], LEAST_SHARE_BYTES, max_bytes)
        if least_bytes > left_bytes:
            break
        least[index] = least_bytes
        left_bytes -= least_bytes
    more_bytes = sum(sizes[index] - least_bytes for index, least_bytes in least.items())
    share = min(1.0, left_bytes / more_bytes) if more_bytes else 0.0
    return {
        index: least_bytes + int((sizes[index] - least_bytes) * share) for index, least_bytes in least.items()
    }


class _Segments:
    """Sizes of parts of segments: by their cuts, where those were looked up, else as if all records had one size."""

    def __init__(self, find_cuts: FindCuts) -> None:
        self._find_cuts = find_cuts
        self._cuts: dict[tuple[int, int], Sequence[Cut]] = {}

    def look_up(self, segments: Iterable[tuple[PartitionLog, SegmentReference]]) -> None:
        """Find the cuts of these segments, all at once."""
        unknown = {(log.partition, one.base_offset): (log, one) for log, one in segments}
        left = [one for key, one in unknown.items() if key not in self._cuts]
        if left:
            found = self._find_cuts(left)
            self._cuts |= {
                (log.partition, one.base_offset): cuts for (log, one), cuts in zip(left, found, strict=True)
            }

    def cuts(self, log: PartitionLog, reference: SegmentReference) -> Sequence[Cut]:
        """The segment's cuts, as far as they were looked up."""
        return self._cuts.get((log.partition, reference.base_offset), ())

    def size(self, log: PartitionLog, wanted: Range) -> int:
        """The bytes of these offsets."""
        return sum(self.part_bytes(log, one, wanted) for one in references_within(log, wanted))

    def part_bytes(self, log: PartitionLog, reference: SegmentReference, wanted: Range) -> int:
        """The bytes to read of the segment for these offsets, some of which it has."""
        first, following = max(wanted[0], reference.base_offset), min(wanted[1], reference.last_offset + 1)
        cuts = self.cuts(log, reference)
        if not cuts:
            offsets = reference.last_offset + 1 - reference.base_offset
            return reference.size_bytes * (following - first) // offsets
        begin = max((cut.size_bytes for cut in cuts if cut.offset <= first), default=0)
        end = next((cut.size_bytes for cut in cuts if cut.offset >= following), reference.size_bytes)
        return end - begin


class _Filling:
    """A partition's part of a commit: the whole segments that fit in its room, and what fits of the next one."""

    def __init__(self, log: PartitionLog, wanted: Range, room_bytes: int, segments: _Segments) -> None:
        self._log = log
        self._wanted = wanted
        self._room_bytes = room_bytes
        self._segments = segments
        self._following = wanted[0]
        self._taken_bytes = 0
        self.divided: tuple[PartitionLog, SegmentReference] | None = None
        self._take_whole()

    def _take_whole(self) -> None:
        for reference in references_within(self._log, self._wanted):
            size_bytes = self._segments.part_bytes(self._log, reference, self._wanted)
            if self._taken_bytes + size_bytes > self._room_bytes:
                # A part of a small segment costs as many reads as all of it.
                if not self._taken_bytes or _is_chunked(reference):
                    self.divided = self._log, reference
                return
            self._taken_bytes += size_bytes
            self._following = min(self._wanted[1], reference.last_offset + 1)
        self._following = self._wanted[1]

    def share(self) -> Share | None:
        """The share, once the cuts of the divided segment are known; None if there is no room at all."""
        if self.divided is not None:
            self._divide(*self.divided)
        if self._following <= self._wanted[0]:
            return None
        return Share(taken=(self._wanted[0], self._following), size_bytes=self._taken_bytes)

    def _divide(self, log: PartitionLog, reference: SegmentReference) -> None:
        cuts = self._segments.cuts(log, reference)
        first = max(self._wanted[0], reference.base_offset)
        following = min(self._wanted[1], reference.last_offset + 1)
        begin_bytes = max((cut.size_bytes for cut in cuts if cut.offset <= first), default=0)
        inside = [cut for cut in cuts if first < cut.offset < following]
        room_bytes = self._room_bytes - self._taken_bytes + begin_bytes
        fitting = [cut for cut in inside if cut.size_bytes <= room_bytes]
        chunks = [cut for cut in fitting if cut.ends_chunk]
        if fitting:
            chosen = (chunks or fitting)[-1]
            self._following = chosen.offset
            self._taken_bytes += chosen.size_bytes - begin_bytes
        elif not self._taken_bytes:
            self._following = inside[0].offset if inside else following
            self._taken_bytes = self._segments.part_bytes(log, reference, (first, self._following))
