"""What becomes of published segments, put together: merging, retention, removal, garbage, and lost objects."""

from collections.abc import Callable, Coroutine
from typing import Any

from kafscale.ops.metrics import Metrics
from kafscale.ops.store_health import StoreState
from kafscale.settings import Settings
from kafscale.storage.checkpointer import Checkpointer
from kafscale.storage.expiry.garbage_collector import GarbageCollector
from kafscale.storage.expiry.log_start import LogStart
from kafscale.storage.expiry.lost_objects import LostObjects
from kafscale.storage.expiry.record_deletion import RecordDeletion
from kafscale.storage.expiry.removals import Removals
from kafscale.storage.expiry.retention_enforcer import RetentionEnforcer
from kafscale.storage.log_manager import LogManager
from kafscale.storage.merging.merger import Merger
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.object_store_health import ObjectStoreHealth


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
        logs.on_missing = self._lost_objects.report
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
        """What is to run as long as the broker does, by name."""
        return {
            "garbage collector": self._garbage.run(),
            "retention": self._retention.run(),
            "merger": self.merger.run(),
        }

    async def close(self) -> None:
        """Give up what waits for its time."""
        await self._removals.close()
        await self._lost_objects.close()
