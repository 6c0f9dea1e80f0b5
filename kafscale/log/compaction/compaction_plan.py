"""Decides when a partition is compacted, and in what groups its segments are rewritten, by Kafka's rules. Pure.

Kafka's rules (LogCleanerManager): the *clean* part at the log's start has been compacted, the *dirty* part behind it
has not. A compaction is due once the dirty part is more than `min.cleanable.dirty.ratio` of both, or its oldest
records are older than `max.compaction.lag.ms`. Records younger than `min.compaction.lag.ms` stay out of it, with all
that follows them; so do the newest sealed segment and what is not sealed yet, as Kafka's active segment does, and the
segment with the last stable offset, with all that follow.

How far a log is clean is read from the keys of its segments: the groups are rewritten from the oldest on, so a
segment with the key of a compacted one lies in the clean part, up to the end of the map that it was made with.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafscale.cluster.topic_config_table import CleanupPolicy
from kafscale.cluster.topic_configs import TopicConfig
from kafscale.formats.index import MAX_RELATIVE_OFFSET
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.object_keys import compaction_of
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import MAX_MESSAGE_COUNT
from kafscale.log.life.merge_planner import COMPACTED_BYTES, MAX_SOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """A topic's configs as compaction goes by them: a ratio of 0 to 1, and milliseconds."""

    min_dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionState:
    """The clean part of a partition, the dirty part that may be compacted now, and when it is due.

    Both ascend. `first_dirty_offset` may lie inside the first dirty segment. `oldest_dirty_ms`: the newest timestamp
    of the oldest dirty segment that has one, -1 for none. `due_ms`: when it is due if nothing is sealed meanwhile, in
    Unix milliseconds; None: not before something is.
    """

    clean: tuple[SegmentReference, ...] = ()
    dirty: tuple[SegmentReference, ...] = ()
    first_dirty_offset: int = 0
    oldest_dirty_ms: int = -1
    is_due: bool = False
    due_ms: int | None = None

    @property
    def dirty_bytes(self) -> int:
        """The bytes that the map is made of."""
        return sum(reference.size_bytes for reference in self.dirty)

    @property
    def dirty_ratio(self) -> float:
        """The dirty part of all that may be compacted, 0 to 1."""
        dirty_bytes = self.dirty_bytes
        whole = dirty_bytes + sum(reference.size_bytes for reference in self.clean)
        return dirty_bytes / whole if whole else 0.0


def compaction_limits(config: TopicConfig) -> CompactionLimits | None:
    """The limits of a topic, None for one that is not compacted."""
    if CleanupPolicy.COMPACT not in config.cleanup_policy:
        return None
    return CompactionLimits(
        min_dirty_ratio=config.min_cleanable_dirty_ratio,
        min_lag_ms=config.min_compaction_lag_ms,
        max_lag_ms=config.max_compaction_lag_ms,
    )


def compaction_state(
    references: Iterable[SegmentReference],
    limits: CompactionLimits,
    now_ms: int,
    last_stable_offset: int = sys.maxsize,
) -> CompactionState:
    """The state of a partition with these segments, ascending; `now_ms`: Unix milliseconds."""
    sealed = [reference for reference in references if not is_unsealed_key(reference.object_key)]
    candidates = [one for one in sealed[:-1] if one.last_offset < last_stable_offset]
    wait_ms: int | None = None
    if limits.min_lag_ms:
        for place, reference in enumerate(candidates):
            # One without timestamps says nothing of its age, so it may be too young.
            if reference.max_timestamp_ms < 0 or now_ms - reference.max_timestamp_ms < limits.min_lag_ms:
                if reference.max_timestamp_ms >= 0:
                    wait_ms = reference.max_timestamp_ms + limits.min_lag_ms
                candidates = candidates[:place]
                break
    count, first_dirty_offset = _clean_count(candidates)
    clean, dirty = tuple(candidates[:count]), tuple(candidates[count:])
    oldest_ms = next((one.max_timestamp_ms for one in dirty if one.max_timestamp_ms >= 0), -1)
    found = CompactionState(
        clean=clean, dirty=dirty, first_dirty_offset=first_dirty_offset, oldest_dirty_ms=oldest_ms
    )
    due_ms = wait_ms
    is_due = bool(dirty) and found.dirty_ratio > limits.min_dirty_ratio
    if dirty and not is_due and oldest_ms >= 0:
        late_ms = oldest_ms + limits.max_lag_ms
        is_due = late_ms <= now_ms
        due_ms = late_ms if due_ms is None else min(due_ms, late_ms)
    return CompactionState(
        clean=clean,
        dirty=dirty,
        first_dirty_offset=first_dirty_offset,
        oldest_dirty_ms=oldest_ms,
        is_due=is_due,
        due_ms=now_ms if is_due else due_ms,
    )


def _clean_count(references: Sequence[SegmentReference]) -> tuple[int, int]:
    """How many of the segments are clean, from the first on, and the offset where the dirty part begins."""
    for place, reference in enumerate(references):
        compaction = compaction_of(reference)
        if compaction is None:
            return place, reference.base_offset
        if compaction.map_end_offset <= reference.last_offset:
            # Its map was full: the rest of it is dirty.
            return place, max(reference.base_offset, compaction.map_end_offset)
    return len(references), references[-1].last_offset + 1 if references else 0


@dataclass(slots=True)
class _Group:
    sources: list[SegmentReference] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0


def compaction_groups(
    references: Sequence[SegmentReference], max_span_ms: int | None = None, group_bytes: int = COMPACTED_BYTES
) -> list[tuple[SegmentReference, ...]]:
    """The segments in groups, each of which becomes one; `max_span_ms`: see `MergeLimits`."""
    groups: list[_Group] = []
    for reference in references:
        group = groups[-1] if groups else None
        if group is None or not _has_room(group, reference, max_span_ms, group_bytes):
            group = _Group()
            groups.append(group)
        group.sources.append(reference)
        group.size_bytes += reference.size_bytes
        group.record_count += reference.record_count
    return [tuple(group.sources) for group in groups]


def _has_room(group: _Group, reference: SegmentReference, max_span_ms: int | None, group_bytes: int) -> bool:
    first = group.sources[0]
    dated = first.max_timestamp_ms >= 0 and reference.max_timestamp_ms >= 0
    span_ms = abs(reference.max_timestamp_ms - first.max_timestamp_ms) if dated else 0
    return (
        group.size_bytes + reference.size_bytes <= group_bytes
        and group.record_count + reference.record_count <= MAX_MESSAGE_COUNT
        and reference.last_offset - first.base_offset <= MAX_RELATIVE_OFFSET
        and len(group.sources) < MAX_SOURCES
        and (max_span_ms is None or span_ms <= max_span_ms)
    )


def is_worth_writing(
    sources: Sequence[SegmentReference], first_dirty_offset: int, *, has_changes: bool
) -> bool:
    """True if a group's rewritten segment is to be published.

    Always if it has lost something or was dirty: its key says that it is clean. Else several small ones become a
    large one only as long as none of them has more than the others together, so that bytes are not written again
    and again.
    """
    if has_changes or sources[-1].last_offset >= first_dirty_offset:
        return True
    sizes = [source.size_bytes for source in sources]
    return len(sizes) > 1 and 2 * max(sizes) <= sum(sizes)
