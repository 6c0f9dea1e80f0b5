"""Merges the segments of the partitions that this broker leads, in the background, one merge at a time."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from kafscale.cluster.topic_configs import TopicConfig
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.index import LEGACY_VERSION, MAX_LEGACY_POSITION
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.merge_planner import MergeLimits, plan_merge
from kafscale.log.life.pace import Pace
from kafscale.log.life.removals import Removals
from kafscale.log.life.retention import limits_of
from kafscale.log.life.segment_merge import (
    DamagedSourceError,
    KeyTakenError,
    MissingSourceError,
    SegmentMerge,
)
from kafscale.log.life.segment_swap import SegmentSwap
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.publisher import FencedError
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.metrics import MergeOutcome, Metrics
from kafscale.settings.broker import Settings

logger = logging.getLogger(__name__)

# Partitions without work that are considered before other tasks have their turn on the event loop.
_LOOKS_PER_TURN = 200
# The part of a partition's retention that a merged segment may span: it expires as a whole, with its newest record.
_SHARE_OF_RETENTION = 10

_State = tuple[int, TopicConfig, int]


class Merger:
    """Merges segments of the partitions that this broker leads, periodically.

    `index_version` returns the version in which indexes are written. At worst a crash leaves a merged segment as an
    orphan, which the next attempt finds and uses, or the garbage collector deletes.
    """

    def __init__(
        self,
        objects: ObjectStore,
        logs: LogManager,
        checkpointer: Checkpointer,
        removals: Removals,
        settings: Settings,
        metrics: Metrics,
        index_version: Callable[[], int],
    ) -> None:
        self._logs = logs
        self._checkpointer = checkpointer
        self._removals = removals
        self._settings = settings
        self._metrics = metrics
        self._index_version = index_version
        self._max_bytes = objects.max_streamed_bytes
        self._swap = SegmentSwap(logs, checkpointer)
        pace = Pace(max(1, settings.merge_bytes_per_sec))
        self._merge = SegmentMerge(objects, settings.s3_namespace, pace)
        self._is_store_away = False
        self._settled: WeakKeyDictionary[Partition, _State] = WeakKeyDictionary()
        self._unreadable: WeakKeyDictionary[Partition, set[int]] = WeakKeyDictionary()
        self._taken: WeakKeyDictionary[Partition, set[tuple[int, int]]] = WeakKeyDictionary()

    async def run(self) -> None:
        """Merge until cancelled."""
        interval_sec = self._settings.merge_check_interval_ms / 1000
        while True:
            await asyncio.sleep(interval_sec)
            if self._settings.merge_bytes_per_sec:
                while await self._look():
                    pass

    async def _look(self) -> bool:
        """Merge once in each partition where that is worthwhile; True if there was one, and the stores answer."""
        merged = False
        self._is_store_away = False
        for number, partition in enumerate(tuple(self._logs.partitions())):
            if number % _LOOKS_PER_TURN == 0:
                await asyncio.sleep(0)
            if partition.is_led and await self._try(partition):
                merged = True
            if self._is_store_away:
                return False
        return merged

    async def _try(self, partition: Partition) -> bool:
        try:
            return await self.consider(partition)
        except Exception:
            # A defect. Segments that are not merged do less harm than a broker that stops for them.
            logger.exception("could not merge segments", extra={"partition": str(partition.id)})
            self._settled[partition] = self._state(partition)
            self._metrics.merges.count(MergeOutcome.FAILED)
            return False

    async def consider(self, partition: Partition) -> bool:
        """Merge some of the partition's segments if that is worthwhile and possible; returns whether it was."""
        state = self._state(partition)
        if self._settled.get(partition) == state:
            return False
        try:
            sources = await self._plan(partition, self._limits(partition))
            if not sources:
                self._settled[partition] = state
                return False
            return await self._carry_out(partition, sources)
        except (StoreError, CorruptDataError) as problem:
            logger.info(
                "could not merge segments, trying again later",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
            self._metrics.merges.count(MergeOutcome.FAILED)
            self._is_store_away = isinstance(problem, StoreError)
            return False

    def _state(self, partition: Partition) -> _State:
        """The input of a plan: as long as it is the same, so is the plan."""
        return partition.revision, partition.config, self._index_version()

    def _limits(self, partition: Partition) -> MergeLimits:
        config, settings = partition.config, self._settings
        target_bytes = min(max(settings.merge_target_bytes, config.segment_bytes), self._max_bytes)
        retention = limits_of(config)
        max_span_ms = None
        if retention is not None and retention.retention_bytes >= 0:
            share_bytes = retention.retention_bytes // _SHARE_OF_RETENTION
            target_bytes = min(target_bytes, max(share_bytes, config.segment_bytes))
        if retention is not None and retention.retention_ms >= 0:
            max_span_ms = retention.retention_ms // _SHARE_OF_RETENTION
        if self._index_version() == LEGACY_VERSION:
            target_bytes = min(target_bytes, MAX_LEGACY_POSITION)
        return MergeLimits(
            target_bytes=target_bytes,
            min_segments=settings.merge_min_segments,
            max_span_ms=max_span_ms,
        )

    async def _plan(self, partition: Partition, limits: MergeLimits) -> tuple[SegmentReference, ...]:
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
        return plan_merge(
            [reference for reference in references if reference.last_offset >= log_start_offset],
            limits,
            unreadable=self._unreadable.get(partition, ()),
            taken=self._taken.get(partition, ()),
        )

    async def _carry_out(self, partition: Partition, sources: Sequence[SegmentReference]) -> bool:
        try:
            await self._logs.load(partition)
            merged = await self._merge.create(partition.id, sources, self._index_version())
            replaced = await self._swap.publish(partition, merged, sources)
        except DamagedSourceError as problem:
            logger.error("a segment cannot be read and is not merged", extra={"problem": str(problem)})
            self._unreadable.setdefault(partition, set()).add(problem.source.base_offset)
        except MissingSourceError as problem:
            return await self._missing(partition, problem)
        except KeyTakenError as problem:
            logger.warning("merging other segments instead", extra={"problem": str(problem)})
            ends = (sources[0].base_offset, sources[-1].last_offset)
            self._taken.setdefault(partition, set()).add(ends)
        except FencedError as problem:
            return self._abandon(partition, problem)  # The log learns of it by itself.
        else:
            self._metrics.merges.published(len(replaced), merged.size_bytes if replaced else 0)
            self._logs.reader.forget_segments(partition, replaced)
            self._removals.remove_later(partition, replaced)
            return bool(replaced)
        self._metrics.merges.count(MergeOutcome.FAILED)
        return True

    async def _missing(self, partition: Partition, problem: MissingSourceError) -> bool:
        """Handle a source without an object: it was merged or has expired elsewhere, or is lost."""
        references = partition.references
        named = None if references is None else next(references.from_offset(problem.source.base_offset), None)
        if named != problem.source or not await self._logs.is_leader_still(partition):
            return self._abandon(partition, problem)
        logger.warning("a segment is gone and is not merged", extra={"problem": str(problem)})
        self._unreadable.setdefault(partition, set()).add(problem.source.base_offset)
        self._logs.report_missing(partition, problem.source)
        self._metrics.merges.count(MergeOutcome.FAILED)
        return True

    def _abandon(self, partition: Partition, problem: Exception) -> bool:
        logger.info("abandoned a merge", extra={"partition": str(partition.id), "problem": str(problem)})
        self._metrics.merges.count(MergeOutcome.GIVEN_UP)
        return False
