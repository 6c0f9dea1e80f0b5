"""Composes the life of published segments: merging, retention, removal, garbage collection, lost objects."""

from collections.abc import Callable, Coroutine
from typing import Any

from kafscale.log.checkpointer import Checkpointer
from kafscale.log.life.garbage_collector import GarbageCollector
from kafscale.log.life.log_start import LogStart
from kafscale.log.life.lost_objects import LostObjects
from kafscale.log.life.merger import Merger
from kafscale.log.life.record_deletion import RecordDeletion
from kafscale.log.life.removals import Removals
from kafscale.log.life.retention_enforcer import RetentionEnforcer
from kafscale.log.manager import LogManager
from kafscale.objects.health import ObjectStoreHealth
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.metrics import Metrics
from kafscale.ops.store_health import StoreState
from kafscale.settings.broker import Settings


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
        index_version: Callable[[], int],
    ) -> None:
        namespace = settings.s3_namespace
        self._removals = Removals(logs, objects, namespace)
        log_start = LogStart(logs, checkpointer, self._removals)
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
            is_waiting=self._removals.is_waiting,
            on_listed=self._lost_objects.compare,
            grace_sec=settings.garbage_grace_sec,
            interval_sec=settings.garbage_check_interval_sec,
        )
        self.merger = Merger(objects, logs, checkpointer, self._removals, settings, metrics, index_version)

    def work(self) -> dict[str, Coroutine[Any, Any, None]]:
        """The background loops, by name; they run as long as the broker does."""
        return {
            "garbage collector": self._garbage.run(),
            "retention": self._retention.run(),
            "merger": self.merger.run(),
        }

    async def close(self) -> None:
        """Cancel deletions and searches that are still waiting."""
        await self._removals.close()
        await self._lost_objects.close()
