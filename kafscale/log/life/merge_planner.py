"""Chooses the neighbouring segments of a partition to rewrite as one, and counts those that wait. Pure.

Theory of operation. Every merge costs reading and writing its sources again, so segments are merged with others
of about their own size: sizes are divided into classes, each ten times the one below it, up to half the target.
From the smallest class up, the oldest run of neighbours that are no larger than the class is merged once it is
long enough and none of them is more than half of it, or once it is full. So each rewrite puts its bytes into a
segment at least twice as large, and a full one is never rewritten. The newest segments are skipped: consumers at
the end of the log read them from memory.
"""

from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

from kafscale.formats.index import MAX_RELATIVE_OFFSET
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, MAX_MESSAGE_COUNT

# The limit of objects read for one merge: it keeps small what a crash in the middle wastes.
MAX_SOURCES = 1000
NEWEST_LEFT = 3

COMPACTED_BYTES = 64 * 1024 * 1024
"""How large the segments of a compacted topic become: a compaction rewrites whole ones, and a crash wastes one."""

_CLASS_FACTOR = 10
_CLASSES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """The limits of a merged segment.

    `min_segments`: how many sources justify a merge that does not reach `target_bytes`. `max_span_ms`: how far
    apart the newest timestamps of its sources may be, None for any distance: a segment expires as a whole.
    """

    target_bytes: int
    min_segments: int
    max_span_ms: int | None = None


def merged_size_bytes(sources: Sequence[SegmentReference]) -> int:
    """The size of the merged segment of these: their bodies with one header and one footer."""
    frame = HEADER_SIZE + FOOTER_SIZE
    return sum(source.size_bytes - frame for source in sources) + frame


@dataclass(frozen=True, slots=True)
class MergePlan:
    """`sources`: the neighbours to merge next, oldest first; none if no merge is worthwhile.

    `waiting_count` and `waiting_bytes`: all segments of the partition that a merge is worthwhile for now, those of
    `sources` among them.
    """

    sources: tuple[SegmentReference, ...] = ()
    waiting_count: int = 0
    waiting_bytes: int = 0


def plan_merge(
    references: Sequence[SegmentReference],
    limits: MergeLimits,
    *,
    unreadable: Container[int] = (),
    taken: Container[tuple[int, int]] = (),
) -> tuple[SegmentReference, ...]:
    """The neighbours to merge next, oldest first; none if no merge is worthwhile.

    `unreadable`: base offsets of segments that cannot be read. `taken`: first and last offsets of merged
    segments whose keys belong to other objects.
    """
    return tuple(next(_worthwhile(references, limits, unreadable, taken), ()))


def plan_with_debt(
    references: Sequence[SegmentReference],
    limits: MergeLimits,
    *,
    unreadable: Container[int] = (),
    taken: Container[tuple[int, int]] = (),
) -> MergePlan:
    """As `plan_merge`, with how much of the partition waits to be merged."""
    sources: tuple[SegmentReference, ...] = ()
    waiting: dict[int, int] = {}
    for run in _worthwhile(references, limits, unreadable, taken):
        sources = sources or tuple(run)
        waiting.update((source.base_offset, source.size_bytes) for source in run)
    return MergePlan(sources, len(waiting), sum(waiting.values()))


def _worthwhile(
    references: Sequence[SegmentReference],
    limits: MergeLimits,
    unreadable: Container[int],
    taken: Container[tuple[int, int]],
) -> Iterator[list[SegmentReference]]:
    """The runs that are worth a merge: of the smallest class first, the oldest first."""
    candidates = references[: max(0, len(references) - NEWEST_LEFT)]
    sizes = sorted(reference.size_bytes for reference in candidates)
    smaller_count = 0
    for class_bytes in _class_sizes(limits.target_bytes):
        count = bisect_right(sizes, class_bytes)
        if count < 2 or count == smaller_count:
            continue  # The same segments make the same runs.
        smaller_count = count
        for run, is_full in _runs(candidates, class_bytes, limits, unreadable):
            full = _not_taken(run, taken) if is_full else []
            if len(full) > 1 and merged_size_bytes(full) * 2 >= limits.target_bytes:
                yield full
                continue
            chosen = _not_taken(_evened(run, limits.min_segments), taken)
            if len(chosen) >= limits.min_segments:
                yield chosen


def _class_sizes(target_bytes: int) -> Iterator[int]:
    for power in range(_CLASSES - 1, 0, -1):
        yield target_bytes // _CLASS_FACTOR**power
    yield target_bytes // 2


def _runs(
    candidates: Sequence[SegmentReference], class_bytes: int, limits: MergeLimits, unreadable: Container[int]
) -> Iterator[tuple[list[SegmentReference], bool]]:
    """The longest runs of neighbours of the class; each with True if the next one would have been one too many."""
    run: list[SegmentReference] = []
    size_bytes = records = 0
    for reference in candidates:
        fits_class = reference.size_bytes <= class_bytes and reference.base_offset not in unreadable
        full = bool(run) and not (
            size_bytes + reference.size_bytes <= limits.target_bytes
            and records + reference.record_count <= MAX_MESSAGE_COUNT
            and reference.last_offset - run[0].base_offset <= MAX_RELATIVE_OFFSET
            and len(run) < MAX_SOURCES
        )
        if run and (full or not fits_class or not _is_near(run[0], reference, limits)):
            yield run, full and fits_class
            run, size_bytes, records = [], 0, 0
        if fits_class:
            run.append(reference)
            size_bytes += reference.size_bytes
            records += reference.record_count
    if run:
        yield run, False


def _is_near(first: SegmentReference, other: SegmentReference, limits: MergeLimits) -> bool:
    if limits.max_span_ms is None or first.max_timestamp_ms < 0 or other.max_timestamp_ms < 0:
        return True
    return abs(other.max_timestamp_ms - first.max_timestamp_ms) <= limits.max_span_ms


def _not_taken(run: list[SegmentReference], taken: Container[tuple[int, int]]) -> list[SegmentReference]:
    while run and (run[0].base_offset, run[-1].last_offset) in taken:
        run = run[:-1]
    return run


def _evened(run: list[SegmentReference], min_segments: int) -> list[SegmentReference]:
    """The rest of the run after each segment that is larger than all the others together."""
    while len(run) >= min_segments:
        sizes = [reference.size_bytes for reference in run]
        largest = max(sizes)
        if largest * 2 <= sum(sizes):
            break
        run = run[sizes.index(largest) + 1 :]
    return run
