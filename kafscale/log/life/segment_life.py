"""Composes the life of published segments: merging, retention, removal, garbage collection, lost objects."""

from collections.abc import Callable, Coroutine
from typing import Any

from kafscale import clocks
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.entry_reads import EntryReads
from kafscale.log.life.garbage_collector import GarbageCollector
from kafscale.log.life.gatherer import Gatherer
from kafscale.log.life.log_start import LogStart
from kafscale.log.life.lost_objects import LostObjects
from kafscale.log.life.merge_pressure import MergePressure
from kafscale.log.life.merger import Merger
from kafscale.log.life.pace import Pace
from kafscale.log.life.record_deletion import RecordDeletion
from kafscale.log.life.removals import Removals
from kafscale.log.life.retention_enforcer import RetentionEnforcer
from kafscale.log.life.seal_planner import SealLimits
from kafscale.log.life.sealer import PARTITIONS_AT_ONCE, Sealer
from kafscale.log.life.segment_merge import MergePaces, SegmentMerge
from kafscale.log.life.slice_bodies import SliceBodies
from kafscale.log.life.slice_segments import PacedSegments, SliceSegments
from kafscale.log.life.source_reads import SourceReads
from kafscale.log.manager import LogManager
from kafscale.objects.health import ObjectStoreHealth
from kafscale.objects.object_store import ObjectStore
from kafscale.objects.request_meter import SharedCost, unshared
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics
from kafscale.ops.store_health import StoreState
from kafscale.settings.broker import Settings

WORTHWHILE_BYTES = 1024 * 1024
_LEAST_MEMORY_BYTES = 16 * 1024 * 1024
_SEAL_IN_BUCKET_MS = 60_000
_SEAL_IN_FOLDER_MS = 5_000


class SegmentLife:
    """The background work on the partitions that a broker leads. `record_deletion` serves DeleteRecords."""

    def __init__(
        self,
        objects: ObjectStore,
        health: ObjectStoreHealth,
        logs: LogManager,
        checkpointer: Checkpointer,
        settings: Settings,
        metrics: Metrics,
        *,
        cluster_id: str,
        now_ms: Callable[[], int],
        steady_ms: Callable[[], int],
        index_version: Callable[[], int],
        seal_debt_bytes: Callable[[], int],
        is_making: Callable[[str], bool],
        shared_cost: SharedCost = unshared,
    ) -> None:
        namespace = settings.s3_namespace
        self.removals = Removals(logs, objects, namespace)
        log_start = LogStart(
            logs, checkpointer, self.removals, lambda partition: self.sealer.seal_some(partition)
        )
        self.record_deletion = RecordDeletion(log_start)
        self._lost_objects = LostObjects(
            logs,
            objects,
            log_start,
            namespace,
            cluster_id,
            lambda: health.reads.state is StoreState.UNAVAILABLE,
            metrics,
        )
        logs.subscribe_missing(self._lost_objects.report)
        self._retention = RetentionEnforcer(
            logs,
            objects,
            checkpointer,
            log_start,
            namespace,
            now_ms,
            metrics,
            interval_ms=settings.retention_check_interval_ms,
        )
        self._garbage = GarbageCollector(
            objects,
            logs,
            namespace,
            now_ms,
            metrics,
            is_waiting=lambda key: self.removals.is_waiting(key) or is_making(key),
            on_listed=self._lost_objects.compare,
            grace_sec=settings.garbage_grace_sec,
            interval_sec=settings.garbage_check_interval_sec,
        )
        self._reads = EntryReads(objects)
        bodies = SliceBodies(logs.reader, self._reads)
        sources = SourceReads(self._reads, PARTITIONS_AT_ONCE)

        def segments(pace: Pace) -> SliceSegments:
            paces = MergePaces(pace, 1.0, clocks.thread_cpu_sec, MergePressure(PARTITIONS_AT_ONCE))
            merge = SegmentMerge(objects, sources, namespace, paces)
            return SliceSegments(objects, merge, bodies, namespace, now_ms, pace)

        pace = Pace()
        interval_ms = settings.seal_interval_ms
        if interval_ms is None:
            interval_ms = _SEAL_IN_FOLDER_MS if settings.s3_bucket is None else _SEAL_IN_BUCKET_MS
        self.sealer = Sealer(
            logs,
            segments(Pace()),
            PacedSegments(segments(pace), pace, seal_debt_bytes),
            lambda report: Gatherer(
                objects, logs, bodies, namespace, settings.broker_id, now_ms, report, shared_cost
            ),
            SealLimits(worthwhile_bytes=WORTHWHILE_BYTES, max_age_ms=settings.seal_max_age_ms),
            interval_ms,
            max(_LEAST_MEMORY_BYTES, settings.cache_size_bytes // 2),
            steady_ms,
            index_version,
            ItemFailures(BackgroundWork.SEALING, metrics.background_failures),
        )
        logs.subscribe_led(self.sealer.claimed)
        self.merger = Merger(
            objects, logs, checkpointer, self.removals, settings, metrics, index_version, steady_ms
        )

    def work(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The background loops, by name; they run as long as the broker does."""
        return {
            "garbage collector": self._garbage.run(),
            "retention": self._retention.run(),
            "merger": self.merger.run(),
            "sealer": self.sealer.run(),
        }

    async def close(self) -> None:
        """Cancel deletions and searches that are still waiting."""
        await self.removals.close()
        await self._lost_objects.close()
        await self._reads.close()
