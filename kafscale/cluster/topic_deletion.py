"""Carries out the deletion of topics: fence, remove the objects, free the name.

A topic marked `DELETING` names the broker that removes it. That broker, and after its end another one,
works through the steps; each can be repeated, and the name is free only after the last. Where it names none,
because it was marked while none ran, the first that comes takes it:

1. close the topic's partitions here, so that nothing of ours is in flight, and leave a marker for rebuilds, since
   slices of the topic may lie in journals;
2. remove its partition records and leader keys and, in the same transactions, keep the highest leader epoch
   under `retired/`: from here on no broker can publish to or claim the topic;
3. delete its segments, indexes and checkpoints, and the markers that its logs had still to get;
4. delete the topic record, if it is still as this broker marked it. Where a request to delete objects may
   still be in flight (one of unknown outcome, or of an earlier run or another broker whose removal this one
   goes on with), this waits before that, and looks again for objects: the next topic of the name uses the
   same keys.

See docs/decisions/0008-topic-lifecycle.md.
"""

import asyncio
import contextlib
import dataclasses
import logging
import uuid
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Protocol

from kafscale.cluster.view import ClusterView
from kafscale.errors import ObjectExistsError, StoreError, StoreIndeterminateError
from kafscale.formats.journal_keys import deleted_key
from kafscale.formats.object_keys import checkpoints_topic_prefix, topic_prefix
from kafscale.formats.partition_record import decode_partition_record
from kafscale.formats.topic_record import (
    decode_retired_epoch,
    decode_topic_record,
    encode_retired_epoch,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, TopicRecord, TopicState
from kafscale.metadata.store import ABSENT, Compare, Delete, KeyValue, MetadataStore, Operation, Put
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.owner import TaskOwner

_log = logging.getLogger(__name__)

NO_EPOCH: Final = -1
"""The leader epoch of a partition that no broker has led: the first leader gets 0."""

OBJECTS_PER_DELETE: Final = 1000


DOUBT_GRACE_SEC: Final = 60.0
"""How long a name stays taken when a request to delete objects of the topic may still be in flight."""


DEFECT_DELAY_SEC: Final = 30.0
"""When a deletion that met a bad record, or a defect, is tried again."""


class PartitionCloser(Protocol):
    """Closes a topic's partitions on this broker (the log manager)."""

    async def close_topic(self, name: str) -> None:
        """Serve the topic's partitions no longer and return once nothing of them is being written.

        What waits for a flush is answered with an error. No error when the topic is not open.
        """


class TopicDeletion:
    """Removes the topics that the cluster view shows as `DELETING` and that are this broker's to remove."""

    def __init__(
        self,
        store: MetadataStore,
        objects: ObjectStore,
        view: ClusterView,
        closer: PartitionCloser,
        *,
        broker_id: int,
        namespace: str,
        retry_delay_sec: float = 0.5,
        grace_sec: float = DOUBT_GRACE_SEC,
        failures: Counter[str] | None = None,
    ) -> None:
        self._store = store
        self._objects = objects
        self._view = view
        self._closer = closer
        self._broker_id = broker_id
        self._namespace = namespace
        self._retry_delay_sec = retry_delay_sec
        self._grace_sec = grace_sec
        self._in_doubt: set[uuid.UUID] = set()
        self._failures = ItemFailures(BackgroundWork.TOPIC_DELETION, failures)
        self._tasks = TaskOwner()
        self._unsubscribe: list[Callable[[], None]] = []

    def start(self) -> None:
        """Remove from now on what is marked, also what was marked before: deletions that a stop cut short."""
        self._unsubscribe = [
            self._view.subscribe(lambda before, after: self._consider(after)),
            self._view.subscribe_brokers(self._consider_all),
        ]
        # What is marked for this broker by now, an earlier run of it has begun to remove.
        self._in_doubt.update(
            topic.topic_id
            for topic in self._view.topics(include_deleting=True)
            if topic.deleting_broker_id != NO_BROKER and self._is_ours(topic)
        )
        self._consider_all()

    async def close(self) -> None:
        """Stop; what is not finished is taken up at the next start, or by another broker."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        self._unsubscribe = []
        await self._tasks.close()

    def _consider_all(self) -> None:
        for topic in self._view.topics(include_deleting=True):
            self._consider(topic)

    def _consider(self, topic: TopicRecord | None) -> None:
        if topic is None or topic.name in self._tasks or not self._is_ours(topic):
            return
        task = self._tasks.spawn(self._run(topic), f"delete-topic-{topic.name}", key=topic.name)
        task.add_done_callback(lambda _: self._ended(topic))

    def _ended(self, topic: TopicRecord) -> None:
        if self._unsubscribe:
            current = self._view.topic(topic.name, include_deleting=True)
            if current is not None and current.topic_id != topic.topic_id:
                self._consider(current)  # the name came back and was deleted again meanwhile

    def _is_ours(self, topic: TopicRecord) -> bool:
        """True if this broker removes the topic: it is named, or the named one is gone and this one is live."""
        if topic.state is not TopicState.DELETING:
            return False
        if topic.deleting_broker_id == self._broker_id:
            return True
        return (
            self._view.broker(self._broker_id) is not None
            and self._view.broker(topic.deleting_broker_id) is None
        )

    async def _run(self, topic: TopicRecord) -> None:
        while True:
            try:
                if await self._remove(topic):
                    return
            except StoreError as problem:
                _log.warning("deletion of topic %s is held up, trying again: %s", topic.name, problem)
                await asyncio.sleep(self._retry_delay_sec)
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report(topic.name, problem)
                await asyncio.sleep(DEFECT_DELAY_SEC)

    async def _remove(self, topic: TopicRecord) -> bool:
        """One attempt; False when something changed meanwhile and it is to be repeated."""
        mark = await self._own(topic)
        if mark is None:
            return True
        await self._closer.close_topic(topic.name)
        await self._mark_deleted(topic)
        if not await self._remove_partitions(topic.name, mark):
            return False
        if not await self._remove_all_objects(topic, mark):
            return False
        if topic.topic_id in self._in_doubt:
            await asyncio.sleep(self._grace_sec)
            if not await self._remove_all_objects(topic, mark):
                return False
            self._in_doubt.discard(topic.topic_id)
        if not await self._remove_markers(topic.name, mark):
            return False
        result = await self._store.transact([mark], [Delete(mark.key)])
        if result.succeeded:
            _log.info("deleted topic %s, id %s", topic.name, topic.topic_id)
        return result.succeeded

    async def _own(self, topic: TopicRecord) -> Compare | None:
        """The compare that is true while this broker removes the topic; None when it does not, or no longer.

        A removal that another broker left is taken over by a write, so that the other, should it still run,
        fails at its next step.
        """
        key = keys.topic(topic.name)
        held = await self._store.get(key)
        if held is None:
            return None
        current = decode_topic_record(key, held.value)
        if current.topic_id != topic.topic_id or not self._is_ours(current):
            return None
        if current.deleting_broker_id == self._broker_id:
            return Compare(key, held.mod_revision)
        if current.deleting_broker_id != NO_BROKER:
            self._in_doubt.add(topic.topic_id)
        taken = dataclasses.replace(current, deleting_broker_id=self._broker_id)
        result = await self._store.transact(
            [Compare(key, held.mod_revision)], [Put(key, encode_topic_record(taken))]
        )
        return Compare(key, result.revision) if result.succeeded else None

    async def _mark_deleted(self, topic: TopicRecord) -> None:
        """Slices of the topic may lie in journals for a while: a rebuild from the bucket leaves them out."""
        with contextlib.suppress(ObjectExistsError):
            await self._objects.put_if_absent(
                deleted_key(self._namespace, topic.topic_id), [topic.name.encode()]
            )

    async def _remove_partitions(self, name: str, mark: Compare) -> bool:
        """Step 2. False when a record changed meanwhile."""
        items = (await self._store.range(keys.partitions(name))).items
        room = (self._store.max_operations - 1) // 2
        for start in range(0, len(items), room):
            if not await self._retire(name, mark, items[start : start + room]):
                return False
        return True

    async def _retire(self, name: str, mark: Compare, items: Sequence[KeyValue]) -> bool:
        key = keys.retired(name)
        held = await self._store.get(key)
        epochs = [decode_partition_record(item.key, item.value).leader_epoch for item in items]
        if held is not None:
            epochs.append(decode_retired_epoch(key, held.value))
        compares = [mark, Compare(key, ABSENT if held is None else held.mod_revision)]
        operations: list[Operation] = [Put(key, encode_retired_epoch(max(epochs)))]
        for item in items:
            compares.append(Compare(item.key, item.mod_revision))
            operations.append(Delete(item.key))
            operations.append(Delete(keys.leader(*keys.topic_and_partition(item.key))))
        return (await self._store.transact(compares, operations)).succeeded

    async def _remove_markers(self, name: str, mark: Compare) -> bool:
        """The ends of transactions that no log will get. False when the removal is no longer ours."""
        items = (await self._store.range(keys.topic_partition_markers(name))).items
        room = self._store.max_operations - 1
        for start in range(0, len(items), room):
            deletes = [Delete(item.key) for item in items[start : start + room]]
            if not (await self._store.transact([mark], deletes)).succeeded:
                return False
        return True

    async def _remove_all_objects(self, topic: TopicRecord, mark: Compare) -> bool:
        """Segments, indexes and checkpoints. False when the removal is no longer ours."""
        for prefix in (
            topic_prefix(self._namespace, topic.name),
            checkpoints_topic_prefix(self._namespace, topic.name),
        ):
            if not await self._remove_objects(prefix, topic, mark):
                return False
        return True

    async def _remove_objects(self, prefix: str, topic: TopicRecord, mark: Compare) -> bool:
        """Step 3. False when the removal is no longer ours: the name may be in use again.

        Looked up again before each call that deletes, so that a broker that was held up does not go on
        deleting where another has finished and a new topic has begun.
        """
        before: list[str] = []
        while object_keys := await self._some_objects(prefix):
            if object_keys == before:
                raise StoreIndeterminateError(f"{object_keys[0]!r} is listed after its deletion")
            held = await self._store.get(mark.key)
            if held is None or held.mod_revision != mark.mod_revision:
                return False
            try:
                await self._objects.delete(object_keys)
            except StoreIndeterminateError:
                self._in_doubt.add(topic.topic_id)
                raise
            before = object_keys
        return True

    async def _some_objects(self, prefix: str) -> list[str]:
        found: list[str] = []
        listing = self._objects.list(prefix)
        try:
            async for item in listing:
                found.append(item.key)
                if len(found) == OBJECTS_PER_DELETE:
                    break
        finally:
            if isinstance(listing, AsyncGenerator):
                await listing.aclose()
        return found
