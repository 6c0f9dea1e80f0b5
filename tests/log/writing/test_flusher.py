"""Flushes: when buffers become segments."""

import asyncio
from typing import Any, cast

import pytest

from kafscale.clocks import SYSTEM, Clocks
from kafscale.log.partition_log import PartitionLog
from kafscale.log.writing import flush_pacer
from kafscale.log.writing.flush_pacer import FlushPacer
from tests.support import wire
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_MS

AN_HOUR_MS = 3_600_000
MIB = 1024 * 1024


class Clock:
    """The machine's clock, which somebody sets."""

    def __init__(self) -> None:
        self.offset_ms = 0

    def now_ms(self) -> int:
        return SYSTEM.now_ms() + self.offset_ms


@on_uvloop
async def test_records_of_an_interval_become_one_entry() -> None:
    async with in_process_broker(flush_interval_ms=100) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        began = asyncio.get_running_loop().time()
        for _ in range(5):
            await client.send_produce(topic, {0: wire.batch([b"x"])})
        offsets = [(await client.receive_produce())[1][0].base_offset for _ in range(5)]
        assert 0.09 <= asyncio.get_running_loop().time() - began < 5
        assert offsets == [0, 1, 2, 3, 4]
        assert len(await broker.objects.keys("*.entry")) == 1


@on_uvloop
async def test_a_full_partition_does_not_wait_for_its_time() -> None:
    async with in_process_broker(flush_interval_ms=AN_HOUR_MS, segment_bytes=MIB) as broker:
        topic = await broker.create_topic(partitions=2)
        async with broker.connect() as client, broker.connect() as other:
            await other.send_produce(topic, {1: wire.batch([b"with it"])})
            await until(lambda: len(broker.process.serving.purgatory) == 1, "it has come")
            for _ in range(2):
                await client.send_produce(topic, {0: wire.batch([bytes(MIB // 2)])})
            for _ in range(2):
                assert (await client.receive_produce())[1][0].error_code == 0
            # What waits in other partitions costs nothing beside it.
            assert (await other.receive_produce())[1][1].error_code == 0
            assert len(await broker.objects.keys("*.entry")) == 1


@on_uvloop
async def test_a_topics_own_segment_size_goes_before_the_brokers() -> None:
    async with in_process_broker(flush_interval_ms=AN_HOUR_MS, segment_bytes=64 * MIB) as broker:
        topic = await broker.create_topic(configs={"segment.bytes": MIB})
        async with broker.connect() as client:
            for _ in range(2):
                await client.send_produce(topic, {0: wire.batch([bytes(MIB // 2)])})
            assert (await client.receive_produce())[1][0].error_code == 0


@on_uvloop
async def test_what_arrives_during_a_flush_is_flushed_in_its_own_time() -> None:
    async with in_process_broker(flush_interval_ms=80) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"a"])})
            await hold.reached()
            await client.send_produce(topic, {0: wire.batch([b"b"])})
            await until(lambda: len(broker.process.serving.purgatory) == 2, "both have come")
        for offset in (0, 1):
            assert (await client.receive_produce())[1][0].base_offset == offset
        assert len(await broker.objects.keys("*.entry")) == 2


@on_uvloop
async def test_producer_with_five_in_flight_gets_entries_of_five(monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries had one batch and four in turns: with 16 KiB batches the broker's core was full of them."""
    monkeypatch.setattr(flush_pacer, "GATHER_SEC", 3600.0)  # no machine is too busy for it
    in_flight, rounds = 5, 20
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, flushes_per_sec=1_000_000) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"x"])})
            await hold.reached()
            for _ in range(in_flight - 1):
                await client.send_produce(topic, {0: wire.batch([b"x"])})
            await until(lambda: len(broker.process.serving.purgatory) == in_flight, "all have come")
        # The first entry has one batch, each of the others as many as are in flight.
        for _ in range(in_flight * (rounds - 1) + 1):
            assert (await client.receive_produce())[1][0].error_code == 0
            await client.send_produce(topic, {0: wire.batch([b"x"])})
        for _ in range(in_flight):
            assert (await client.receive_produce())[1][0].error_code == 0
        assert len(await broker.objects.keys("*.entry")) == 1 + rounds


@on_uvloop
async def test_flushes_in_flight_stay_within_their_limit() -> None:
    async with in_process_broker(flushes_in_flight=2) as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=6)
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            for number in range(6):
                await client.send_produce(topic, {number: wire.batch([b"x"])})
                await until(lambda: len(broker.process.serving.purgatory) > number, "it has come")  # noqa: B023
            assert hold.waiting == 2
        for _ in range(6):
            assert {part.error_code for part in (await client.receive_produce())[1].values()} == {0}
        assert len(await broker.objects.keys("*.entry")) == 3


@on_uvloop
async def test_an_entry_beside_another_has_what_came_in_its_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each had one batch, until all places were taken."""
    monkeypatch.setattr(flush_pacer, "SPACING", 1e9)  # no machine is too busy for it
    async with in_process_broker(flush_interval_ms=0) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"so long does a PUT take"]))
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"at once"])})
            await hold.reached()
            for number in range(2):
                await client.send_produce(topic, {0: wire.batch([b"x"])})
                await until(lambda: len(broker.process.serving.purgatory) == 2 + number, "it has come")  # noqa: B023
            assert hold.waiting == 1
        # The next one begins when nothing is beside it any more.
        for offset in (1, 2, 3):
            assert (await client.receive_produce())[1][0].base_offset == offset
        assert len(await broker.objects.keys("*.entry")) == 3


@on_uvloop
async def test_what_a_flush_takes_with_it_begins_no_other() -> None:
    """A flush that finds nothing took a PUT of the budget, and was counted."""
    async with in_process_broker(flushes_in_flight=8) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        flusher = broker.process.serving.logs.flusher
        await flusher._sealing.acquire()  # as another flush that compresses a large slice
        try:
            for number in range(4):
                await client.send_produce(topic, {0: wire.batch([b"x"])})
                await until(lambda: len(broker.process.serving.purgatory) > number, "it has come")  # noqa: B023
        finally:
            flusher._sealing.release()
        offsets = [(await client.receive_produce())[1][0].base_offset for _ in range(4)]
        assert offsets == [0, 1, 2, 3]
        await until(lambda: not flusher._flushes, "all flushes have ended")
        assert broker.metrics.flushes.outcomes.total() == 1
        assert len(await broker.objects.keys("*.entry")) == 1


@on_uvloop
async def test_all_partitions_of_a_broker_share_an_entry() -> None:
    async with in_process_broker(flush_interval_ms=50) as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=50)
        await client.send_produce(topic, {number: wire.batch([b"x"]) for number in range(50)})
        assert {part.error_code for part in (await client.receive_produce())[1].values()} == {0}
        assert len(await broker.objects.keys("*.entry")) == 1
        assert broker.objects.count("put_if_absent") - broker.objects.count("put_if_absent", "*cluster") == 1


@on_uvloop
async def test_fetch_of_many_partitions_gets_a_whole_entry() -> None:
    """It was answered with the entry's first slice alone, and its client asked again for the others."""
    partitions = range(50)
    async with (
        in_process_broker(flush_interval_ms=50) as broker,
        broker.connect() as client,
        broker.connect() as consumer,
    ):
        topic = await broker.create_topic(partitions=len(partitions))
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {number: wire.batch([b"x"]) for number in partitions})
            await hold.reached()
            await consumer.send_fetch(topic, dict.fromkeys(partitions, 0), max_wait_ms=PATIENCE_MS)
            led = list(broker.process.serving.logs.partitions())
            await until(lambda: all(partition.has_listeners for partition in led), "the fetch waits")
        answer = await consumer.receive_fetch()
        assert [number for number in partitions if not answer[number].records] == []


@on_uvloop
async def test_closing_ends_what_is_in_flight_and_begins_nothing() -> None:
    """Also of a partition that is being handed over and waits to be drained."""
    async with in_process_broker(flushes_in_flight=1) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        partition = broker.partition(topic)
        flusher = broker.process.serving.logs.flusher
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"a"])})
            await hold.reached()
            await client.send_produce(topic, {0: wire.batch([b"b"])})
            await until(lambda: len(broker.process.serving.purgatory) == 2, "both have come")
            draining = asyncio.create_task(flusher.drained(partition, 60))
            await asyncio.sleep(0)
            await flusher.close()
            assert hold.waiting == 0
            await until(draining.done, "there is nothing to wait for")
        assert len(await broker.objects.keys("*.entry")) == 0


@on_uvloop
async def test_who_waits_for_room_does_not_wait_for_itself() -> None:
    """Once no flush was left, it did: the broker's end waited for it, and its partition was never flushed again."""

    class InFlight:
        in_flight_count = 1

    async with in_process_broker() as broker:
        flusher = broker.process.serving.logs.flusher
        partition = broker.partition(await broker.create_topic())
        assert partition.log is None
        # An entry whose outcome is not known: it is in flight until the log is closed.
        partition.log = log = cast(PartitionLog, InFlight())
        flusher._wait_for_room(partition, log)
        await asyncio.sleep(0)
        partition.log = None
        await until(lambda: not flusher._room_makers, "nothing is left to wait for")


@pytest.mark.parametrize("set_by_ms", [-AN_HOUR_MS, AN_HOUR_MS, -300_000 * AN_HOUR_MS])
@on_uvloop
async def test_a_clock_that_is_set_does_not_hold_records_back(set_by_ms: int) -> None:
    clock = Clock()
    async with (
        in_process_broker(clocks=Clocks(now_ms=clock.now_ms), flush_interval_ms=150) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic(partitions=2)
        await client.send_produce(topic, {0: wire.batch([b"before"])}, acks=0)
        log = broker.partition(topic).log
        await until(lambda: (log := broker.partition(topic).log) and log.waiting, "it has come")
        clock.offset_ms = set_by_ms
        await client.send_produce(topic, {1: wire.batch([b"after"], timestamp=0)}, acks=0)
        for partition in (0, 1):
            await until(
                lambda index=partition: broker.partition(topic, index).high_watermark == 1,  # type: ignore[misc]
                "it is published",
            )
        assert log is None or log.waiting is None


@on_uvloop
async def test_appends_to_what_waits_already_decide_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deciding when to flush took a tenth of the CPU of small requests."""
    decisions = 0
    delay_sec = FlushPacer.delay_sec

    def counted(self: FlushPacer, *arguments: Any) -> float | None:
        nonlocal decisions
        decisions += 1
        return delay_sec(self, *arguments)

    monkeypatch.setattr(FlushPacer, "delay_sec", counted)
    async with in_process_broker(flush_interval_ms=AN_HOUR_MS) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.send_produce(topic, {0: wire.batch([b"first"])})
        await until(lambda: len(broker.process.serving.purgatory) == 1, "it has come")
        decisions = 0
        for _ in range(100):
            await client.send_produce(topic, {0: wire.batch([b"x"])})
        await until(lambda: len(broker.process.serving.purgatory) == 101, "all have come")
        assert decisions == 0
