"""Fetches at brokers that do not lead: the same bytes, the same waits, and where consumers are sent."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsResponse
from kafka.protocol.consumer import FetchResponse

from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.faults import Away, Fault, Fuse, FusedMetadataStore, Interruption
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.sealing import store_record
from tests.support.topics import create_topics_request
from tests.support.waiting import PATIENCE_SEC

LONG_MS = 60_000
TOPIC = "orders"
RACKS = {1: "a", 2: "b"}


@dataclass
class Pair:
    """Two brokers; `leader` leads partition `index`, and `reader` does not."""

    leader: InProcessBroker
    reader: InProcessBroker
    index: int
    producer: Client
    consumer: Client
    """At the reader."""

    async def produce(self, *values: bytes) -> int:
        part = await self.producer.produce(TOPIC, self.index, wire.batch(list(values)))
        assert part.error_code == 0
        return int(part.base_offset)

    async def fetch(self, client: Client, offset: int, rack: str = "", **limits: int) -> Any:
        request = wire.fetch_request(TOPIC, {self.index: offset}, **limits)
        request.rack_id = rack
        reply = await client.call(request, FetchResponse, wire.FETCH_VERSION)
        return reply.responses[0].partitions[0]

    async def waits(self, broker: InProcessBroker) -> None:
        """Until a fetch waits at the broker."""

        def listened() -> bool:
            partition = broker.process.serving.logs.readable(TOPIC, self.index)
            return partition is not None and partition.has_listeners

        await until(listened, "the fetch waits")

    async def reader_knows(self, end_offset: int) -> None:
        """Until the reader has heard of what is published below the offset: the leader reports it a moment later."""
        followed = await self.reader.process.serving.logs.follow(TOPIC, self.index)
        await until(lambda: followed and followed.high_watermark >= end_offset, "the reader catches up")


@contextlib.asynccontextmanager
async def pair(metadata_of_reader: FusedMetadataStore | None = None) -> AsyncIterator[Pair]:
    metadata, objects = MemoryStore(), ControlledStore()
    if metadata_of_reader is not None:
        metadata_of_reader._inner = metadata
    async with (
        in_process_broker(metadata=metadata, objects=objects, broker_id=1, rack=RACKS[1]) as leader,
        in_process_broker(
            metadata=metadata_of_reader or metadata, objects=objects, broker_id=2, rack=RACKS[2]
        ) as reader,
        leader.connect() as producer,
        reader.connect() as consumer,
    ):
        await create(leader, reader)
        (index,) = [index for index in (0, 1) if leader.process.serving.logs.partition(TOPIC, index)]
        yield Pair(leader, reader, index, producer, consumer)


async def create(leader: InProcessBroker, reader: InProcessBroker) -> None:
    """A topic of which each of them leads a partition."""
    async with leader.connect() as client:
        request = create_topics_request(TOPIC, 2, None)
        reply = (await client.call(request, CreateTopicsResponse, 7)).topics[0]
        assert reply.error_code == 0, reply
    for broker in (leader, reader):
        await until(lambda: broker.process.serving.logs.partition_count == 1, "each leads one")  # noqa: B023
        view = broker.process.serving.view
        await view.wait_until(lambda: len(view.leaders(TOPIC)) == 2)  # noqa: B023


@on_uvloop
async def test_every_broker_serves_the_same_bytes() -> None:
    async with pair() as both:
        for number in range(5):
            await both.produce(b"%d" % number, b"and more")
        await both.reader_knows(10)
        here = await both.fetch(both.producer, 0)
        for offset in range(0, 10, 2):
            there = await both.fetch(both.consumer, offset)
            assert there.error_code == 0
            assert bytes(here.records).endswith(bytes(there.records))
            assert len(wire.records_in(there.records)) == 10 - offset
        assert (there.high_watermark, there.log_start_offset) == (10, 0)
        part = await both.consumer.produce(TOPIC, both.index, wire.batch([b"x"]))
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_a_fetch_at_a_follower_ends_with_the_next_publication() -> None:
    async with pair() as both:
        await both.consumer.send_fetch(TOPIC, {both.index: 0}, max_wait_ms=LONG_MS)
        await both.waits(both.reader)
        await both.produce(b"fresh")
        part = (await both.consumer.receive_fetch())[both.index]
        assert wire.records_in(part.records) == [(0, b"fresh")]
        await both.consumer.send_fetch(TOPIC, {both.index: 1}, max_wait_ms=LONG_MS, min_bytes=1000)
        await both.waits(both.reader)
        await both.produce(b"little")
        await both.produce(bytes(1000))
        part = (await both.consumer.receive_fetch())[both.index]
        assert [offset for offset, _ in wire.records_in(part.records)] == [1, 2]


@on_uvloop
async def test_led_and_followed_partitions_wait_together() -> None:
    async with pair() as both:
        await both.consumer.send_fetch(TOPIC, {0: 0, 1: 0}, max_wait_ms=LONG_MS)
        await both.waits(both.reader)
        await both.produce(b"x")
        parts = await both.consumer.receive_fetch()
        assert [parts[index].error_code for index in (0, 1)] == [0, 0]
        assert wire.records_in(parts[both.index].records) == [(0, b"x")]


@on_uvloop
async def test_an_offset_above_the_end_is_out_of_range_at_each_broker() -> None:
    """A broker that does not lead looks at the leader's journal first: it may hold what was not reported yet."""
    async with pair() as both:
        await both.produce(b"a", b"b")
        await both.reader_knows(2)
        for client in (both.producer, both.consumer):
            for offset in (3, 2**63 - 1, -1):
                part = await both.fetch(client, offset, max_wait_ms=LONG_MS)
                assert (part.error_code, part.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
            part = await both.fetch(client, 2, max_wait_ms=0)
            assert (part.error_code, part.high_watermark) == (0, 2)


@on_uvloop
async def test_a_stale_broker_checks_the_store_before_out_of_range() -> None:
    async with pair() as both:
        assert (await both.fetch(both.consumer, 0, max_wait_ms=0)).error_code == 0
        followed = both.reader.process.serving.logs._followed
        followed._followed[TOPIC, both.index].task.cancel()
        followed._journals.detach(followed._followed[TOPIC, both.index].partition)
        await both.produce(b"a", b"b")
        await store_record(both.leader.process.serving.log_parts, both.leader.partition(TOPIC, both.index))
        part = await both.fetch(both.consumer, 1)
        assert wire.records_in(part.records) == [(0, b"a"), (1, b"b")]
        assert part.high_watermark == 2


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, 0), (0, 0), (1, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
@on_uvloop
async def test_the_leader_epoch_is_checked_elsewhere_too(epoch: int, code: int) -> None:
    async with pair() as both:
        for _ in range(2):  # as it begins to be followed, and as it is
            request = wire.fetch_request(TOPIC, {both.index: 0}, max_wait_ms=0)
            request.topics[0].partitions[0].current_leader_epoch = epoch
            reply = await both.consumer.call(request, FetchResponse, 11)
            assert reply.responses[0].partitions[0].error_code == code


@on_uvloop
async def test_what_cannot_be_looked_up_is_to_be_asked_of_the_leader() -> None:
    fuse = Fuse(0, Fault.UNAVAILABLE)
    metadata = FusedMetadataStore(MemoryStore(), fuse)
    async with pair(metadata) as both:
        await both.produce(b"x")
        metadata._fuse = Away()
        part = await both.fetch(both.consumer, 0, max_wait_ms=0)
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        metadata._fuse = fuse
        part = await both.fetch(both.consumer, 0)
        assert wire.records_in(part.records) == [(0, b"x")]
        # What is followed already is served without the store.
        metadata._fuse = Away()
        part = await both.fetch(both.consumer, 0)
        assert wire.records_in(part.records) == [(0, b"x")]
        assert (await both.fetch(both.consumer, 5)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        metadata._fuse = fuse


@on_uvloop
async def test_an_unreadable_record_does_not_end_the_connection() -> None:
    async with pair() as both:
        key = keys.partition(TOPIC, both.index)
        await both.leader.metadata.transact([], [Put(key, b"not a record")])
        for _ in range(2):
            part = await both.fetch(both.consumer, 0)
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        part = await both.fetch(both.producer, 7)
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# --- when the leader changes


@on_uvloop
async def test_a_consumer_of_a_stopping_leader_misses_nothing() -> None:
    async with pair() as both, both.leader.connect() as waits_here, both.reader.connect() as waits_there:
        await both.produce(b"before")
        await both.reader_knows(1)
        for client in (waits_here, waits_there):
            await client.send_fetch(TOPIC, {both.index: 1}, max_wait_ms=LONG_MS)
        for broker in (both.leader, both.reader):
            await both.waits(broker)
        with both.leader.objects.hold("put_if_absent", "*.entry") as hold:
            await both.producer.send_produce(TOPIC, {both.index: wire.batch([b"in progress"])})
            await hold.reached()
            stopping = asyncio.create_task(both.leader.stop())
            await until(lambda: not both.leader.partition(TOPIC, both.index).is_led, "the leader hands over")
            hold.release()
            assert (await both.producer.receive_produce())[1][both.index].base_offset == 1
        for client in (waits_here, waits_there):
            part = (await client.receive_fetch())[both.index]
            values = [value for _, value in wire.records_in(part.records)] if part.records else []
            assert part.error_code in (0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            assert values in ([], [b"in progress"])
        assert await stopping == 0
        await until(
            lambda: both.reader.process.serving.logs.partition(TOPIC, both.index), "the other one leads"
        )
        part = await both.fetch(both.consumer, 0)
        assert [value for _, value in wire.records_in(part.records)] == [b"before", b"in progress"]
        assert (await both.consumer.produce(TOPIC, both.index, wire.batch([b"x"]))).base_offset == 2


@on_uvloop
async def test_a_partition_lost_during_a_lookup_ends_the_wait() -> None:
    fuse = Fuse(0, Fault.UNAVAILABLE)
    metadata = FusedMetadataStore(MemoryStore(), fuse)
    async with pair(metadata) as both:
        logs = both.reader.process.serving.logs
        lost = both.reader.partition(TOPIC, 1 - both.index)
        metadata._fuse = Interruption(1, lambda: logs.resign(lost))
        await both.consumer.send_fetch(TOPIC, {0: 0, 1: 0}, max_wait_ms=LONG_MS)
        parts = await both.consumer.receive_fetch()
        assert parts[1 - both.index].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert parts[both.index].error_code == 0


# --- zones (KIP-392)


@on_uvloop
async def test_a_leader_sends_consumers_to_a_broker_of_their_zone() -> None:
    async with pair() as both:
        await both.produce(b"x")
        part = await both.fetch(both.producer, 0, rack=RACKS[2], max_wait_ms=LONG_MS)
        assert (part.error_code, part.preferred_read_replica) == (0, 2)
        assert bytes(part.records or b"") == b""
        assert part.high_watermark == 1
        for client, rack in (
            (both.producer, RACKS[1]),  # its own zone
            (both.producer, "c"),  # nobody is there
            (both.producer, ""),
            (both.consumer, RACKS[2]),  # who was sent here is served
            (both.consumer, RACKS[1]),
        ):
            part = await both.fetch(client, 0, rack=rack)
            assert part.preferred_read_replica == -1
            assert wire.records_in(part.records) == [(0, b"x")]


@on_uvloop
async def test_no_consumer_is_sent_to_a_broker_that_is_gone() -> None:
    async with pair() as both:
        await both.produce(b"x")
        await both.reader.stop()
        await until(lambda: both.leader.process.serving.logs.partition_count == 2, "the leader is alone")
        part = await both.fetch(both.producer, 0, rack=RACKS[2])
        assert part.preferred_read_replica == -1
        assert wire.records_in(part.records) == [(0, b"x")]


@on_uvloop
async def test_a_stopping_broker_names_other_brokers_before_it_closes() -> None:
    """A client that only finds its connection closed may take that for an error, and give up its partitions."""
    metadata, objects = MemoryStore(), ControlledStore()
    async with (
        in_process_broker(metadata=metadata, objects=objects, broker_id=1) as stays,
        in_process_broker(
            metadata=metadata, objects=objects, broker_id=2, shutdown_linger_ms=10_000
        ) as stops,
    ):
        async with stops.connect() as client:
            await create(stays, stops)
            (index,) = [index for index in (0, 1) if stops.process.serving.logs.partition(TOPIC, index)]
            stops.stop_signal.set()
            await until(lambda: stays.process.serving.logs.partition(TOPIC, index), "it is handed over")
            answer = await client.produce(TOPIC, index, wire.batch([b"too late"]))
            assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert not stops.running.done()
        async with asyncio.timeout(PATIENCE_SEC):  # the last connection has gone
            assert await stops.running == 0
