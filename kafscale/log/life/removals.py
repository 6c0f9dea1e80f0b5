"""Deletes the objects of segments that a partition's record no longer names, once no reader needs them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Longer than any fetch that may still read a segment which the record has just dropped.
GRACE_SEC = 60.0


class Removals:
    """Objects to delete, each after a grace period.

    Those that are left when the broker stops, or resigns, are orphans for the garbage collector.
    """

    def __init__(self, logs: LogManager, objects: ObjectStore, namespace: str) -> None:
        self._logs = logs
        self._objects = objects
        self._namespace = namespace
        self._tasks = TaskOwner()
        self._waiting: set[str] = set()
        self._failures = ItemFailures(BackgroundWork.REMOVALS, logs.metrics.background_failures)

    def remove_later(
        self,
        partition: Partition,
        references: Iterable[SegmentReference],
        before: Callable[[Partition], Awaitable[None]] | None = None,
    ) -> None:
        """Delete the segments, which no record names any more, and their indexes after the grace period.

        An object that other segments may lie in stays.
        `before` is awaited first. If it raises what the stores raise, they are left to the garbage collector.
        """
        topic, index = partition.id.topic, partition.id.index
        keys = []
        for reference in references:
            if object_keys.shares_its_object(reference):
                continue
            key = object_keys.key_of_reference(self._namespace, topic, index, reference)
            keys += [key, object_keys.index_key_of(key)]
        if keys:
            self._tasks.spawn(self._remove(partition, keys, before), f"remove old segments of {partition.id}")

    def is_waiting(self, key: str) -> bool:
        """True if the object is about to be deleted, after its grace period."""
        return key in self._waiting

    async def _remove(
        self,
        partition: Partition,
        keys: Sequence[str],
        before: Callable[[Partition], Awaitable[None]] | None,
    ) -> None:
        self._waiting.update(keys)
        try:
            await asyncio.sleep(GRACE_SEC)
            if before is not None and partition.is_led:
                await before(partition)
            # A topic that was deleted and created again meanwhile has other objects under the same keys.
            if await self._logs.is_leader_still(partition):
                await self._objects.delete(keys)
        except (StoreError, CorruptDataError, FencedError) as problem:
            logger.warning(
                "could not remove old segments", extra={"problem": str(problem), "objects": len(keys)}
            )
        except Exception as problem:  # noqa: BLE001 - reported
            self._failures.report(partition.id, problem)
        finally:
            self._waiting.difference_update(keys)

    async def close(self) -> None:
        """Cancel the deletions that are still waiting."""
        await self._tasks.close()
