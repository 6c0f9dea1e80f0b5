"""Answers to clients while the metadata store is away, and that everything goes on when it is back."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import InitProducerIdRequest, InitProducerIdResponse

from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_offsets import delete_before, list_offset
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.outages import Outage, SwitchedMetadataStore, hurry
from tests.support.topics import create_topics_request

BOTH = pytest.mark.parametrize("outage", list(Outage))
SOON_SEC = 25.0  # default clients wait for 30 s
GROUP = "group"
# What every client takes for a reason to try again.
RETRIABLE = {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS,
}


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@contextlib.asynccontextmanager
async def broker_with_store() -> AsyncIterator[tuple[InProcessBroker, SwitchedMetadataStore, Client]]:
    metadata = SwitchedMetadataStore()
    try:
        async with (
            in_process_broker(
                metadata=metadata,
                offsets_commit_timeout_ms=300,
                group_initial_rebalance_delay_ms=0,
                group_min_session_timeout_ms=1000,
                auto_create_topics=True,
            ) as broker,
            broker.connect() as client,
        ):
            yield broker, metadata, client
            metadata.switch.come_back()
    finally:
        metadata.switch.come_back()


async def in_time(call: Any, within_sec: float = SOON_SEC) -> Any:
    """The answer, which comes before a client would lose its patience."""
    return await asyncio.wait_for(call, within_sec)


# --- requests


async def commit(client: Client, topic: str, offset: int) -> int:
    topic_row = OffsetCommitRequest.OffsetCommitRequestTopic
    partition = topic_row.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=GROUP,
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[topic_row(name=topic, partitions=[partition])],
    )
    reply = await in_time(client.call(request, OffsetCommitResponse, 8))
    code: int = reply.topics[0].partitions[0].error_code
    return code


async def committed(client: Client, topic: str) -> tuple[int, int]:
    """Error code and offset."""
    topic_row = OffsetFetchRequest.OffsetFetchRequestTopic
    request = OffsetFetchRequest(
        group_id=GROUP, topics=[topic_row(name=topic, partition_indexes=[0])], require_stable=False
    )
    reply = await in_time(client.call(request, OffsetFetchResponse, 7))
    if reply.error_code:
        return reply.error_code, -1
    return 0, reply.topics[0].partitions[0].committed_offset


async def join(client: Client, group: str, member_id: str = "") -> Any:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        group_instance_id=None,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
        reason=None,
    )
    return await client.call(request, JoinGroupResponse, 5)


async def sync(client: Client, group: str, member_id: str, generation: int) -> int:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=None,
        protocol_type=None,
        protocol_name=None,
        assignments=[SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"mine")],
    )
    code: int = (await in_time(client.call(request, SyncGroupResponse, 3))).error_code
    return code


async def heartbeat(client: Client, group: str, member_id: str, generation: int) -> int:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member_id, group_instance_id=None
    )
    code: int = (await in_time(client.call(request, HeartbeatResponse, 3))).error_code
    return code


async def member_of(client: Client, group: str) -> tuple[str, int]:
    """Join a group and become its only, stable member; gives member id and generation."""
    asked = await join(client, group)
    joined = await join(client, group, asked.member_id)
    assert joined.error_code == 0
    assert await sync(client, group, joined.member_id, joined.generation_id) == 0
    return joined.member_id, joined.generation_id


async def topic_errors(client: Client, *names: str) -> list[int]:
    topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    reply = await in_time(client.call(request, MetadataResponse, 9))
    return [topic.error_code or max(part.error_code for part in topic.partitions) for topic in reply.topics]


async def producer_id(client: Client) -> Any:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    return await in_time(client.call(request, InitProducerIdResponse, 1))


# --- published data


@BOTH
@on_uvloop
async def test_published_data_stays_readable_warm_and_cold(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"a", b"b"], timestamp=[1_000, 2_000]))
        metadata.switch.go_away(outage)
        for _ in range(2):
            part = (await in_time(client.fetch(topic, {0: 0})))[0]
            assert [value for _, value in wire.records_in(part.records)] == [b"a", b"b"]
            broker.forget_cached(topic)
        assert await topic_errors(client, topic) == [0]
        assert (await in_time(list_offset(client, topic, -1))).offset == 2
        assert (await in_time(list_offset(client, topic, 1_500))).offset == 1


@BOTH
@on_uvloop
async def test_produce_goes_on_in_an_outage_and_is_stored_once(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"0"]))
        metadata.switch.go_away(outage)
        part = await in_time(client.produce(topic, 0, wire.batch([b"1"])))
        assert (part.error_code, part.base_offset) == (0, 1)
        part = (await in_time(client.fetch(topic, {0: 1}, max_wait_ms=100)))[0]
        assert (part.error_code, part.high_watermark) == (0, 2)
        assert wire.records_in(part.records) == [(1, b"1")]
        metadata.switch.come_back()
        assert (await client.produce(topic, 0, wire.batch([b"2"]))).base_offset == 2
        found = wire.records_in((await client.fetch(topic, {0: 0}))[0].records)
        assert found == [(0, b"0"), (1, b"1"), (2, b"2")]


@BOTH
@on_uvloop
async def test_an_idempotent_retry_in_an_outage_is_stored_once(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        batch = wire.batch([b"once"], producer_id=3, producer_epoch=0, sequence=0)
        metadata.switch.go_away(outage)
        for _ in range(3):
            part = await in_time(client.produce(topic, 0, batch))
            assert (part.error_code, part.base_offset) == (0, 0)
        metadata.switch.come_back()
        assert (await client.produce(topic, 0, batch)).base_offset == 0
        assert wire.records_in((await client.fetch(topic, {0: 0}))[0].records) == [(0, b"once")]


@BOTH
@on_uvloop
async def test_the_object_store_is_not_blamed(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        metadata.switch.go_away(outage)
        await client.produce(topic, 0, wire.batch([b"1"]), timeout_ms=500)
        assert broker.process.basics.health.warnings() == {}
        assert broker.process.basics.health.readiness_problems() == {}


@BOTH
@on_uvloop
async def test_records_are_deleted_by_the_deadline_or_later(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"0", b"1"]))
        metadata.switch.go_away(outage)
        code, _ = await in_time(delete_before(client, topic, 1, timeout_ms=300))
        assert code == ErrorCode.REQUEST_TIMED_OUT
        metadata.switch.come_back()
        assert await in_time(delete_before(client, topic, 1)) == (0, 1)


# --- topics


@BOTH
@on_uvloop
async def test_changes_of_topics_are_answered_at_their_deadline(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        metadata.switch.go_away(outage)
        create = create_topics_request("new", 1, None)
        create.timeout_ms = 1_000
        grow_topic = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=2, assignments=None)
        grow = CreatePartitionsRequest(topics=[grow_topic], timeout_ms=1_000, validate_only=False)
        delete = DeleteTopicsRequest(topics=[], topic_names=[topic], timeout_ms=1_000)
        created = await in_time(client.call(create, CreateTopicsResponse, 7))
        grown = await in_time(client.call(grow, CreatePartitionsResponse, 2))
        deleted = await in_time(client.call(delete, DeleteTopicsResponse, 5))
        assert created.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert grown.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert deleted.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert await topic_errors(client, topic, "new") == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        metadata.switch.come_back()
        assert (await client.call(grow, CreatePartitionsResponse, 2)).results[0].error_code == 0
        code = (await client.call(create, CreateTopicsResponse, 7)).topics[0].error_code
        # The attempt that hung may have come true by now.
        assert code in (0, ErrorCode.TOPIC_ALREADY_EXISTS)
        await until(lambda: broker.process.serving.logs.partition("new", 0) is not None, "the topic is led")
        assert (await client.produce("new", 0, wire.batch([b"x"]))).base_offset == 0


# --- producers


@BOTH
@on_uvloop
async def test_a_new_producer_gets_a_retriable_error(outage: Outage) -> None:
    async with broker_with_store() as (_, metadata, client):
        metadata.switch.go_away(outage)
        assert (await producer_id(client)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        metadata.switch.come_back()
        first, second = await producer_id(client), await producer_id(client)
        assert first.error_code == second.error_code == 0
        assert first.producer_id != second.producer_id
        # Of a block that is there already, ids are given without the store.
        metadata.switch.go_away(outage)
        assert (await producer_id(client)).error_code == 0


# --- groups


@BOTH
@on_uvloop
async def test_commits_are_answered_at_their_deadline_and_not_lost(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        assert await commit(client, topic, 1) == 0
        metadata.switch.go_away(outage)
        assert await commit(client, topic, 2) in RETRIABLE
        code, _ = await committed(client, topic)
        assert code in RETRIABLE
        metadata.switch.come_back()
        assert await commit(client, topic, 3) == 0
        assert await committed(client, topic) == (0, 3)


@BOTH
@on_uvloop
async def test_a_stable_group_is_not_disturbed(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        member_id, generation = await member_of(client, GROUP)
        metadata.switch.go_away(outage)
        for _ in range(5):
            assert await heartbeat(client, GROUP, member_id, generation) == 0
            await asyncio.sleep(0.1)
        metadata.switch.come_back()
        assert await heartbeat(client, GROUP, member_id, generation) == 0
        assert await commit(client, await broker.create_topic(), 1) in (0, ErrorCode.UNKNOWN_MEMBER_ID)


@BOTH
@on_uvloop
async def test_a_new_generation_waits_for_the_store_until_its_deadline(outage: Outage) -> None:
    async with broker_with_store() as (_, metadata, client):
        await member_of(client, "warm-up")
        metadata.switch.go_away(outage)
        asked = await in_time(join(client, GROUP))
        joined = await in_time(join(client, GROUP, asked.member_id))
        assert joined.error_code == 0
        code = await sync(client, GROUP, joined.member_id, joined.generation_id)
        assert code in RETRIABLE
        metadata.switch.come_back()

        async def is_stable() -> bool:
            again = await in_time(join(client, GROUP, joined.member_id))
            member_id = again.member_id if again.error_code == 0 else joined.member_id
            return again.error_code == 0 and await sync(client, GROUP, member_id, again.generation_id) == 0

        deadline = time.monotonic() + SOON_SEC
        while not await is_stable():
            assert time.monotonic() < deadline


@BOTH
@on_uvloop
async def test_who_coordinates_is_known_without_the_store(outage: Outage) -> None:
    async with broker_with_store() as (_, metadata, client):
        metadata.switch.go_away(outage)
        request = FindCoordinatorRequest(key="", key_type=0, coordinator_keys=[GROUP])
        reply = await in_time(client.call(request, FindCoordinatorResponse, 4))
        assert [(one.error_code, one.node_id) for one in reply.coordinators] == [(0, 0)]


@BOTH
@on_uvloop
async def test_a_group_is_deleted_by_the_deadline_or_told_to_try_again(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        assert await commit(client, topic, 1) == 0
        metadata.switch.go_away(outage)
        request = DeleteGroupsRequest(groups_names=[GROUP])
        reply = await in_time(client.call(request, DeleteGroupsResponse, 2))
        assert reply.results[0].error_code in RETRIABLE
        metadata.switch.come_back()
        code = (await in_time(client.call(request, DeleteGroupsResponse, 2))).results[0].error_code
        # The attempt that hung may have come true by now.
        assert code in (0, ErrorCode.GROUP_ID_NOT_FOUND)
        assert await committed(client, topic) == (0, -1)


# --- for long


@BOTH
@on_uvloop
async def test_everything_resumes_when_the_lease_has_ended_meanwhile(outage: Outage) -> None:
    async with broker_with_store() as (broker, metadata, client):
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"before"]))
        metadata.switch.go_away(outage)
        await metadata._inner.revoke_lease(broker.process.basics.registration.lease)
        part = (await in_time(client.fetch(topic, {0: 0})))[0]
        assert [value for _, value in wire.records_in(part.records)] == [b"before"]
        metadata.switch.come_back()

        deadline = time.monotonic() + 3 * SOON_SEC
        while (await client.produce(topic, 0, wire.batch([b"after"]), timeout_ms=500)).error_code:
            assert time.monotonic() < deadline
        part = (await client.fetch(topic, {0: 0}))[0]
        assert wire.records_in(part.records)[0] == (0, b"before")
        assert await commit(client, topic, 1) == 0
