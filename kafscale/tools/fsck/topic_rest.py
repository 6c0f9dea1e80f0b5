"""Deletes what is left of a topic that was deleted, its name held meanwhile.

A new topic of the name would use the same object keys. So the name is taken first, by the record of a topic that
is being deleted (docs/decisions/0008-topic-lifecycle.md). Brokers that run do the rest, as for any such topic;
so does the first that starts, should this end in the middle.
"""

import uuid
from collections.abc import Callable

from kafscale.cluster.topic_deletion import OBJECTS_PER_DELETE
from kafscale.errors import KafscaleError, StoreIndeterminateError
from kafscale.formats import object_keys
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, TopicRecord, TopicState
from kafscale.metadata.store import ABSENT, Compare, Delete, Put
from kafscale.objects.object_store import ObjectInfo
from kafscale.tools.fsck.reading import Reading, is_segment_or_index
from kafscale.tools.recovery.rebuild import patiently

_LEFT_TO_BROKERS = "the topic is marked as being deleted again, and the brokers remove what is left of it"


class TopicRestError(KafscaleError):
    """Some or all of the topic's objects stay; the message says why."""


class TopicRest:
    """Deletes objects of topics of which there is no record."""

    def __init__(self, reading: Reading, new_uuid: Callable[[], uuid.UUID]) -> None:
        self._reading = reading
        self._new_uuid = new_uuid

    async def delete(self, name: str, before_ms: int) -> str:
        """Delete all of it if it is older than `before_ms`, Unix milliseconds; returns what was done.

        Raises `TopicRestError`, `StoreError`.
        """
        objects = await self._list(name)
        self._check(objects, before_ms)
        mark = await self._mark(name)
        if await self._reading.broker_ids():
            return _LEFT_TO_BROKERS
        deleted = 0
        while objects:
            chunk = [info.key for info in objects[:OBJECTS_PER_DELETE]]
            await self._check_mark(mark)
            try:
                await self._reading.objects.delete(chunk)
            except StoreIndeterminateError as problem:
                # The request may still be in flight: the name must stay taken for a while.
                raise TopicRestError(f"{problem}; the first broker that starts goes on") from problem
            deleted += len(chunk)
            objects = objects[OBJECTS_PER_DELETE:] or await self._list(name)
        if not (await self._reading.metadata.transact([mark], [Delete(mark.key)])).succeeded:
            return _LEFT_TO_BROKERS
        return f"{deleted} objects deleted"

    async def _list(self, name: str) -> list[ObjectInfo]:
        namespace = self._reading.namespace
        return [
            info
            for prefix in (
                object_keys.topic_prefix(namespace, name),
                object_keys.checkpoints_topic_prefix(namespace, name),
            )
            async for info in self._reading.objects.list(prefix)
        ]

    @staticmethod
    def _check(objects: list[ObjectInfo], before_ms: int) -> None:
        for info in objects:
            if not is_segment_or_index(info.key) and object_keys.parse_checkpoint_key(info.key) is None:
                raise TopicRestError(
                    f"{info.key} was not put there by a broker: move it away, for all that lies there is deleted"
                )
            if info.modified_ms >= before_ms:
                raise TopicRestError(f"{info.key} is not old enough yet")

    async def _mark(self, name: str) -> Compare:
        """Take the name; returns what holds while it is ours."""
        topic_key, retired_key = keys.topic(name), keys.retired(name)
        record = TopicRecord(
            name=name,
            topic_id=self._new_uuid(),
            partition_count=1,
            state=TopicState.DELETING,
            deleting_broker_id=NO_BROKER,
        )
        value = encode_topic_record(record)
        held, retired = await self._reading.read_metadata(topic_key, retired_key)
        if held is not None or retired is None:
            raise TopicRestError("there is such a topic by now")
        compares = [Compare(topic_key, ABSENT), Compare(retired_key, retired.mod_revision)]
        try:
            result = await self._reading.metadata.transact(compares, [Put(topic_key, value)])
        except StoreIndeterminateError:
            (held,) = await self._reading.read_metadata(topic_key)
            if held is None or held.value != value:
                raise
            return Compare(topic_key, held.mod_revision)
        if not result.succeeded:
            raise TopicRestError("there is such a topic by now")
        return Compare(topic_key, result.revision)

    async def _check_mark(self, mark: Compare) -> None:
        held = await patiently(lambda: self._reading.metadata.get(mark.key))
        if held is None or held.mod_revision != mark.mod_revision:
            raise TopicRestError(_LEFT_TO_BROKERS)
