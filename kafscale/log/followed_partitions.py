"""Partitions that another broker leads and consumers read here: each kept equal to its record by a watch."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from kafscale.cache.single_flight import SingleFlight
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import PartitionRecord, decode_partition_record, is_same_log
from kafscale.log.journal.followed_journal import JournalReader
from kafscale.log.journal.followed_journals import FollowedJournals
from kafscale.log.partition import Partition
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, MetadataStore, Snapshot
from kafscale.ops.journal_metrics import JournalMetrics
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

# Consumers read more often than this; a partition that none reads would cost a watch.
IDLE_SEC = 300.0
_RETRY_DELAY_SEC = 0.5
_CATCH_UP_SEC = 2.0
"""A partition that is about to be followed waits so long for what its leader's journal has, if stores are slow."""
_CATCH_UP_ATTEMPTS = 3
_READS_AT_ONCE = 64

TopicPartition = tuple[str, int]

MakePartition = Callable[[str, int, PartitionRecord, int], Partition | None]
"""Of topic, number, record and its revision; None when there is no such topic any more."""


@dataclass(slots=True)
class _Followed:
    partition: Partition
    task: "asyncio.Task[None]"
    used_at_sec: float


class FollowedPartitions:
    """Partitions by name. `make` makes the partition of a record; `is_current` is false once its topic was deleted.

    `changes` grows with each partition that begins or ceases to be followed.
    """

    def __init__(
        self,
        store: MetadataStore,
        make: MakePartition,
        is_current: Callable[[Partition], bool],
        journals: JournalReader,
        idle_sec: float = IDLE_SEC,
        metrics: JournalMetrics | None = None,
    ) -> None:
        """`journals`: the way to what leaders have in their journals."""
        self._journals = FollowedJournals(store, journals, self._read_record_again, metrics)
        self._store = store
        self._make = make
        self._is_current = is_current
        self._idle_sec = idle_sec
        self.changes = 0
        self._followed: dict[TopicPartition, _Followed] = {}
        self._beginnings: SingleFlight[TopicPartition, Partition | None] = SingleFlight()
        self._reads = asyncio.Semaphore(_READS_AT_ONCE)
        self._watches = TaskOwner()
        self._sweep: asyncio.TimerHandle | None = None

    def __iter__(self) -> Iterator[Partition]:
        return iter([followed.partition for followed in self._followed.values()])

    def __len__(self) -> int:
        return len(self._followed)

    def get(self, topic: str, index: int) -> Partition | None:
        """The partition if it is followed already."""
        followed = self._followed.get((topic, index))
        if followed is None:
            return None
        followed.used_at_sec = asyncio.get_running_loop().time()
        return followed.partition

    async def follow(self, topic: str, index: int) -> Partition | None:
        """The partition, followed from now on; None if it has no record.

        It has what was published when following began, unless a store is slow or does not answer. Raises
        `StoreError`, `CorruptDataError`.
        """
        return self.get(topic, index) or await self._beginnings.run(
            (topic, index), lambda: self._begin(topic, index)
        )

    async def _begin(self, topic: str, index: int) -> Partition | None:
        found = await self._get(topic, index)
        partition = None if found is None else self._make(topic, index, *found)
        if partition is None:
            return None
        await self._catch_up_at_first(partition)
        if not self._is_current(partition):
            # Deleted meanwhile, when `drop_topic` found nothing to drop: another topic may have the name.
            self._journals.detach(partition)
            return None
        loop = asyncio.get_running_loop()
        task = self._watches.spawn(self._watch(partition), f"follow {partition.id}")
        self._followed[topic, index] = _Followed(partition, task, loop.time())
        self._journals.attach(partition)
        self.changes += 1
        if self._sweep is None:
            self._sweep = loop.call_later(self._idle_sec, self._drop_idle)
        return partition

    async def _catch_up_at_first(self, partition: Partition) -> None:
        try:
            async with asyncio.timeout(_CATCH_UP_SEC):
                # A leader that is gone delays the first of these reads, not each.
                await self._journals.catch_up(partition, _CATCH_UP_SEC)
        except (StoreError, CorruptDataError, TimeoutError) as problem:
            logger.warning(
                "a partition is followed before all of it is known",
                extra={"partition": str(partition.id), "problem": str(problem) or "timed out"},
            )
        except BaseException:
            self._journals.detach(partition)
            raise

    async def catch_up(self, partition: Partition) -> bool:
        """Apply everything that was published before this call; True if nothing can be missing.

        Waits until the leader has reported it. Raises `StoreError`, `CorruptDataError`.
        """
        for _ in range(_CATCH_UP_ATTEMPTS):
            revision = partition.revision
            if not self._is_followed(partition):
                return False
            await self._journals.catch_up(partition)
            found = await self.read(partition)
            if (
                found is None
                or not self._is_followed(partition)
                or not is_same_log(found[0], partition.record)
            ):
                return False
            if found[1] == partition.revision == revision:
                # The slices were applied behind the record as it still is: none of them was collected before.
                return True
            self._apply(partition, *found)
        return False

    def _is_followed(self, partition: Partition) -> bool:
        followed = self._followed.get((partition.id.topic, partition.id.index))
        return followed is not None and followed.partition is partition and partition.is_followed

    def _apply(self, partition: Partition, record: PartitionRecord, revision: int) -> None:
        partition.follow(record, revision)
        # Slices that came before the record may follow it.
        self._journals.detach(partition)
        self._journals.attach(partition)

    async def _watch(self, partition: Partition) -> None:
        topic, index = partition.id.topic, partition.id.index
        while True:
            try:
                async with aclosing(self._store.watch_key(keys.partition(topic, index))) as events:
                    async for event in events:
                        changes = event.items if isinstance(event, Snapshot) else event.puts_and_deletes
                        if not _take(partition, changes):
                            self.drop(topic, index)
                            return
                        self._journals.attach(partition)
            except StoreError as problem:
                logger.warning(
                    "the watch of a partition broke, beginning it again",
                    extra={"partition": str(partition.id), "problem": str(problem)},
                )
            except Exception:
                # A record that cannot be read, or a defect: the next reader follows the partition again.
                logger.exception("cannot follow a partition", extra={"partition": str(partition.id)})
                self.drop(topic, index)
                return
            await asyncio.sleep(_RETRY_DELAY_SEC)

    async def read(self, partition: Partition) -> tuple[PartitionRecord, int] | None:
        """The partition's record as it is now, and its revision. Raises `StoreError`, `CorruptDataError`."""
        return await self._get(partition.id.topic, partition.id.index)

    async def _get(self, topic: str, index: int) -> tuple[PartitionRecord, int] | None:
        async with self._reads:
            found = await self._store.get(keys.partition(topic, index))
        if found is None:
            return None
        return decode_partition_record(found.key, found.value), found.mod_revision

    def _read_record_again(self, partition: Partition) -> None:
        if partition not in self._watches:
            self._watches.spawn(self._read_and_follow(partition), f"read {partition.id}", key=partition)

    async def _read_and_follow(self, partition: Partition) -> None:
        try:
            found = await self.read(partition)
        except (StoreError, CorruptDataError) as problem:
            logger.warning(
                "could not read a record", extra={"partition": str(partition.id), "problem": str(problem)}
            )
            return
        if found is not None and partition.is_followed and is_same_log(found[0], partition.record):
            self._apply(partition, *found)

    def drop(self, topic: str, index: int) -> None:
        """Stop following the partition, and notify its listeners."""
        followed = self._followed.pop((topic, index), None)
        if followed is not None:
            self._journals.detach(followed.partition)
            self.changes += 1
            if followed.task is not asyncio.current_task():
                followed.task.cancel()
            followed.partition.notify_closed()

    def drop_if(self, partition: Partition) -> None:
        """Stop following the partition, unless another one is followed in its place by now."""
        followed = self._followed.get((partition.id.topic, partition.id.index))
        if followed is not None and followed.partition is partition:
            self.drop(partition.id.topic, partition.id.index)

    def drop_topic(self, topic: str) -> None:
        """Stop following the topic's partitions."""
        for name, index in [followed for followed in self._followed if followed[0] == topic]:
            self.drop(name, index)

    def _drop_idle(self) -> None:
        loop = asyncio.get_running_loop()
        before_sec = loop.time() - self._idle_sec
        for (topic, index), followed in list(self._followed.items()):
            if followed.used_at_sec <= before_sec and not followed.partition.has_listeners:
                self.drop(topic, index)
        self._sweep = loop.call_later(self._idle_sec, self._drop_idle) if self._followed else None

    async def close(self) -> None:
        """Stop following all partitions."""
        await self._beginnings.close()
        if self._sweep is not None:
            self._sweep.cancel()
        for topic, index in list(self._followed):
            self.drop(topic, index)
        await self._watches.close()
        await self._journals.close()


def _take(partition: Partition, changes: Sequence[KeyValue | Delete]) -> bool:
    """Apply the last change; False if the partition is no longer the one that was followed."""
    if not changes or any(isinstance(change, Delete) for change in changes):
        return False
    newest = changes[-1]
    assert isinstance(newest, KeyValue)
    record = decode_partition_record(newest.key, newest.value)
    if newest.mod_revision > partition.revision and not is_same_log(record, partition.record):
        return False  # Its topic was deleted and is there again.
    partition.follow(record, newest.mod_revision)
    return True
