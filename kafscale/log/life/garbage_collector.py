"""The leader's search for orphans: segments that no record ever named, that were merged, or that have expired.

garbage.py decides what an orphan is. The order matters: the objects are listed first, then this broker checks in
the metadata store that it still leads, and only then it compares them with the references. A listed object that
no reference names by then will never be named.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats import object_keys
from kafscale.log.life.garbage import candidates, garbage
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.objects.object_store import ObjectInfo, ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics

logger = logging.getLogger(__name__)

# A search lists whole partitions: one after the other, with a pause between them.
_PAUSE_SEC = 0.1
_LISTED_AT_ONCE = 1000


class GarbageCollector:
    """Searches the partitions that this broker leads, periodically.

    `is_waiting`: true for an object that is deleted elsewhere, after its grace period, and for one that is about to
    be published. `on_listed` is called with the first `.kfs` key of each partition, None if there is none.
    """

    def __init__(
        self,
        objects: ObjectStore,
        logs: LogManager,
        namespace: str,
        now_ms: Callable[[], int],
        metrics: Metrics,
        *,
        is_waiting: Callable[[str], bool] = lambda key: False,
        on_listed: Callable[[Partition, str | None], None] = lambda partition, first_key: None,
        grace_sec: int,
        interval_sec: float,
    ) -> None:
        self._objects = objects
        self._logs = logs
        self._namespace = namespace
        self._now_ms = now_ms
        self._metrics = metrics
        self._is_waiting = is_waiting
        self._on_listed = on_listed
        self._grace_ms = grace_sec * 1000
        self._interval_sec = interval_sec
        self._failures = ItemFailures(BackgroundWork.GARBAGE, metrics.background_failures)

    async def run(self) -> None:
        """Search until cancelled."""
        while True:
            await asyncio.sleep(self._interval_sec)
            for partition in tuple(self._logs.partitions()):
                if partition.is_led:
                    await self._try(partition)
                    await asyncio.sleep(_PAUSE_SEC)

    async def _try(self, partition: Partition) -> None:
        try:
            await self.collect(partition)
        except (StoreError, CorruptDataError) as problem:
            logger.info(
                "could not look for garbage, looking again later",
                extra={"partition": str(partition.id), "problem": str(problem)},
            )
        except Exception as problem:  # noqa: BLE001 - reported
            self._failures.report(partition.id, problem)

    async def collect(self, partition: Partition) -> int:
        """Delete the partition's orphans; returns how many. Raises `StoreError`, `CorruptDataError`."""
        removed = 0
        prefix = object_keys.partition_prefix(self._namespace, partition.id.topic, partition.id.index)
        listing = self._objects.list(prefix)
        listed: list[ObjectInfo] = []
        first_key: str | None = None
        try:
            async for info in listing:
                if first_key is None and info.key.endswith(".kfs"):
                    first_key = info.key
                listed.append(info)
                if len(listed) == _LISTED_AT_ONCE:
                    removed += await self._collect_listed(partition, listed)
                    listed = []
        finally:
            if isinstance(listing, AsyncGenerator):
                await listing.aclose()
        removed += await self._collect_listed(partition, listed)
        self._on_listed(partition, first_key)
        return removed

    async def _collect_listed(self, partition: Partition, listed: Sequence[ObjectInfo]) -> int:
        before_ms = self._now_ms() - self._grace_ms
        found = candidates(listed, partition.record.log_end_offset, before_ms)
        if not found:
            return 0
        await self._logs.load(partition)
        if not await self._logs.is_leader_still(partition) or partition.references is None:
            return 0
        leader_epoch = partition.record.leader_epoch
        unwanted = garbage(found, partition.references, leader_epoch)
        keys = [key for key in unwanted if not self._is_waiting(key)]
        if keys:
            await self._objects.delete(keys)
            self._metrics.garbage_removed += len(keys)
            logger.info(
                "removed objects that nothing refers to",
                extra={"partition": str(partition.id), "objects": len(keys), "first": keys[0]},
            )
        return len(keys)
