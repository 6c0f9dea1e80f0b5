"""Which partition is compacted next, and which need not be looked at: those that have not changed, or have failed."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from kafscale.cluster.topic_configs import TopicConfig
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.compaction.compaction_plan import CompactionState, compaction_limits, compaction_state
from kafscale.log.partition import Partition

_FIRST_PAUSE_MS: Final = 30_000
_LAST_PAUSE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A partition at its last look: it is due again when one of these changes, or at `due_ms`."""

    revision: int
    config: TopicConfig
    due_ms: int | None


class CompactionCandidates:
    """The partitions as compaction sees them. A look at one that has not changed costs nothing."""

    def __init__(self, checkpointer: Checkpointer, now_ms: Callable[[], int]) -> None:
        self._checkpointer = checkpointer
        self._now_ms = now_ms
        self._seen: WeakKeyDictionary[Partition, _Seen] = WeakKeyDictionary()
        self._failures: WeakKeyDictionary[Partition, tuple[int, int]] = WeakKeyDictionary()
        # Of the dirty partitions: the ratio, and the time of the oldest dirty record. For the gauges, on any thread.
        self._dirty: dict[Partition, tuple[float, int]] = {}

    def is_worth_a_look(self, partition: Partition) -> bool:
        """True if the partition is led and compacted, and may be due by what changed or what time it is."""
        if compaction_limits(partition.config) is None or not partition.is_led:
            self._dirty.pop(partition, None)
            return False
        now_ms = self._now_ms()
        if now_ms < self._failures.get(partition, (0, 0))[1]:
            return False
        seen = self._seen.get(partition)
        if seen is None or (seen.revision, seen.config) != (partition.revision, partition.config):
            return True
        return seen.due_ms is not None and seen.due_ms <= now_ms

    async def look(self, partition: Partition) -> CompactionState | None:
        """The partition's state, None if it is not compacted. Raises `CorruptDataError`, `StoreError`."""
        limits = compaction_limits(partition.config)
        if limits is None:
            return None
        revision, config = partition.revision, partition.config
        # Before the references are read, which may take a while: it never becomes less.
        stable = partition.last_stable_offset
        state = compaction_state(await self._references(partition), limits, self._now_ms(), stable)
        self._seen[partition] = _Seen(revision=revision, config=config, due_ms=state.due_ms)
        self._dirty.pop(partition, None)
        if state.dirty:
            self._dirty[partition] = state.dirty_ratio, state.oldest_dirty_ms
        return state

    async def _references(self, partition: Partition) -> Sequence[SegmentReference]:
        # The record as it is now: a later one may name a newer checkpoint, and no longer the segments in between.
        record = partition.record
        references: Iterable[SegmentReference] = record.segments
        if partition.references is not None:
            references = partition.references
        elif record.checkpoint_key:
            # Not kept: an unused partition costs no memory.
            references = (*(await self._checkpointer.load(partition)).segments, *record.segments)
        return [one for one in references if one.last_offset >= record.log_start_offset]

    def compacted(self, partition: Partition) -> None:
        """A compaction of the partition has come to its end: look at it again."""
        self._failures.pop(partition, None)
        self._seen.pop(partition, None)

    def failed(self, partition: Partition) -> None:
        """A compaction failed: the partition is left alone for a while, twice as long each time."""
        count = self._failures.get(partition, (0, 0))[0] + 1
        pause_ms = min(_FIRST_PAUSE_MS * 2 ** min(count - 1, 16), _LAST_PAUSE_MS)
        self._failures[partition] = count, self._now_ms() + pause_ms
        self._seen.pop(partition, None)

    def retain(self, led: set[Partition]) -> None:
        """Forget the partitions that this broker does not lead any more."""
        for partition in [one for one in self._dirty if one not in led]:
            self._dirty.pop(partition, None)

    def largest_dirty_ratio(self) -> float:
        """The largest dirty part of any partition, 0 to 1."""
        return max((ratio for ratio, _ in tuple(self._dirty.values())), default=0.0)

    def oldest_dirty_sec(self) -> float:
        """The age of the oldest record that waits for a compaction, in seconds; 0 if none does."""
        oldest_ms = min((time_ms for _, time_ms in tuple(self._dirty.values()) if time_ms >= 0), default=None)
        return 0.0 if oldest_ms is None else max(0.0, (self._now_ms() - oldest_ms) / 1000)
