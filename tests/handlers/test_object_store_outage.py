"""Answers to clients while the object store is away, and that everything goes on when it is back."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator

import pytest
from kafka.protocol.admin import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.ops.store_health import StoreState
from kafscale.protocol.error_codes import ErrorCode
from tests.handlers.test_offsets import list_offset
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.outages import Outage, SwitchedObjectStore, hurry

BOTH = pytest.mark.parametrize("outage", list(Outage))
SOON_SEC = 25.0  # default clients wait for 30 s


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


@contextlib.asynccontextmanager
async def broker_with_store() -> AsyncIterator[tuple[InProcessBroker, SwitchedObjectStore, Client]]:
    objects = SwitchedObjectStore()
    try:
        async with (
            in_process_broker(objects=objects, s3_latency_warn_ms=100, s3_latency_crit_ms=500) as broker,
            broker.connect() as client,
        ):
            yield broker, objects, client
            objects.switch.come_back()
    finally:
        objects.switch.come_back()


def health(broker: InProcessBroker) -> StoreState:
    return broker.process.basics.object_store_health.writes.state


async def send_away(broker: InProcessBroker, objects: SwitchedObjectStore, outage: Outage) -> None:
    """Send the store away, and let somebody try, until it is known."""
    objects.switch.go_away(outage)
    async with broker.connect() as client:
        await client.send_produce("trigger", {0: wire.batch([b"x"])}, timeout_ms=1)
        await client.receive_produce()
    process_health = broker.process.basics.object_store_health
    await until(
        lambda: process_health.writes.state is process_health.reads.state is StoreState.UNAVAILABLE,
        "the outage is known",
    )


async def with_trigger(broker: InProcessBroker) -> str:
    await broker.create_topic("trigger")
    return await broker.create_topic()


async def values(client: Client, topic: str) -> list[bytes | None]:
    part = (await client.fetch(topic, {0: 0}, max_wait_ms=0))[0]
    assert part.error_code == 0
    return [value for _, value in wire.records_in(part.records)]


# --- produce


@BOTH
@on_uvloop
async def test_produce_is_refused_in_an_outage_and_accepted_after_it(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"before"]))
        await send_away(broker, objects, outage)
        for acks in (-1, 1):
            began = time.monotonic()
            part = await client.produce(topic, 0, wire.batch([b"refused"]), acks=acks, timeout_ms=60_000)
            assert (part.error_code, part.base_offset) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
            assert time.monotonic() - began < 1
        assert "object store" in part.error_message
        objects.switch.come_back()
        # Nobody produces: the probe alone finds out.
        await until(lambda: health(broker) is StoreState.HEALTHY, "the return is known")
        assert (await client.produce(topic, 0, wire.batch([b"after"]))).error_code == 0
        assert await values(client, topic) == [b"before", b"after"]


@on_uvloop
async def test_what_is_refused_takes_no_memory_and_is_counted() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await send_away(broker, objects, Outage.FAILS)
        waiting_bytes = broker.budget.used_bytes
        for _ in range(20):
            await client.produce(topic, 0, wire.batch([b"x" * 100_000]))
        assert broker.budget.used_bytes == waiting_bytes
        errors = next(api.errors for name, api in broker.metrics.apis.items() if name == "PRODUCE")
        assert errors[ErrorCode.NOT_ENOUGH_REPLICAS] == 20


@on_uvloop
async def test_without_acknowledgement_the_connection_ends_as_in_kafka() -> None:
    async with broker_with_store() as (broker, objects, _):
        topic = await with_trigger(broker)
        await send_away(broker, objects, Outage.FAILS)
        async with broker.connect() as client:
            await client.send_produce(topic, {0: wire.batch([b"dropped"])}, acks=0)
            assert await client.closed_by_peer()


@BOTH
@on_uvloop
async def test_a_waiting_produce_keeps_its_deadline_and_is_stored_once(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        objects.switch.go_away(outage)
        await client.send_produce(topic, {0: wire.batch([b"patient"])}, timeout_ms=60_000)
        async with broker.connect() as other:
            part = await other.produce(topic, 0, wire.batch([b"impatient"]), timeout_ms=300)
            assert part.error_code == ErrorCode.REQUEST_TIMED_OUT
        await send_away(broker, objects, outage)
        objects.switch.come_back()
        _, parts = await client.receive_produce()
        assert (parts[0].error_code, parts[0].base_offset) == (0, 0)
        await until(lambda: broker.partition(topic).record.log_end_offset == 2, "both are published")
        assert await values(client, topic) == [b"patient", b"impatient"]


@on_uvloop
async def test_a_refused_idempotent_producer_keeps_its_sequence() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        first, second = (
            wire.batch([value], producer_id=7, producer_epoch=0, sequence=sequence)
            for sequence, value in enumerate((b"first", b"second"))
        )
        assert (await client.produce(topic, 0, first)).error_code == 0
        await send_away(broker, objects, Outage.FAILS)
        for batch in (first, second, second):
            assert (await client.produce(topic, 0, batch)).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        objects.switch.come_back()
        await until(lambda: health(broker) is StoreState.HEALTHY, "the return is known")
        assert [(await client.produce(topic, 0, batch)).base_offset for batch in (first, second)] == [0, 1]
        assert await values(client, topic) == [b"first", b"second"]


@on_uvloop
async def test_an_illegal_request_is_refused_before_the_outage_is() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await send_away(broker, objects, Outage.FAILS)
        unknown = await client.produce("unknown", 0, wire.batch([b"x"]))
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.produce(topic, 9, wire.batch([b"x"]))).error_code == unknown.error_code
        assert (await client.produce(topic, 0, wire.batch([b"x"]), acks=3)).error_code == (
            ErrorCode.INVALID_REQUIRED_ACKS
        )


@BOTH
@on_uvloop
async def test_a_log_that_cannot_be_opened_keeps_no_client_waiting(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"before"]))
        # As after a start: the record names a checkpoint, which is not read yet.
        partition = broker.partition(topic)
        key = "_kafscale/default/checkpoints/topic/0/00000000000000000001-0-abc.ckpt"
        partition.record = dataclasses.replace(partition.record, checkpoint_key=key)
        partition.log, partition.references = None, None
        objects.switch.go_away(outage)
        began = time.monotonic()
        part = await client.produce(topic, 0, wire.batch([b"x"]), timeout_ms=60_000)
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert time.monotonic() - began < SOON_SEC


# --- reads


@BOTH
@on_uvloop
async def test_cached_reads_go_on(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"cached"]))
        await send_away(broker, objects, outage)
        assert await values(client, topic) == [b"cached"]
        assert (await list_offset(client, topic, -1)).offset == 1
        # A consumer at the end waits as ever.
        began = time.monotonic()
        part = (await client.fetch(topic, {0: 1}, max_wait_ms=300))[0]
        assert (part.error_code, bytes(part.records or b"")) == (0, b"")
        assert time.monotonic() - began >= 0.25


@BOTH
@on_uvloop
async def test_a_fetch_in_an_outage_serves_cached_partitions(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        await with_trigger(broker)
        cold, warm = await broker.create_topic("cold"), await broker.create_topic("warm")
        for topic in (cold, warm):
            await client.produce(topic, 0, wire.batch([topic.encode()]))
        broker.forget_cached(cold)
        await send_away(broker, objects, outage)
        part = (await client.fetch(cold, {0: 0}, max_wait_ms=0))[0]
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert await values(client, warm) == [b"warm"]
        objects.switch.come_back()
        await until(
            lambda: broker.process.basics.object_store_health.state is StoreState.HEALTHY, "it is back"
        )
        assert await values(client, cold) == [b"cold"]


@on_uvloop
async def test_a_load_goes_on_after_its_fetch_has_given_up() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"cold"]))
        broker.forget_cached(topic)
        with objects.hold("read_into") as held:
            began = time.monotonic()
            part = (await client.fetch(topic, {0: 0}))[0]
            assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert time.monotonic() - began < SOON_SEC
            assert held.waiting == 1
        await until(lambda: broker.process.serving.reader.cache.used_bytes, "the segment is in memory")
        objects.switch.go_away(Outage.FAILS)
        assert await values(client, topic) == [b"cold"]


@on_uvloop
async def test_while_reads_fail_the_store_is_left_to_the_probe() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"cold"]))
        broker.forget_cached(topic)
        await send_away(broker, objects, Outage.HANGS)
        before = objects.count("read_into")
        for _ in range(10):
            part = (await client.fetch(topic, {0: 0}, max_wait_ms=0))[0]
            assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert objects.count("read_into") == before


@on_uvloop
async def test_consumers_that_ask_again_at_once_are_slowed_down() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"cold"]))
        broker.forget_cached(topic)
        await send_away(broker, objects, Outage.FAILS)
        began = time.monotonic()
        for _ in range(3):
            part = (await client.fetch(topic, {0: 0}, max_wait_ms=200))[0]
            assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert 0.55 < time.monotonic() - began < SOON_SEC
        # And those that would wait for long hear of it in time.
        began = time.monotonic()
        await client.fetch(topic, {0: 0}, max_wait_ms=30_000)
        assert 0.9 < time.monotonic() - began < SOON_SEC


@BOTH
@on_uvloop
async def test_requests_that_read_from_the_store_are_answered_in_time(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await client.produce(topic, 0, wire.batch([b"a", b"b"], timestamp=[1_000, 2_000]))
        broker.forget_cached(topic)
        objects.switch.go_away(outage)
        began = time.monotonic()
        assert (await list_offset(client, topic, 1_500)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert time.monotonic() - began < SOON_SEC
        objects.switch.come_back()
        assert (await list_offset(client, topic, 1_500)).offset == 1


@BOTH
@on_uvloop
async def test_sizes_that_cannot_be_read_are_an_error_in_time(outage: Outage) -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        partition = broker.partition(topic)
        key = "_kafscale/default/checkpoints/topic/0/00000000000000000001-0-abc.ckpt"
        partition.record = dataclasses.replace(partition.record, checkpoint_key=key)
        partition.log, partition.references = None, None
        objects.switch.go_away(outage)
        request = DescribeLogDirsRequest(topics=None)
        reply = await asyncio.wait_for(client.call(request, DescribeLogDirsResponse, 4), SOON_SEC)
        assert reply.results[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


# --- and everybody else


@on_uvloop
async def test_the_broker_stays_ready_and_says_what_is_wrong() -> None:
    async with broker_with_store() as (broker, objects, _):
        await with_trigger(broker)
        assert broker.process.basics.health.warnings() == {}
        await send_away(broker, objects, Outage.FAILS)
        assert broker.process.basics.health.readiness_problems() == {}
        warning = broker.process.basics.health.warnings()["object_store"]
        assert warning.startswith("UNAVAILABLE for writes: of ")
        objects.switch.come_back()
        await until(lambda: not broker.process.basics.health.warnings(), "the warning is gone")


@on_uvloop
async def test_a_pipeline_is_answered_in_order_through_an_outage() -> None:
    async with broker_with_store() as (broker, objects, client):
        topic = await with_trigger(broker)
        await send_away(broker, objects, Outage.FAILS)
        sent = [await client.send_produce(topic, {0: wire.batch([b"x"])}) for _ in range(5)]
        received = [await client.receive(ProduceResponse, wire.PRODUCE_VERSION) for _ in sent]
        assert [reply.header.correlation_id for reply in received] == sent
