"""DeleteRecords: the log start offset moves up in the record, what lies below it goes later."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace

from kafscale.errors import CorruptDataError, StoreError
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.storage import object_keys
from kafscale.storage.log_manager import LogManager
from kafscale.storage.object_store import ObjectStore
from kafscale.storage.partition import Partition
from kafscale.storage.publisher import FencedError

logger = logging.getLogger(__name__)

HIGH_WATERMARK = -1
# Longer than any fetch that may still be reading what is dropped.
GRACE_SEC = 60.0


class RecordDeletion:
    """Moves log start offsets and removes the segments below them after a grace period.

    What is still to be removed when the broker stops, or leads no longer, is the garbage collector's.
    """

    def __init__(self, logs: LogManager, objects: ObjectStore, namespace: str) -> None:
        self._logs = logs
        self._objects = objects
        self._namespace = namespace
        self._removals: set[asyncio.Task[None]] = set()

    async def delete_before(self, partition: Partition, offset: int) -> int:
        """Make `offset` (-1: the high watermark) the log start offset unless it is higher; returns the result.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE and NOT_LEADER_OR_FOLLOWER.
        """
        if not partition.is_led:
            raise _not_led(partition)
        log = await self._logs.open(partition)
        async with partition.record_lock:
            if log is None or partition.log is not log:
                raise _not_led(partition)
            record = partition.record
            wanted = record.log_end_offset if offset == HIGH_WATERMARK else offset
            if not 0 <= wanted <= record.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} of {partition.id} is not within 0 to {record.log_end_offset}",
                )
            if wanted <= record.log_start_offset:
                return record.log_start_offset
            after = replace(
                record,
                log_start_offset=wanted,
                segments=tuple(segment for segment in record.segments if segment.last_offset >= wanted),
            )
            try:
                revision = await self._logs.publisher.write_record(partition, after)
            except FencedError as fenced:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(fenced)) from fenced
            partition.publish(after, revision)
            log.adopt(after)
        self._remove_later(partition, wanted)
        return wanted

    def _remove_later(self, partition: Partition, offset: int) -> None:
        assert partition.references is not None
        keys = []
        for reference in partition.references.drop_below(offset):
            key = reference.object_key or object_keys.segment_key(
                self._namespace, partition.id.topic, partition.id.index, reference.base_offset
            )
            keys += [key, object_keys.index_key_of(key)]
        if keys:
            task = asyncio.create_task(
                self._remove(partition, keys), name=f"remove old segments of {partition.id}"
            )
            self._removals.add(task)
            task.add_done_callback(self._removals.discard)

    async def _remove(self, partition: Partition, keys: Sequence[str]) -> None:
        await asyncio.sleep(GRACE_SEC)
        try:
            # A topic that was deleted and made again meanwhile has other objects under the same keys.
            if await self._logs.is_leader_still(partition):
                await self._objects.delete(keys)
        except (StoreError, CorruptDataError) as problem:
            logger.warning(
                "could not remove old segments", extra={"problem": str(problem), "objects": len(keys)}
            )

    async def close(self) -> None:
        """Give up what has not been removed yet."""
        for task in self._removals:
            task.cancel()
        await asyncio.gather(*self._removals, return_exceptions=True)


def _not_led(partition: Partition) -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition.id}")
