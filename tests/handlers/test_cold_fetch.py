"""Fetches of what is not in memory: one read for many readers, and nothing damaged is ever served."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.log.reading.stored_segment import SegmentKey, segment_key
from kafscale.memory.slab import Slab
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

KIB = 1024


async def one_entry_each(client: Client, topic: str, values: list[bytes], partition: int = 0) -> None:
    for value in values:
        assert (await client.produce(topic, partition, wire.batch([value]))).error_code == 0


async def one_segment_each(
    broker: InProcessBroker, client: Client, topic: str, values: list[bytes], partition: int = 0
) -> None:
    for value in values:
        await one_entry_each(client, topic, [value], partition)
        await broker.seal(topic, partition)


def key(topic: str, offset: int, kind: str = "kfs", partition: int = 0) -> str:
    """Of a segment of one record."""
    return f"default/{topic}/{partition}/segment-{offset:020d}-{offset:020d}.{kind}"


def cache_key(broker: InProcessBroker, topic: str, offset: int) -> SegmentKey:
    """Of a segment that begins at the offset, in the reader's cache."""
    partition = broker.partition(topic)
    assert partition.references is not None
    return segment_key(partition, next(partition.references.from_offset(offset)))


def flipped(position: int) -> Callable[[bytes], bytes]:
    """A change of one bit."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position] ^= 1
        return bytes(changed)

    return change


# --- reading


@pytest.mark.parametrize("is_sealed", [False, True])
@on_uvloop
async def test_a_cold_fetch_returns_what_a_warm_one_did_byte_for_byte(is_sealed: bool) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_entry_each(client, topic, [b"%d" % number * 1000 for number in range(8)])
        for offset in range(8):
            warm = bytes((await client.fetch(topic, {0: offset}))[0].records)
            if is_sealed:
                await broker.seal(topic)
            broker.forget_cached(topic)
            cold = bytes((await client.fetch(topic, {0: offset}))[0].records)
            assert cold == warm
            assert len(wire.records_in(cold)) == 8 - offset


@on_uvloop
async def test_fresh_segments_are_served_from_memory() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_entry_each(client, topic, [b"x"] * 5)
        await client.fetch(topic, {0: 0})
        assert broker.objects.count("read_into") == 0
        assert broker.objects.count("get", f"default/{topic}/*") == 0


@on_uvloop
async def test_many_who_read_the_same_segment_at_once_cause_one_get() -> None:
    async with in_process_broker() as broker, AsyncExitStack() as stack:
        topic = await broker.create_topic()
        clients = [await stack.enter_async_context(broker.connect()) for _ in range(20)]
        await one_segment_each(broker, clients[0], topic, [b"x" * 500])
        broker.forget_cached(topic)
        with broker.objects.hold("read_into") as hold:
            for client in clients:
                await client.send_fetch(topic, {0: 0})
            await hold.reached()
            await until(lambda: broker.metrics.cache("segment").misses == 20, "all ask for it")
        for client in clients:
            assert wire.records_in((await client.receive_fetch())[0].records) == [(0, b"x" * 500)]
        assert broker.objects.count("read_into", "*.kfs") == 1
        assert broker.objects.count("get", "default/*") + broker.objects.count("get_range", "default/*") == 0
        assert (await clients[0].fetch(topic, {0: 0}))[0].error_code == 0
        assert broker.objects.count("read_into", "*.kfs") == 1


@on_uvloop
async def test_a_fetch_loads_what_it_can_return_and_not_everything() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        for partition in (0, 1):
            await one_segment_each(broker, client, topic, [bytes(10 * KIB)] * 20, partition)
            broker.forget_cached(topic, partition)
        parts = await client.fetch(topic, {0: 0, 1: 0}, partition_max_bytes=35 * KIB)
        assert [len(wire.records_in(parts[partition].records)) for partition in (0, 1)] == [3, 3]
        assert broker.objects.count("read_into") <= 8
        broker.forget_cached(topic, 0)
        broker.forget_cached(topic, 1)
        before = broker.objects.count("read_into")
        parts = await client.fetch(topic, {0: 0, 1: 0}, max_bytes=25 * KIB)
        assert [len(wire.records_in(parts[partition].records)) for partition in (0, 1)] == [2, 0]
        assert broker.objects.count("read_into") - before <= 3


@on_uvloop
async def test_a_reply_joins_segments_in_memory_and_in_the_store() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_entry_each(client, topic, [b"%d" % number * 300 for number in range(6)])
        for offset in (1, 3, 4):
            broker.process.serving.reader.cache.remove(cache_key(broker, topic, offset))
        part = (await client.fetch(topic, {0: 0}))[0]
        assert wire.records_in(part.records) == [(n, b"%d" % n * 300) for n in range(6)]
        assert broker.objects.count("read_into") == 3


@pytest.mark.parametrize("cache_size_bytes", [0, 1, 2000])
@on_uvloop
async def test_a_cache_too_small_for_anything_serves_all_the_same(cache_size_bytes: int) -> None:
    async with in_process_broker(cache_size_bytes=cache_size_bytes) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        values = [b"%d" % number * 1000 for number in range(5)]
        await one_entry_each(client, topic, values)
        for _ in range(3):
            found: list[tuple[int, bytes | None]] = []
            while len(found) < 5:
                part = (await client.fetch(topic, {0: len(found)}))[0]
                assert part.records
                found += wire.records_in(part.records)
            assert found == list(enumerate(values))
        assert broker.process.serving.reader.cache.used_bytes <= cache_size_bytes


@on_uvloop
async def test_a_client_that_leaves_does_not_stop_a_shared_load() -> None:
    async with in_process_broker() as broker, broker.connect() as staying:
        topic = await broker.create_topic()
        await one_segment_each(broker, staying, topic, [b"x"])
        broker.forget_cached(topic)
        with broker.objects.hold("read_into") as hold:
            async with broker.connect() as leaving:
                await leaving.send_fetch(topic, {0: 0})
                await hold.reached()
                await staying.send_fetch(topic, {0: 0})
                await until(lambda: broker.metrics.cache("segment").misses == 2, "both ask for it")
            await until(lambda: broker.connection_count == 1, "one has left")
        assert wire.records_in((await staying.receive_fetch())[0].records) == [(0, b"x")]


@on_uvloop
async def test_a_slow_store_holds_up_only_those_who_read_from_it() -> None:
    async with in_process_broker() as broker, broker.connect() as cold, broker.connect() as warm:
        topic = await broker.create_topic(partitions=2)
        await one_segment_each(broker, cold, topic, [b"cold"], 0)
        await one_entry_each(cold, topic, [b"warm"], 1)
        broker.forget_cached(topic, 0)
        with broker.objects.hold("read_into") as hold:
            await cold.send_fetch(topic, {0: 0})
            await hold.reached()
            assert wire.records_in((await warm.fetch(topic, {1: 0}))[1].records) == [(0, b"warm")]
        assert wire.records_in((await cold.receive_fetch())[0].records) == [(0, b"cold")]


# --- reading ahead


@on_uvloop
async def test_read_ahead_follows_a_store_read_and_delays_nothing() -> None:
    async with in_process_broker(read_ahead_segments=2) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, [b"%d" % number for number in range(6)])
        broker.forget_cached(topic)
        with broker.objects.hold("read_into", key(topic, 1)) as hold:
            part = (await client.fetch(topic, {0: 0}, partition_max_bytes=1))[0]
            assert wire.records_in(part.records) == [(0, b"0")]
            await hold.reached()
            # Who wants it now waits for the read that is in flight.
            await client.send_fetch(topic, {0: 1}, partition_max_bytes=1)
        assert wire.records_in((await client.receive_fetch())[0].records) == [(1, b"1")]
        cache = broker.process.serving.reader.cache
        await until(lambda: cache_key(broker, topic, 3) in cache, "the segments after it are in memory")
        assert broker.objects.count("read_into", key(topic, 1)) == 1


@on_uvloop
async def test_a_read_ahead_that_fails_fails_no_fetch() -> None:
    async with in_process_broker(read_ahead_segments=1) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, [b"a", b"b"])
        broker.forget_cached(topic)
        broker.objects.fail("read_into", key(topic, 1), StoreUnavailableError("away"))
        await client.fetch(topic, {0: 0}, partition_max_bytes=1)
        await until(lambda: broker.objects.count("read_into", key(topic, 1)) == 1, "it was tried")
        part = (await client.fetch(topic, {0: 1}))[0]
        assert wire.records_in(part.records) == [(1, b"b")]


@on_uvloop
async def test_nothing_is_read_ahead_of_who_reads_from_memory() -> None:
    async with in_process_broker(read_ahead_segments=2) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_entry_each(client, topic, [b"%d" % number for number in range(4)])
        broker.process.serving.reader.cache.remove(cache_key(broker, topic, 2))
        await client.fetch(topic, {0: 0}, partition_max_bytes=1)
        await client.fetch(topic, {0: 1}, partition_max_bytes=1)
        assert broker.objects.count("read_into") == 0


# --- damage


async def cold_broker(stack: AsyncExitStack, values: list[bytes]) -> tuple[InProcessBroker, str, Client]:
    broker = await stack.enter_async_context(in_process_broker())
    client = await stack.enter_async_context(broker.connect())
    topic = await broker.create_topic()
    await one_segment_each(broker, client, topic, values)
    broker.forget_cached(topic)
    return broker, topic, client


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the header": flipped(0),
    "the version": flipped(5),
    "the base offset": flipped(15),
    "a bit of a batch": flipped(100),
    "a bit of the footer's CRC": flipped(-16),
    "the last offset": flipped(-5),
    "the footer's magic": flipped(-1),
    "cut": lambda data: data[:-1],
    "cut to its header": lambda data: data[:32],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
}


@pytest.mark.parametrize("damage", DAMAGE)
@on_uvloop
async def test_a_damaged_segment_is_read_once_more_and_then_refused(damage: str) -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"x" * 200, b"y" * 200])
        broker.objects.lie(key(topic, 0), DAMAGE[damage])
        part = (await client.fetch(topic, {0: 0}))[0]
        assert (part.error_code, bytes(part.records or b"")) == (ErrorCode.CORRUPT_MESSAGE, b"")
        assert broker.objects.count("read_into", key(topic, 0)) == 2
        # What lies behind it is there, and so is the segment itself when it can be read again.
        assert wire.records_in((await client.fetch(topic, {0: 1}))[0].records) == [(1, b"y" * 200)]
        broker.objects.tell_the_truth()
        records = (await client.fetch(topic, {0: 0}))[0].records
        assert wire.records_in(records) == [(0, b"x" * 200), (1, b"y" * 200)]


@on_uvloop
async def test_a_transfer_that_was_damaged_once_is_not_noticed() -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"x" * 200])
        broker.objects.lie(key(topic, 0), flipped(100), times=1)
        assert wire.records_in((await client.fetch(topic, {0: 0}))[0].records) == [(0, b"x" * 200)]


@on_uvloop
async def test_damage_in_one_partition_is_not_the_others() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        for partition in (0, 1):
            await one_segment_each(broker, client, topic, [b"x"], partition)
            broker.forget_cached(topic, partition)
        broker.objects.lie(key(topic, 0), flipped(100))
        parts = await client.fetch(topic, {0: 0, 1: 0})
        assert parts[0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert wire.records_in(parts[1].records) == [(0, b"x")]


@on_uvloop
async def test_what_lies_before_a_damaged_segment_is_served() -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"a", b"b", b"c"])
        broker.objects.lie(key(topic, 1), flipped(100))
        part = (await client.fetch(topic, {0: 0}))[0]
        assert (part.error_code, wire.records_in(part.records)) == (0, [(0, b"a")])
        assert (await client.fetch(topic, {0: 1}))[0].error_code == ErrorCode.CORRUPT_MESSAGE
        part = (await client.fetch(topic, {0: 2}))[0]
        assert wire.records_in(part.records) == [(2, b"c")]


@on_uvloop
async def test_a_damaged_segment_that_is_not_due_yet_is_no_error() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        await one_segment_each(broker, client, topic, [bytes(3000)], 0)
        await one_segment_each(broker, client, topic, [bytes(3000), bytes(3000)], 1)
        for partition in (0, 1):
            broker.forget_cached(topic, partition)
        broker.objects.lie(key(topic, 1, partition=1), flipped(100))
        parts = await client.fetch(topic, {0: 0, 1: 0}, max_bytes=5000)
        assert [(part.error_code, len(part.records or b"") > 0) for part in parts.values()] == [
            (0, True),
            (0, False),
        ]


@on_uvloop
async def test_another_segment_under_the_key_is_not_served() -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"x" * 50, b"y" * 50])
        other = await broker.objects.inner.get(key(topic, 1))
        broker.objects.lie(key(topic, 0), lambda _: other)
        assert (await client.fetch(topic, {0: 0}))[0].error_code == ErrorCode.CORRUPT_MESSAGE


@on_uvloop
async def test_a_lost_segment_is_a_retriable_error() -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"x"])
        data = await broker.objects.inner.get(key(topic, 0))
        await broker.objects.inner.delete([key(topic, 0)])
        assert (await client.fetch(topic, {0: 0}))[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        await broker.objects.inner.put(key(topic, 0), [data])
        assert wire.records_in((await client.fetch(topic, {0: 0}))[0].records) == [(0, b"x")]


@pytest.mark.parametrize("error", [StoreUnavailableError("away"), StoreIndeterminateError("who knows")])
@on_uvloop
async def test_a_store_that_is_away_is_an_error_that_clients_try_again(error: Exception) -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"x"])
        broker.objects.fail("read_into", "*.kfs", error)
        assert (await client.fetch(topic, {0: 0}))[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert wire.records_in((await client.fetch(topic, {0: 0}))[0].records) == [(0, b"x")]


@on_uvloop
async def test_a_defective_store_ends_the_connection_not_the_broker() -> None:
    async with AsyncExitStack() as stack:
        broker, topic, client = await cold_broker(stack, [b"x"])
        broker.objects.fail("read_into", "*.kfs", RuntimeError("a defect"))
        await client.send_fetch(topic, {0: 0})
        assert await client.closed_by_peer()
        async with broker.connect() as other:
            assert wire.records_in((await other.fetch(topic, {0: 0}))[0].records) == [(0, b"x")]


# --- indexes


@pytest.mark.parametrize("damage", [flipped(0), flipped(-1), lambda data: b""])
@on_uvloop
async def test_a_segment_read_whole_needs_no_index(
    damage: Callable[[bytes], bytes],
) -> None:
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(in_process_broker())
        client = await stack.enter_async_context(broker.connect())
        topic = await broker.create_topic()
        batches = [wire.batch([b"%d" % number] * 100) for number in range(5)]
        await client.produce_together(topic, 0, batches)
        await broker.seal(topic)
        segment, index = (
            key(topic, 0, kind).replace(f"-{0:020d}.", f"-{499:020d}.") for kind in ("kfs", "index")
        )
        for missing in (False, True):
            broker.forget_cached(topic)
            broker.objects.lie(index, damage)
            if missing:
                await broker.objects.inner.delete([index])
            part = (await client.fetch(topic, {0: 350}))[0]
            assert part.error_code == 0
            assert [offset for offset, _ in wire.records_in(part.records)] == list(range(300, 500))
        assert broker.objects.count("read_into", segment) == 2
        assert broker.objects.count("get", "*.index") == 0
        assert broker.metrics.index_rebuilds == 0


# --- memory


@on_uvloop
async def test_segments_can_be_reused_after_any_end_of_a_fetch() -> None:
    """Fetches that end well, fail in part, and lose their client: in the end every slab is spare."""
    async with in_process_broker(cache_size_bytes=0) as broker:
        topic = await broker.create_topic(partitions=2)
        async with broker.connect() as client:
            for partition in (0, 1):
                await one_segment_each(broker, client, topic, [bytes(100 * KIB)] * 3, partition)
        acquired, pool = 0, broker.pool
        acquire, release = pool.acquire, pool.release

        def counting_acquire(size_bytes: int, wanted_bytes: int = 0, **options: bool) -> Slab:
            nonlocal acquired
            acquired += 1
            return acquire(size_bytes, wanted_bytes, **options)

        def counting_release(slab: Slab) -> None:
            nonlocal acquired
            acquired -= 1
            release(slab)

        pool.acquire, pool.release = counting_acquire, counting_release  # type: ignore[method-assign]
        async with broker.connect() as client:
            await client.fetch(topic, {0: 0, 1: 0})
            assert acquired == 0
            broker.objects.lie(key(topic, 1), flipped(100), times=2)
            await client.fetch(topic, {0: 0, 1: 0})
            assert acquired == 0
        for held in (key(topic, 0), key(topic, 2)):
            with broker.objects.hold("read_into", held) as hold:
                async with broker.connect() as leaving:
                    await leaving.send_fetch(topic, {0: 0})
                    await hold.reached()
                    await until(
                        lambda: len(broker.process.serving.reader._loads._callers) == 1,
                        "the others are there",
                    )
                await until(lambda: broker.connection_count == 0, "the client is gone")
            await until(lambda: acquired == 0, "everything is given back")
        async with broker.connect() as client:
            broker.objects.fail("read_into", key(topic, 1), RuntimeError("a defect"))
            await client.send_fetch(topic, {0: 0})
            assert await client.closed_by_peer()
            # What the defect left behind is not trusted to be free.
            await until(lambda: acquired <= 1, "the others are given back")


@on_uvloop
async def test_replies_are_right_while_memory_is_evicted_and_reused() -> None:
    """Producers and consumers together, over a cache of two segments: every byte that is read is checked."""
    async with in_process_broker(cache_size_bytes=300 * KIB, buffer_bytes=2 * KIB * KIB) as broker:
        topic = await broker.create_topic(partitions=3)
        rounds = 25

        def value(partition: int, number: int) -> bytes:
            return b"%d/%d " % (partition, number) * 8000

        async def produce(partition: int) -> None:
            async with broker.connect() as client:
                for number in range(rounds):
                    part = await client.produce(topic, partition, wire.batch([value(partition, number)]))
                    assert part.base_offset == number

        async def consume(partition: int) -> None:
            async with broker.connect() as client:
                offset = 0
                while offset < rounds:
                    parts: dict[int, Any] = await client.fetch(topic, {partition: offset}, max_wait_ms=5000)
                    for found, record in wire.records_in(parts[partition].records):
                        assert (found, record) == (offset, value(partition, offset))
                        offset += 1

        await asyncio.gather(*(produce(n) for n in range(3)), *(consume(n) for n in (0, 1, 2, 0, 1, 2)))
        await asyncio.gather(*(consume(n) for n in range(3)))
        assert broker.process.serving.reader.cache.evictions > 50
        assert broker.process.serving.reader.cache.used_bytes <= 300 * KIB
        assert broker.budget.used_bytes == 0
