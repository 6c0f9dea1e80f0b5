"""Removes the objects of segments that a partition's record names no longer, once no reader wants them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.writing.publisher import FencedError
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Longer than any fetch that may still be reading what the record named until now.
GRACE_SEC = 60.0


class Removals:
    """Objects that are to go, each after a grace period.

    What is still to be removed when the broker stops, or leads no longer, is the garbage collector's.
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
        """Remove the segments, and their indexes, after the grace period. No record names them any more.

        `before` is awaited first. What it raises, as the store does, leaves them to the garbage collector.
        """
        topic, index = partition.id.topic, partition.id.index
        keys = []
        for reference in references:
            key = object_keys.key_of_reference(self._namespace, topic, index, reference)
            keys += [key, object_keys.index_key_of(key)]
        if keys:
            self._tasks.spawn(self._remove(partition, keys, before), f"remove old segments of {partition.id}")

    def is_waiting(self, key: str) -> bool:
        """Whether the object is one of those whose grace period is not over."""
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
            # A topic that was deleted and made again meanwhile has other objects under the same keys.
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
        """Give up what has not been removed yet."""
        await self._tasks.close()
