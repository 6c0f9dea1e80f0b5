"""Clients that exceed a quota: what they are told, when they are read again, and that no other client is slowed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.formats.quota_record import DEFAULT, QuotaEntity, encode_quotas, quota_key
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, Put
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quota_kinds import QuotaKind
from tests.support import wire
from tests.support.driven_connection import DrivenConnection
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.topics import create_topics_request

ANYONE = QuotaEntity(client_id=DEFAULT)
WINDOW_SEC = 0.05
BATCH = wire.batch([b"x" * 1000])
ONE_BATCH = len(BATCH) / (10 * WINDOW_SEC)
"""A rate at which one batch is all that a client has at once, and a request is more than that."""


@asynccontextmanager
async def broker_with(
    entity: QuotaEntity = ANYONE, *, window_sec: float = WINDOW_SEC, **quotas: float
) -> AsyncIterator[InProcessBroker]:
    """A broker whose quotas are measured over half a second, so that no client waits for long."""
    async with in_process_broker(quota_window_num=11, quota_window_size_seconds=window_sec) as broker:
        await broker.create_topic()
        if quotas:
            await set_quotas(broker, entity, **quotas)
        yield broker


async def set_quotas(broker: InProcessBroker, entity: QuotaEntity, **quotas: float) -> None:
    key = quota_key(entity)
    change = Put(key, encode_quotas(quotas)) if quotas else Delete(key)
    result = await broker.metadata.transact([], [change])
    await broker.process.serving.view.wait_for(result.revision, keys.QUOTAS)


def throttled(broker: InProcessBroker, kind: QuotaKind) -> int:
    return sum(broker.metrics.throttle(kind).delay.counts)


async def produce(client: Client, *, version: int = wire.PRODUCE_VERSION, acks: int = -1) -> Any:
    request = wire.produce_request("topic", {0: BATCH}, acks=acks)
    return await client.call(request, ProduceResponse, version)


async def fetch(client: Client, offset: int = 0, **limits: int) -> Any:
    request = wire.fetch_request("topic", {0: offset}, **limits)
    return await client.call(request, FetchResponse, wire.FETCH_VERSION)


async def metadata(client: Client) -> Any:
    return await client.call(MetadataRequest(topics=None), MetadataResponse, 12)


def fetched_bytes(reply: Any) -> int:
    return sum(len(part.records or b"") for topic in reply.responses for part in topic.partitions)


class Stopwatch:
    def __init__(self) -> None:
        self._started = time.monotonic()

    def ms(self) -> float:
        return (time.monotonic() - self._started) * 1000


@on_uvloop
async def test_producer_above_its_quota_is_throttled_and_waits() -> None:
    # Ten windows' worth at once, and a batch more: two windows and a little to wait.
    async with broker_with(producer_byte_rate=ONE_BATCH) as broker:
        async with broker.connect() as client, broker.connect() as other:
            watch = Stopwatch()
            reply = await produce(client)
            assert reply.responses[0].partition_responses[0].error_code == 0
            throttle_ms = reply.throttle_time_ms
            assert 0 < throttle_ms < 10_000
            sent = await client.send(MetadataRequest(topics=None), 12)
            # Other connections of the same client are read, until they exceed the quota themselves.
            assert (await metadata(other)).throttle_time_ms == 0
            answered = await client.receive(MetadataResponse, 12)
            assert answered.header.correlation_id == sent
            assert watch.ms() >= throttle_ms
            assert answered.throttle_time_ms == 0
        assert throttled(broker, QuotaKind.PRODUCE) == 1
        assert broker.metrics.connections.muted == 0


@on_uvloop
async def test_producer_within_its_quota_does_not_wait() -> None:
    async with broker_with(producer_byte_rate=10**9) as broker, broker.connect() as client:
        for _ in range(20):
            assert (await produce(client)).throttle_time_ms == 0
        assert throttled(broker, QuotaKind.PRODUCE) == 0


@on_uvloop
async def test_producer_without_acks_is_muted_too() -> None:
    async with broker_with(producer_byte_rate=ONE_BATCH) as broker, broker.connect() as client:
        watch = Stopwatch()
        for _ in range(2):
            await client.send_produce("topic", {0: BATCH}, acks=0)
        await client.send(MetadataRequest(topics=None), 12)
        await client.receive(MetadataResponse, 12)
        assert throttled(broker, QuotaKind.PRODUCE) == 2
        assert watch.ms() >= 10 * WINDOW_SEC * 1000


@pytest.mark.parametrize("version", [3, 8, 9])
@on_uvloop
async def test_pipelined_requests_wait_in_the_socket(version: int) -> None:
    """One at a time is taken, each after the throttle time of the one before, and all are answered in order."""
    async with broker_with(producer_byte_rate=ONE_BATCH) as broker:
        driven = DrivenConnection(broker)
        frames = b"".join(frame(index, version) for index in range(3))
        driven.feed(frames)
        assert throttled(broker, QuotaKind.PRODUCE) == 1
        replies = await driven.next_frames(3)
        assert [int.from_bytes(reply[:4], "big") for reply in replies] == [0, 1, 2]
        assert throttled(broker, QuotaKind.PRODUCE) == 3
        await driven.end()


def frame(correlation_id: int, version: int) -> bytes:
    request = wire.produce_request("topic", {0: BATCH})
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id="tests")
    return bytes(request.encode(framed=True, header=True))


@on_uvloop
async def test_fetch_above_its_quota_is_answered_empty() -> None:
    async with broker_with() as broker, broker.connect() as client:
        for _ in range(20):
            await produce(client)
        whole = fetched_bytes(await fetch(client))
        assert whole > 20_000
        await set_quotas(broker, ANYONE, consumer_byte_rate=30_000 / (10 * WINDOW_SEC))
        first = await fetch(client)
        assert (fetched_bytes(first), first.throttle_time_ms) == (whole, 0)
        counted = broker.metrics.topic("topic").bytes_out
        second = await fetch(client)
        assert (second.responses, second.error_code) == ([], 0)
        assert second.throttle_time_ms > 0
        assert throttled(broker, QuotaKind.FETCH) == 1
        assert broker.metrics.topic("topic").bytes_out == counted
        watch = Stopwatch()
        while not fetched_bytes(await fetch(client)):
            assert throttled(broker, QuotaKind.FETCH) < 20
        assert watch.ms() >= second.throttle_time_ms - 5


@on_uvloop
async def test_fetch_is_limited_to_what_its_quota_allows() -> None:
    async with broker_with() as broker, broker.connect() as client:
        for _ in range(20):
            await produce(client)
        await set_quotas(broker, ANYONE, consumer_byte_rate=5000 / (10 * WINDOW_SEC))
        reply = await fetch(client, min_bytes=15_000, max_wait_ms=10_000)
        assert 1000 < fetched_bytes(reply) <= 5000
        assert reply.throttle_time_ms == 0


@on_uvloop
async def test_batch_above_the_whole_quota_is_fetched() -> None:
    """In Kafka a consumer whose quota is below one batch never gets it."""
    async with broker_with() as broker, broker.connect() as client:
        await produce(client)
        await set_quotas(broker, ANYONE, consumer_byte_rate=500 / (10 * WINDOW_SEC))
        reply = await fetch(client)
        assert fetched_bytes(reply) > 1000
        assert reply.throttle_time_ms > 0


@on_uvloop
async def test_every_api_shows_the_throttle_time_of_requests() -> None:
    async with broker_with(request_percentage=1e-6) as broker:
        for request, response, version in (
            (MetadataRequest(topics=None), MetadataResponse, 12),
            (ListGroupsRequest(), ListGroupsResponse, 4),
            (
                ApiVersionsRequest(client_software_name="t", client_software_version="1"),
                ApiVersionsResponse,
                3,
            ),
            (wire.produce_request("topic", {0: BATCH}), ProduceResponse, wire.PRODUCE_VERSION),
            (wire.fetch_request("topic", {0: 0}), FetchResponse, wire.FETCH_VERSION),
        ):
            async with broker.connect() as client:
                reply = await client.call(request, response, version)
                # As in Kafka at most one window.
                assert 0 < reply.throttle_time_ms <= WINDOW_SEC * 1000, response
                assert (await client.call(request, response, version)).throttle_time_ms > 0
        assert throttled(broker, QuotaKind.REQUEST) == 10


@on_uvloop
async def test_request_that_waits_uses_no_time() -> None:
    async with broker_with(request_percentage=50.0) as broker, broker.connect() as client:
        for _ in range(3):
            reply = await fetch(client, min_bytes=1, max_wait_ms=150)
            assert reply.throttle_time_ms == 0


async def create(client: Client, name: str, version: int, partitions: int = 1) -> Any:
    reply = await client.call(create_topics_request(name, partitions, None), CreateTopicsResponse, version)
    return reply.topics[0].error_code, reply.throttle_time_ms


@on_uvloop
async def test_mutations_above_the_quota_are_refused() -> None:
    async with (
        broker_with(controller_mutation_rate=10 / (11 * WINDOW_SEC)) as broker,
        broker.connect() as client,
    ):
        # What is there may be overdrawn once.
        assert await create(client, "a", 7, 5) == (ErrorCode.NONE, 0)
        assert await create(client, "b", 7, 9) == (ErrorCode.NONE, 0)
        code, throttle_ms = await create(client, "c", 7)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < throttle_ms <= 11 * WINDOW_SEC * 1000
        assert broker.process.serving.view.topic("c") is None
        # The next request is not read before the quota is there again.
        assert await create(client, "c", 7) == (ErrorCode.NONE, 0)
        assert throttled(broker, QuotaKind.MUTATION) == 1


@on_uvloop
async def test_deletions_and_new_partitions_are_mutations() -> None:
    one_at_once = 1 / (11 * WINDOW_SEC)
    async with (
        broker_with(controller_mutation_rate=one_at_once) as broker,
        broker.connect() as first,
        broker.connect() as second,
        broker.connect() as third,
    ):
        assert await create(first, "a", 7, 20) == (ErrorCode.NONE, 0)
        delete = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name="a", topic_id=None)], timeout_ms=10_000
        )
        reply = await second.call(delete, DeleteTopicsResponse, 6)
        assert reply.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.CreatePartitionsTopic(name="a", count=21, assignments=None)],
            timeout_ms=10_000,
            validate_only=False,
        )
        grown = await third.call(grow, CreatePartitionsResponse, 3)
        assert grown.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert grown.throttle_time_ms > 5000
        assert broker.metrics.connections.muted == 2


@on_uvloop
async def test_old_clients_mutations_are_done_and_delayed() -> None:
    async with (
        broker_with(controller_mutation_rate=10 / (11 * WINDOW_SEC)) as broker,
        broker.connect() as client,
    ):
        code, throttle_ms = await create(client, "a", 5, 15)
        assert code == ErrorCode.NONE
        assert throttle_ms > 0
        assert throttled(broker, QuotaKind.MUTATION) == 1


@on_uvloop
async def test_refused_mutations_do_not_count() -> None:
    async with (
        broker_with(controller_mutation_rate=1 / (11 * WINDOW_SEC)) as broker,
        broker.connect() as client,
    ):
        for _ in range(5):
            code, throttle_ms = await create(client, "topic", 7, 10)  # It is there.
            assert (code, throttle_ms) == (ErrorCode.TOPIC_ALREADY_EXISTS, 0)


@on_uvloop
async def test_connections_above_the_rate_are_closed_later() -> None:
    quota = QuotaEntity(ip="127.0.0.1")
    async with broker_with(quota, window_sec=1, connection_creation_rate=0.4) as broker:
        taken = []
        for _ in range(4):
            async with broker.connect() as client:
                taken.append((await metadata(client)).cluster_id)
        assert len(taken) == 4
        async with broker.connect() as client:
            watch = Stopwatch()
            await client.send(MetadataRequest(topics=None), 12)
            assert await client.closed_by_peer()
            assert watch.ms() >= 990
        assert throttled(broker, QuotaKind.CONNECTION) == 1
        assert broker.metrics.connections.rejected == 0
        await set_quotas(broker, quota)
        async with broker.connect() as client:
            assert (await metadata(client)).cluster_id
        await until(lambda: broker.connection_count == 0, "all are gone")


@on_uvloop
async def test_removed_quota_applies_no_more() -> None:
    async with broker_with(producer_byte_rate=1) as broker:
        assert broker.process.basics.quotas.are_any
        await set_quotas(broker, ANYONE)
        async with broker.connect() as client:
            for _ in range(3):
                assert (await produce(client)).throttle_time_ms == 0


@on_uvloop
async def test_muted_connections_end_with_the_broker() -> None:
    async with broker_with(producer_byte_rate=1) as broker, broker.connect() as client:
        assert (await produce(client)).throttle_time_ms > 60_000
        await client.send(MetadataRequest(topics=None), 12)
        watch = Stopwatch()
        assert await broker.stop() == 0
        assert await client.closed_by_peer()
        assert watch.ms() < 30_000
        assert broker.metrics.connections.muted == 0


@on_uvloop
async def test_muted_client_that_leaves_is_forgotten() -> None:
    async with broker_with(producer_byte_rate=1) as broker:
        async with broker.connect() as client:
            await produce(client)
            assert broker.metrics.connections.muted == 1
        await until(lambda: broker.connection_count == 0, "the client is gone")
        assert broker.metrics.connections.muted == 0


@on_uvloop
async def test_muted_connection_is_not_idle() -> None:
    async with broker_with(producer_byte_rate=1) as broker:
        driven = DrivenConnection(broker)
        driven.feed(frame(1, 9))
        await driven.next_frames(1)
        now_sec = asyncio.get_running_loop().time()
        assert not driven.connection.is_idle_since(now_sec + 10**6)
        driven.connection.mute.close()
        assert driven.connection.is_idle_since(now_sec + 10**6)
        await driven.end()


@on_uvloop
async def test_unmuted_connection_is_not_idle_at_once() -> None:
    async with broker_with(producer_byte_rate=ONE_BATCH) as broker:
        driven = DrivenConnection(broker)
        driven.feed(frame(1, 9))
        before_sec = asyncio.get_running_loop().time()
        await until(lambda: not driven.connection.mute.is_on, "the throttle time is over")
        await driven.next_frames(1)
        assert not driven.connection.is_idle_since(before_sec)
        await driven.end()
