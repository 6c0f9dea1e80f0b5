"""Which of a partition's segments a rebuild keeps, where objects claim the same offsets. Pure.

Theory of operation (docs/decisions/0013-rebuild-from-the-bucket.md has the proofs). Leaders publish segments
whose offsets and epochs only grow. Beside them the bucket may have *orphans*: uploads of leaders that were
fenced, or gave a flush up, before they published. A leader that finds its key taken by one goes one offset up.
So where two objects overlap, the one with the higher epoch, or of the same epoch the one with the higher base
offset, was written by a leader that had seen that the other was not published. Merged segments have only what
was published; they and their sources agree, and any set of them that covers everything will do.

A compacted segment has less than what it was made of, and that is as it should be: a record is gone because a newer
one of its key was published, or because its time was over. So it wins over all that it covers, but over a compacted
one that knew more: beside what lost a tombstone, nothing may stand that is older than the tombstone was.
"""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafscale.formats.object_keys import Compaction
from kafscale.log.reading.segment_inspection import InspectedSegment, Span

NOTHING_COMPACTED: Final = Compaction(-1, -1, "")


class DropReason(StrEnum):
    """Why a segment is not part of the rebuilt log."""

    COVERED = "what it holds is kept in a merged segment, or in that one's sources"
    COMPACTED = "what it holds was compacted into another segment"
    OVERLAPPED = "merged segment that overlaps others, which hold what comes later"
    LEFTOVER = "orphan: a later leader wrote the same offsets"
    OLD_LEADER = "orphan: a leader of a higher epoch wrote before it"
    REPEATED = "orphan: all of it was published again after it"
    DELETED = "deleted: it lies below where the log started by the snapshot or the newest checkpoint"
    UNDECIDED = "overlaps other segments, and no leader epoch says which was published"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A whole segment that is left out. `because` is the key of the object that decided it, where one did."""

    segment: InspectedSegment
    reason: DropReason
    because: str = ""


def in_order(dropped: Dropped) -> tuple[int, int, str]:
    """The order of segments that were left out."""
    return dropped.segment.base_offset, dropped.segment.last_offset, dropped.segment.key


@dataclass(frozen=True, slots=True)
class Chosen:
    """The segments of a partition that are kept, and those that are not; both ascending by base offset."""

    kept: tuple[InspectedSegment, ...]
    dropped: tuple[Dropped, ...]


def choose(segments: Iterable[InspectedSegment], damaged: Sequence[tuple[int, str]] = ()) -> Chosen:
    """Sort out one partition's segments so that those kept do not overlap.

    `damaged`: base offset and key of flushed segments that cannot be read. That one is there says that nothing
    which reaches past its base offset was published before it.
    """
    ordered = sorted(segments, key=lambda one: (one.base_offset, -one.last_offset, one.key))
    beaten = _beaten(ordered, sorted(damaged))
    standing = [segment for segment in ordered if segment.key not in beaten]
    beaten |= _of_old_leaders(standing)
    standing = [segment for segment in standing if segment.key not in beaten]
    beaten |= _compacted(standing)
    standing = [segment for segment in standing if segment.key not in beaten]
    kept: list[InspectedSegment] = []
    dropped = list(beaten.values())
    for cluster in _clusters(standing):
        best = _best_cover(cluster)
        kept += best
        dropped += _left_out(cluster, best)
    dropped.sort(key=in_order)
    return Chosen(tuple(kept), tuple(dropped))


def _beaten(ordered: Sequence[InspectedSegment], damaged: Sequence[tuple[int, str]]) -> dict[str, Dropped]:
    """Everything that loses against anything that it overlaps, by key."""
    beaten: dict[str, Dropped] = {}
    active: list[InspectedSegment] = []
    for later in ordered:
        active = [earlier for earlier in active if earlier.last_offset >= later.base_offset]
        for earlier in active:
            loser = _loser(earlier, later)
            if loser is not None:
                winner = later if loser is earlier else earlier
                beaten.setdefault(
                    loser.key, Dropped(segment=loser, reason=DropReason.LEFTOVER, because=winner.key)
                )
        active.append(later)
    for segment in ordered if damaged else ():
        if not segment.is_merged and segment.leader_epoch >= 0:
            position = bisect_left(damaged, (segment.base_offset + 1, ""))
            if position < len(damaged) and damaged[position][0] <= segment.last_offset:
                lost = Dropped(segment=segment, reason=DropReason.LEFTOVER, because=damaged[position][1])
                beaten.setdefault(segment.key, lost)
    return beaten


def _loser(earlier: InspectedSegment, later: InspectedSegment) -> InspectedSegment | None:
    """Which of two overlapping segments was not published; None when they agree, or nothing says."""
    if _agree(earlier, later):
        return None
    if earlier.leader_epoch != later.leader_epoch:
        return min(earlier, later, key=lambda segment: segment.leader_epoch)
    if earlier.is_merged != later.is_merged:
        return later if earlier.is_merged else earlier
    if earlier.is_merged or earlier.leader_epoch < 0:
        return None
    return earlier


def _agree(earlier: InspectedSegment, later: InspectedSegment) -> bool:
    """True if both hold the same batches where they overlap, as a merged segment and its sources do."""
    if not earlier.is_merged and not later.is_merged:
        return False
    is_compacted = earlier.compaction is not None or later.compaction is not None
    first = max(earlier.base_offset, later.base_offset)
    last = min(earlier.last_offset, later.last_offset)
    for segment in (earlier, later):
        inside = (first, last) == (segment.base_offset, segment.last_offset)
        if not segment.is_merged and not inside:
            return False
    have_same_epochs = _clipped(earlier.spans, first, last) == _clipped(later.spans, first, last)
    if is_compacted:
        return have_same_epochs
    return have_same_epochs and earlier.batches.between(first, last) == later.batches.between(first, last)


def _compacted(ordered: Sequence[InspectedSegment]) -> dict[str, Dropped]:
    """The segments that a compacted one covers which knows more than they do."""
    dropped: dict[str, Dropped] = {}
    compacted: list[InspectedSegment] = []
    # The widest of those that begin together comes first, so whatever covers a segment was seen before it, but for
    # another one of the same offsets.
    for segment in sorted(ordered, key=_width_first):
        compacted = [one for one in compacted if one.last_offset >= segment.base_offset]
        for other in compacted:
            if other.last_offset >= segment.last_offset and _knows_more(other, segment):
                dropped[segment.key] = Dropped(
                    segment=segment, reason=DropReason.COMPACTED, because=other.key
                )
                break
        if segment.compaction is not None:
            compacted.append(segment)
    return dropped


def _width_first(segment: InspectedSegment) -> tuple[int, int, Compaction]:
    """The order for `_compacted`: of those with the same offsets the one that knows more comes first."""
    compaction = segment.compaction or NOTHING_COMPACTED
    newest_first = Compaction(-compaction.map_end_offset, -compaction.leader_epoch, compaction.token)
    return segment.base_offset, -segment.last_offset, newest_first


def _knows_more(one: InspectedSegment, other: InspectedSegment) -> bool:
    if one.compaction is None or other.compaction is None:
        return one.compaction is not None
    return one.compaction.map_end_offset >= other.compaction.map_end_offset


def _clipped(spans: Iterable[Span], first: int, last: int) -> list[Span]:
    return [
        Span(max(span.first_offset, first), min(span.last_offset, last), span.leader_epoch)
        for span in spans
        if span.first_offset <= last and span.last_offset >= first
    ]


def _of_old_leaders(ordered: Iterable[InspectedSegment]) -> dict[str, Dropped]:
    """The segments that lie above one of a higher epoch: what an older topic of the name left behind.

    A segment without an epoch says nothing about leaders, so it is spared.
    """
    dropped: dict[str, Dropped] = {}
    running: list[tuple[int, int, str]] = []
    highest, highest_key = -1, ""
    for segment in ordered:
        while running and running[0][0] < segment.base_offset:
            _, epoch, key = heapq.heappop(running)
            if epoch > highest:
                highest, highest_key = epoch, key
        epoch = segment.leader_epoch
        if 0 <= epoch < highest:
            dropped[segment.key] = Dropped(segment=segment, reason=DropReason.OLD_LEADER, because=highest_key)
        else:
            heapq.heappush(running, (segment.last_offset, epoch, segment.key))
    return dropped


def _clusters(ordered: Iterable[InspectedSegment]) -> Iterator[list[InspectedSegment]]:
    """Runs of segments that overlap one another, directly or through others."""
    cluster: list[InspectedSegment] = []
    end = -1
    for segment in ordered:
        if cluster and segment.base_offset > end:
            yield cluster
            cluster = []
        cluster.append(segment)
        end = max(end, segment.last_offset)
    if cluster:
        yield cluster


def _best_cover(cluster: Sequence[InspectedSegment]) -> list[InspectedSegment]:
    """Of all ways to keep segments that do not overlap: the most from the end on, then the fewest objects.

    From the end, because what was removed from the log for good, by retention, was removed from its start: a
    merged segment that was never published may hold it still, and must not win over what comes later.
    """
    if len(cluster) == 1:
        return list(cluster)
    by_end = sorted(cluster, key=lambda one: (one.last_offset, one.base_offset, one.key))
    ends = [segment.last_offset for segment in by_end]
    before = [bisect_left(ends, segment.base_offset) for segment in by_end]
    covered = _as_bits(by_end)
    # best[n]: the best of the first n, as (bits, -objects), and whether the n-th is part of it.
    best: list[tuple[tuple[int, int], bool]] = [((0, 0), False)]
    for position, bits in enumerate(covered):
        bits_before, objects = best[before[position]][0]
        best.append(max((best[position][0], False), ((bits_before | bits, objects - 1), True)))
    kept: list[InspectedSegment] = []
    count = len(by_end)
    while count:
        if best[count][1]:
            kept.append(by_end[count - 1])
            count = before[count - 1]
        else:
            count -= 1
    return kept[::-1]


def _as_bits(segments: Sequence[InspectedSegment]) -> list[int]:
    """The offsets of each segment as a number: a bit for each stretch between any two ends, higher for later ones."""
    spans = [span for segment in segments for span in segment.spans]
    edges = sorted({span.first_offset for span in spans} | {span.last_offset + 1 for span in spans})
    place = {offset: position for position, offset in enumerate(edges)}
    covered = []
    for segment in segments:
        bits = 0
        for span in segment.spans:
            low, high = place[span.first_offset], place[span.last_offset + 1]
            bits |= (1 << high) - (1 << low)
        covered.append(bits)
    return covered


def _left_out(cluster: Iterable[InspectedSegment], best: Sequence[InspectedSegment]) -> Iterator[Dropped]:
    kept = {segment.key for segment in best}
    for segment in cluster:
        if segment.key not in kept:
            yield Dropped(segment=segment, reason=_reason(segment, best))


def _reason(segment: InspectedSegment, best: Iterable[InspectedSegment]) -> DropReason:
    first, last = segment.base_offset, segment.last_offset
    if b"".join(other.batches.between(first, last) for other in best) == segment.batches.packed:
        return DropReason.COVERED
    return DropReason.OVERLAPPED if segment.is_merged else DropReason.UNDECIDED
