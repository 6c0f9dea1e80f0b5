"""Plans the next merge of a partition, and remembers which partitions have none and which have failed."""

from collections.abc import Callable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from kafscale.cluster.topic_config_table import CleanupPolicy
from kafscale.cluster.topic_configs import TopicConfig
from kafscale.formats.index import LEGACY_VERSION, MAX_LEGACY_POSITION
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.object_keys import compaction_of
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.merge_debt import MergeDebt
from kafscale.log.life.merge_planner import COMPACTED_BYTES, MergeLimits, plan_with_debt
from kafscale.log.life.merge_windows import PlannedMerge
from kafscale.log.life.retention import SHARE_OF_RETENTION, limits_of, span_limit_ms
from kafscale.log.partition import Partition
from kafscale.settings.broker import Settings

_FIRST_PAUSE_SEC: Final = 30.0
_LAST_PAUSE_SEC: Final = 3600.0

_State = tuple[int, TopicConfig, int]


class MergeCandidates:
    """The partitions as merging sees them. `max_bytes`: the largest object that the store takes.

    A partition whose plan has nothing to merge is not planned again until it changes. One that failed twice in a row
    is left alone for a while, which doubles with each further failure.
    """

    def __init__(
        self,
        checkpointer: Checkpointer,
        settings: Settings,
        index_version: Callable[[], int],
        max_bytes: int,
        debt: MergeDebt[Partition],
        now_sec: Callable[[], float],
    ) -> None:
        self._checkpointer = checkpointer
        self._settings = settings
        self._index_version = index_version
        self._max_bytes = max_bytes
        self._debt = debt
        self._now_sec = now_sec
        self._settled: WeakKeyDictionary[Partition, _State] = WeakKeyDictionary()
        self._unreadable: WeakKeyDictionary[Partition, set[int]] = WeakKeyDictionary()
        self._taken: WeakKeyDictionary[Partition, set[tuple[int, int]]] = WeakKeyDictionary()
        self._failures: WeakKeyDictionary[Partition, tuple[int, float]] = WeakKeyDictionary()

    def is_worth_a_plan(self, partition: Partition) -> bool:
        """True if the partition is led, has changed since its last plan, and may be tried again."""
        _, not_before_sec = self._failures.get(partition, (0, 0.0))
        return (
            partition.is_led
            and self._settled.get(partition) != self._state(partition)
            and self._now_sec() >= not_before_sec
        )

    async def plan(self, partition: Partition) -> PlannedMerge[Partition] | None:
        """The partition's next merge, None if there is none. Raises `CorruptDataError`, `StoreError`."""
        state = self._state(partition)
        references: Sequence[SegmentReference]
        # The record as it is now: a later one may name a newer checkpoint, and no longer the segments in between.
        record = partition.record
        if partition.references is not None:
            references = tuple(partition.references)
        elif record.checkpoint_key:
            # Not kept: an unused partition costs no memory.
            checkpoint = await self._checkpointer.load(partition)
            references = (*checkpoint.segments, *record.segments)
        else:
            references = record.segments
        log_start_offset = record.log_start_offset
        candidates = [
            reference
            for reference in references
            # What is not sealed yet is the sealer's.
            if reference.last_offset >= log_start_offset and not is_unsealed_key(reference.object_key)
        ]
        # What is compacted is merged by compactions: its bytes depend on more than its offsets.
        left_out = {one.base_offset for one in candidates if compaction_of(one) is not None}
        found = plan_with_debt(
            candidates,
            self._limits(partition),
            unreadable=left_out | self._unreadable.get(partition, set()),
            taken=self._taken.get(partition, ()),
        )
        self._debt.note(partition, found.waiting_count, found.waiting_bytes, self._now_sec())
        if not found.sources:
            self._settled[partition] = state
            return None
        return PlannedMerge(partition, found.sources)

    def settle(self, partition: Partition) -> None:
        """Do not plan the partition again until it changes."""
        self._settled[partition] = self._state(partition)
        self._debt.note(partition, 0, 0, self._now_sec())

    def leave_out(self, partition: Partition, source: SegmentReference) -> None:
        """Plan without a segment that cannot be read."""
        self._unreadable.setdefault(partition, set()).add(source.base_offset)

    def avoid_key(self, partition: Partition, sources: Sequence[SegmentReference]) -> None:
        """Plan no merge of exactly these: another object has the key of the result."""
        self._taken.setdefault(partition, set()).add((sources[0].base_offset, sources[-1].last_offset))

    def merged(self, merge: PlannedMerge[Partition]) -> None:
        """The merge is published."""
        self._failures.pop(merge.owner, None)
        self._debt.paid(merge.owner, len(merge.sources), merge.size_bytes, self._now_sec())

    def failed(self, partition: Partition) -> None:
        """The partition's merge failed for a reason that may pass."""
        count = self._failures.get(partition, (0, 0.0))[0] + 1
        pause_sec = min(_FIRST_PAUSE_SEC * 2.0 ** min(count - 2, 16), _LAST_PAUSE_SEC) if count > 1 else 0.0
        self._failures[partition] = count, self._now_sec() + pause_sec

    def _state(self, partition: Partition) -> _State:
        """The input of a plan: as long as it is the same, so is the plan."""
        return partition.revision, partition.config, self._index_version()

    def _limits(self, partition: Partition) -> MergeLimits:
        config, settings = partition.config, self._settings
        target_bytes = min(max(settings.merge_target_bytes, config.segment_bytes), self._max_bytes)
        retention = limits_of(config)
        if retention is not None and retention.retention_bytes >= 0:
            share_bytes = retention.retention_bytes // SHARE_OF_RETENTION
            target_bytes = min(target_bytes, max(share_bytes, config.segment_bytes))
        if CleanupPolicy.COMPACT in config.cleanup_policy:
            target_bytes = min(target_bytes, COMPACTED_BYTES)
        if self._index_version() == LEGACY_VERSION:
            target_bytes = min(target_bytes, MAX_LEGACY_POSITION)
        return MergeLimits(
            target_bytes=target_bytes,
            min_segments=settings.merge_min_segments,
            max_span_ms=span_limit_ms(config),
        )
