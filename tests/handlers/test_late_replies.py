"""A leader that has published and does not know it yet: others may have served it, so it must not deny it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

from kafscale.handlers import list_offsets
from kafscale.log.leadership.events import Event
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, MetadataStore, Operation, TransactionResult
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving import store_deadline
from tests.handlers.test_offsets import LATEST, list_offset
from tests.support import wire
from tests.support.faults import Fault, Fuse, FusedMetadataStore
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop


class LateReplies(FusedMetadataStore):
    """Transactions on partitions are applied; while `late`, nobody is told before `tell`."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner, Fuse(0, Fault.UNAVAILABLE))
        self.late = False
        self.applied = 0
        self.tell = asyncio.Event()

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        result = await self._inner.transact(compares, operations)
        if self.late and any(one.key.startswith(keys.PARTITIONS) for one in operations):
            self.applied += 1
            await self.tell.wait()
        return result


@contextlib.asynccontextmanager
async def published_unknown() -> AsyncIterator[tuple[InProcessBroker, LateReplies, Client, str]]:
    """A leader of two records, the second of which is published without its knowing; a client of it."""
    store = LateReplies(MemoryStore())
    async with in_process_broker(metadata=store) as broker, broker.connect() as producer:
        topic = await broker.create_topic()
        await producer.produce(topic, 0, wire.batch([b"known"]))
        store.late = True
        await producer.send_produce(topic, {0: wire.batch([b"published"])})
        await until(lambda: store.applied, "it is published")
        assert broker.partition(topic).record.log_end_offset == 1
        async with broker.connect() as client:
            try:
                yield broker, store, client, topic
            finally:
                store.tell.set()


async def end_of(client: Client, topic: str, leader_epoch: int) -> tuple[int, int]:
    """Error code and end offset of an epoch."""
    wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    one = wanted.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=leader_epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[wanted(topic=topic, partitions=[one])])
    part = (await client.call(request, OffsetForLeaderEpochResponse, 4)).topics[0].partitions[0]
    return part.error_code, part.end_offset


async def after_a_moment(store: LateReplies, asked: Any) -> Any:
    """The answer, which comes only once the leader has been told."""
    task = asyncio.ensure_future(asked)
    await asyncio.sleep(0.05)
    assert not task.done()
    store.tell.set()
    return await task


@on_uvloop
async def test_the_end_of_its_epoch_waits_for_the_publication() -> None:
    async with published_unknown() as (broker, store, client, topic):
        epoch = broker.partition(topic).record.leader_epoch
        assert await after_a_moment(store, end_of(client, topic, epoch)) == (0, 2)


@on_uvloop
async def test_the_latest_offset_waits_for_the_publication() -> None:
    async with published_unknown() as (_, store, client, topic):
        assert (await after_a_moment(store, list_offset(client, topic, LATEST))).offset == 2


@on_uvloop
async def test_what_does_not_depend_on_the_publication_does_not_wait() -> None:
    async with published_unknown() as (broker, store, client, topic):
        epoch = broker.partition(topic).record.leader_epoch
        assert await end_of(client, topic, epoch + 1) == (0, -1)
        assert (await list_offset(client, topic, list_offsets.EARLIEST)).offset == 0
        assert not store.tell.is_set()


@on_uvloop
async def test_a_store_that_does_not_answer_holds_nobody_up_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_offsets, "_PUBLICATION_WAIT_SEC", 0.05)
    monkeypatch.setattr(store_deadline, "STORE_DEADLINE_SEC", 0.05)
    async with published_unknown() as (broker, _, client, topic):
        assert (await list_offset(client, topic, LATEST)).offset == 1
        epoch = broker.partition(topic).record.leader_epoch
        assert await end_of(client, topic, epoch) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)


@on_uvloop
async def test_a_leader_that_learns_that_it_was_replaced_says_so() -> None:
    async with published_unknown() as (broker, store, client, topic):
        epoch = broker.partition(topic).record.leader_epoch
        asked = asyncio.ensure_future(end_of(client, topic, epoch))
        await asyncio.sleep(0.05)
        broker.process.serving.logs._led.apply(broker.partition(topic), Event.FENCED)
        store.tell.set()
        assert await asked == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
