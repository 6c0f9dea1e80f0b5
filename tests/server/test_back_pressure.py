"""Memory is bounded whatever clients do, and whoever is held up for it goes on when it is free again."""

import asyncio
import struct
from contextlib import AsyncExitStack
from typing import cast

import pytest
from kafka.protocol.consumer import FetchResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse
from kafka.protocol.producer import ProduceResponse

from kafscale.cluster.view import ClusterView
from kafscale.log.reading import reply_memory
from kafscale.memory.memory_budget import MemoryBudget
from kafscale.ops.request_stages import ProduceStages
from kafscale.server.frames import MIN_ROOM_BYTES
from kafscale.server.listener import RECEIVE_BUFFER_BYTES, SMALL_RECEIVE_BUFFER_BYTES
from kafscale.serving.context import ClientSoftware, Reply, RequestContext
from kafscale.serving.pending_produce import PendingProduce
from kafscale.serving.produce_purgatory import ProducePurgatory
from kafscale.serving.sequence_error_check import SequenceErrorCheck
from tests.support import wire
from tests.support.driven_connection import DrivenConnection
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

MIB = 1024 * 1024
AN_HOUR_MS = 3_600_000


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def frames_only() -> Client:
    return Client(None)  # type: ignore[arg-type]


def value(number: int, size_bytes: int) -> bytes:
    """Bytes that tell where they belong."""
    return struct.pack(">I", number) * (size_bytes // 4)


async def fill_budget(broker: InProcessBroker, client: Client, topic: str) -> int:
    """Produce until the budget has no room; the caller holds back the uploads. Returns how many requests."""
    count = 0
    while broker.budget.has_room:
        before = broker.budget.used_bytes
        await client.send_produce(topic, {0: wire.batch([value(count, 200_000)])})
        count += 1
        await until(lambda: broker.budget.used_bytes > before + 150_000, "the request has come")  # noqa: B023
    return count


# --- producers


@on_uvloop
async def test_producers_wait_for_the_budget_and_resume_after_a_flush() -> None:
    async with in_process_broker(buffer_bytes=MIB) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as first, broker.connect() as second, broker.connect() as consumer:
            await first.produce(topic, 0, wire.batch([b"readable"]))
            with broker.objects.hold("put_if_absent", "*.entry") as hold:
                count = await fill_budget(broker, first, topic)
                await hold.reached()
                frame = second.frame(wire.produce_request(topic, {0: wire.batch([value(99, 200_000)])}), 9)
                unsent = memoryview(frame * 200)[second.send_some(frame * 200) :]
                # What the kernel does not take any more is not read by the broker either.
                sending = asyncio.create_task(second.send_bytes(bytes(unsent)))
                held_bytes = broker.budget.used_bytes
                for _ in range(20):
                    # Consumers are served meanwhile.
                    fetched = await consumer.fetch(topic, {0: 0})
                    assert wire.records_in(fetched[0].records) == [(0, b"readable")]
                    await consumer.call(api_versions(), ApiVersionsResponse, 0)
                # The beginning of a frame is received to see that there is one.
                assert broker.budget.used_bytes <= held_bytes + 2 * MIN_ROOM_BYTES < MIB + 300_000
                assert not sending.done()
            for _ in range(count):
                assert (await first.receive_produce())[1][0].error_code == 0
            for _ in range(200):
                assert (await second.receive_produce())[1][0].error_code == 0
            await sending
            # Also what the second was granted while it waited in line.
            await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


@on_uvloop
async def test_a_shortage_of_memory_flushes_before_the_interval() -> None:
    async with in_process_broker(buffer_bytes=MIB, flush_interval_ms=AN_HOUR_MS) as broker:
        topic = await broker.create_topic(partitions=4)
        async with broker.connect() as client:
            for number in range(20):
                await client.send_produce(topic, {number % 4: wire.batch([value(number, 200_000)])})
            for _ in range(16):  # what fits stays in the buffers until its time
                await client.receive_produce()
            assert broker.budget.used_bytes <= MIB


@on_uvloop
async def test_many_clients_with_large_frames_all_finish() -> None:
    count, size = 40, 300_000
    async with in_process_broker(buffer_bytes=MIB) as broker, AsyncExitStack() as stack:
        topic = await broker.create_topic()
        clients = [await stack.enter_async_context(broker.connect()) for _ in range(count)]
        frames = [
            client.frame(wire.produce_request(topic, {0: wire.batch([value(number, size)])}), 9)
            for number, client in enumerate(clients)
        ]
        for client, frame in zip(clients, frames, strict=True):
            await client.send_bytes(frame[:1000])
        await until(lambda: broker.budget.used_bytes == count * 996, "all frames have begun")
        # The rest comes in the opposite order: who got memory first is served last.
        for client, frame in reversed(list(zip(clients, frames, strict=True))):
            await client.send_bytes(frame[1000:])
        offsets = [(await client.receive_produce())[1][0].base_offset for client in clients]
        assert sorted(offsets) == list(range(count))
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


@on_uvloop
async def test_small_requests_do_not_starve_a_large_one() -> None:
    async with in_process_broker(buffer_bytes=MIB, max_message_bytes=MIB) as broker:
        topic = await broker.create_topic()
        stop = False

        async def keep_producing(client: Client) -> None:
            while not stop:
                for _ in range(8):
                    await client.send_produce(topic, {0: wire.batch([bytes(50_000)])})
                for _ in range(8):
                    await client.receive_produce()

        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(broker.connect()) for _ in range(6)]
            busy = [asyncio.create_task(keep_producing(client)) for client in clients]
            async with broker.connect() as large:
                for number in range(3):
                    part = await large.produce(topic, 0, wire.batch([value(number, MIB - 1000)]))
                    assert part.error_code == 0
            stop = True
            await asyncio.gather(*busy)


@on_uvloop
async def test_a_client_that_leaves_does_not_block_the_memory_line() -> None:
    async with in_process_broker(buffer_bytes=MIB) as broker:
        topic = await broker.create_topic()
        drivens = [DrivenConnection(broker) for _ in range(3)]
        async with broker.connect() as first:
            with broker.objects.hold("put_if_absent", "*.entry"):
                count = await fill_budget(broker, first, topic)
                for driven in drivens:
                    frame = frames_only().frame(wire.produce_request(topic, {0: wire.batch([b"x"])}), 9)
                    assert driven.feed(frame) == b""
                    assert not driven.transport.reading
                await drivens[0].end()
            await drivens[1].next_frames(1)
            await drivens[2].next_frames(1)
            for _ in range(count):
                await first.receive_produce()
        assert broker.partition(topic).high_watermark == count + 2
        for driven in drivens:
            await driven.end()
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


@on_uvloop
async def test_a_request_is_charged_for_each_waiting_partition() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            with broker.objects.hold("put_if_absent", "*.entry"):
                unknown = dict.fromkeys(range(1000, 11_000), b"")
                await client.send_produce(topic, {0: wire.batch([b"x"]), **unknown})
                await until(lambda: broker.budget.used_bytes > 10_000 * 200, "it is charged")
            _, parts = await client.receive_produce()
            assert parts[0].error_code == 0
            assert {parts[index].error_code for index in unknown} == {3}
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


@on_uvloop
async def test_names_of_a_waiting_request_are_charged() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            request = wire.produce_request(topic, {0: wire.batch([b"x"])})
            for number in range(100):
                request.topic_data += wire.produce_request(f"{number}{'x' * 30_000}", {}).topic_data
            with broker.objects.hold("put_if_absent", "*.entry") as hold:
                await client.send(request, 9)
                await hold.reached()
                assert broker.budget.used_bytes > 100 * 30_000
            reply = await client.receive(ProduceResponse, 9)
            assert reply.responses[0].partition_responses[0].error_code == 0
        await until(lambda: broker.budget.used_bytes == 0, "everything is given back")


def test_a_waiting_produce_keeps_little_of_a_client_id() -> None:
    for client_id in ("c" * 32_000, "\0" * 32_000):
        pending = PendingProduce(
            RequestContext(9, 1, client_id, "192.0.2.1", ClientSoftware()),
            cast(Reply, None),
            0,
            cast(ClusterView, None),
            ProducePurgatory(lambda: 0, MemoryBudget(MIB)),
            cast(SequenceErrorCheck, None),
            ProduceStages(),
        )
        assert len(pending._client_id or "") < 1000


# --- clients that do not read


@on_uvloop
async def test_a_client_that_reads_nothing_blocks_only_itself() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as producer, broker.connect(receive_buffer_bytes=4096) as deaf:
            for number in range(12):
                await producer.produce(topic, 0, wire.batch([value(number, 900_000)]))
            limits = {"max_bytes": 50 * MIB, "partition_max_bytes": 50 * MIB}
            fetch = deaf.frame(wire.fetch_request(topic, {0: 0}, **limits), 11)
            unsent = bytes(fetch * 200_000)[deaf.send_some(fetch) :]
            while sent := deaf.send_some(unsent):  # until nobody takes anything any more
                unsent = unsent[sent:]
                await asyncio.sleep(0.005)
            assert unsent
            part = await producer.produce(topic, 0, wire.batch([b"others go on"]))
            assert part.error_code == 0
            fetched = await producer.fetch(topic, {0: 12})
            assert wire.records_in(fetched[0].records) == [(12, b"others go on")]


@on_uvloop
async def test_a_client_that_reads_nothing_gets_no_frame_memory() -> None:
    async with in_process_broker() as broker:
        driven, client = DrivenConnection(broker), frames_only()
        driven.transport.room_bytes = 10
        driven.feed(client.frame(api_versions(), 0))
        assert driven.feed(struct.pack(">i", 50 * MIB) + bytes(3 * SMALL_RECEIVE_BUFFER_BYTES))
        assert broker.budget.used_bytes == 0
        assert len(driven.connection._kept.data) <= SMALL_RECEIVE_BUFFER_BYTES
        driven.transport.take()
        await until(lambda: broker.budget.used_bytes >= SMALL_RECEIVE_BUFFER_BYTES - 4, "the frame begins")
        await driven.end()
        assert broker.budget.used_bytes == 0


@on_uvloop
async def test_few_bytes_are_kept_behind_a_waiting_request() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        driven, client = DrivenConnection(broker), frames_only()
        driven.feed(client.frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=60_000), 11))
        driven.feed(struct.pack(">i", 3 * MIB) + bytes(RECEIVE_BUFFER_BYTES))
        assert not driven.transport.reading
        assert len(driven.connection._kept.data) <= SMALL_RECEIVE_BUFFER_BYTES
        assert broker.budget.used_bytes == 0
        await driven.end()


@on_uvloop
async def test_memory_of_an_unsent_reply_is_not_reused() -> None:
    """Fetches whose replies nobody takes, beside a cache and a pool that are far too small to keep anything."""
    async with in_process_broker(cache_size_bytes=2 * MIB, buffer_bytes=4 * MIB) as broker:
        topic = await broker.create_topic(partitions=2)
        driven = [DrivenConnection(broker) for _ in range(4)]
        async with broker.connect() as producer:
            expected = []
            for number, one in enumerate(driven):
                batch = wire.batch([value(number, 900_000)], timestamp=1)
                offset = (await producer.produce(topic, 0, batch)).base_offset
                expected.append([(offset, value(number, 900_000))])
                one.transport.room_bytes = 1000
                one.feed(frames_only().frame(wire.fetch_request(topic, {0: offset}, max_wait_ms=0), 11))
                assert one.transport.get_write_buffer_size() > 800_000
            for number in range(30):  # evicts everything, and takes every spare slab again and again
                await producer.produce(topic, 1, wire.batch([value(1_000_000 + number, 900_000)]))
            assert broker.process.serving.reader.cache.evictions > 20
            for one, records in zip(driven, expected, strict=True):
                one.transport.take()
                (frame,) = await one.next_frames(1)
                reply = FetchResponse.decode(frame, version=11, header=True)
                assert wire.records_in(reply.responses[0].partitions[0].records) == records
                await one.end()


@on_uvloop
async def test_memory_is_reused_when_the_reply_has_left_or_its_client() -> None:
    async with in_process_broker(cache_size_bytes=MIB + 4096, buffer_bytes=64 * MIB) as broker:
        topic = await broker.create_topic()
        taking, leaving = DrivenConnection(broker), DrivenConnection(broker)
        async with broker.connect() as producer:
            for one in (taking, leaving):
                batch = wire.batch([value(0, 900_000)])
                offset = (await producer.produce(topic, 0, batch)).base_offset
                one.transport.room_bytes = 0
                one.feed(frames_only().frame(wire.fetch_request(topic, {0: offset}, max_wait_ms=0), 11))
            await producer.produce(topic, 0, wire.batch([b"x" * 900_000]))
            assert broker.process.serving.reader.cache.evictions == 2
            held = broker.pool.spare_bytes
            taking.transport.take()
            assert broker.pool.spare_bytes > held
            held = broker.pool.spare_bytes
            await leaving.end()
            assert broker.pool.spare_bytes > held
        await taking.end()


@on_uvloop
async def test_slow_readers_keep_bounded_memory_and_others_get_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reply_memory, "MAX_LINGERING_BYTES", MIB // 2)
    async with in_process_broker(cache_size_bytes=0) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        values = [value(number, 250_000) for number in range(4)]
        for payload in values:
            await client.produce(topic, 0, wire.batch([payload]))
        reader = broker.process.serving.reader
        slow = DrivenConnection(broker)
        slow.transport.room_bytes = 0
        slow.feed(frames_only().frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=0), 11))
        await until(lambda: slow.transport.get_write_buffer_size() > 0, "the reply is written")
        assert reader.is_short_of_memory
        kept = {segment for segment in reader._reply_memory._lingering if segment.is_held}
        assert len(kept) == len(values)
        (part,) = (await client.fetch(topic, {0: 0})).values()
        assert wire.records_in(part.records) == [(0, values[0])]  # one batch, though more was asked for
        assert {segment for segment in reader._reply_memory._lingering if segment.is_held} == kept
        await slow.end()
        await until(
            lambda: not any(one.is_held for one in reader._reply_memory._lingering),
            "nothing is kept any more",
        )
        (part,) = (await client.fetch(topic, {0: 0})).values()
        assert [found for _, found in wire.records_in(part.records)] == values


# --- idle clients

# Longer than a loaded machine stands still: who is busy must have a chance to be.
IDLE_MS = 1_200


@on_uvloop
async def test_only_an_idle_client_is_closed() -> None:
    async with in_process_broker(connections_max_idle_ms=IDLE_MS) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as idle, broker.connect() as busy, broker.connect() as waiting:
            await idle.call(api_versions(), ApiVersionsResponse, 0)
            await waiting.send_fetch(topic, {0: 0}, max_wait_ms=2 * IDLE_MS)

            async def stay_busy() -> None:
                while True:
                    await busy.call(api_versions(), ApiVersionsResponse, 0)
                    await asyncio.sleep(0.02)

            task = asyncio.create_task(stay_busy())
            assert await idle.closed_by_peer()
            assert (await waiting.receive_fetch())[0].error_code == 0
            assert not task.done()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@on_uvloop
async def test_a_client_that_reads_nothing_is_idle_a_slow_one_is_not() -> None:
    async with in_process_broker(connections_max_idle_ms=IDLE_MS) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as producer:
            await producer.produce(topic, 0, wire.batch([value(0, 900_000)]))
        deaf, slow = DrivenConnection(broker), DrivenConnection(broker)
        for one in (deaf, slow):
            one.transport.room_bytes = 1000
            one.feed(frames_only().frame(wire.fetch_request(topic, {0: 0}, max_wait_ms=0), 11))
        while not deaf.transport.closed:
            slow.transport.take(100)
            await asyncio.sleep(0.01)
        assert not slow.transport.closed
        await slow.end()
