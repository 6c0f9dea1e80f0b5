"""Flushes before their time: while few are under way, in turn, and not at any rate."""

import pytest

from kafscale.log.writing import flusher
from kafscale.log.writing.early_flushes import (
    BURST_FLUSHES,
    FLUSHES_PER_SEC,
    FREE_BYTES,
    STREAM_BYTES,
    EarlyFlushes,
)
from tests.support import wire
from tests.support.in_process_broker import in_process_broker, until
from tests.support.on_uvloop import on_uvloop

AN_HOUR_MS = 3_600_000
MIB = 1024 * 1024


def _spend_burst(early: EarlyFlushes, now_sec: float) -> None:
    for _ in range(BURST_FLUSHES):
        assert not early.wait_sec(now_sec)
        early.take(0)


def test_small_flushes_above_the_burst_wait_for_the_rate() -> None:
    early = EarlyFlushes(2, 10.0)
    _spend_burst(early, 10.0)
    assert early.wait_sec(10.0) == pytest.approx(1 / FLUSHES_PER_SEC)
    assert early.wait_sec(10.0 + 1 / FLUSHES_PER_SEC) == pytest.approx(0)


def test_tokens_of_a_long_rest_are_not_more_than_the_burst() -> None:
    early = EarlyFlushes(2, 10.0)
    _spend_burst(early, 10.0)
    _spend_burst(early, 10_000.0)
    assert early.wait_sec(10_000.0) > 0


def test_flushes_that_store_enough_do_not_wait() -> None:
    early = EarlyFlushes(2, 10.0)
    _spend_burst(early, 10.0)
    later = 10.0 + 1 / FLUSHES_PER_SEC
    for _ in range(1000):
        assert early.wait_sec(later) == pytest.approx(0)
        early.take(FREE_BYTES)


def test_without_early_flushes_none_has_a_place() -> None:
    early = EarlyFlushes(0, 10.0)
    assert not early.are_allowed
    assert not early.have_place(0)


@on_uvloop
async def test_a_record_does_not_wait_for_its_time() -> None:
    async with in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=2) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            await client.send_produce(topic, {0: wire.batch([b"x"])})
            assert (await client.receive_produce())[1][0].error_code == 0


@on_uvloop
async def test_no_more_than_allowed_begin_early_and_the_next_follow() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=2) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic(partitions=6)
        with broker.objects.hold("put_if_absent", "*.kfs") as hold:
            await client.send_produce(topic, {number: wire.batch([b"x"]) for number in range(6)})
            await until(lambda: hold.waiting == 2, "two are being flushed")
            flushing = [number for number in range(6) if broker.partition(topic, number).flush_tasks]
            assert len(flushing) == 2
        _, parts = await client.receive_produce()
        assert {part.error_code for part in parts.values()} == {0}


@on_uvloop
async def test_what_comes_during_an_early_flush_gathers() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=1) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.kfs") as hold:
            await client.send_produce(topic, {0: wire.batch([b"first"])})
            await hold.reached()
            for _ in range(4):
                await client.send_produce(topic, {0: wire.batch([b"later"])})
            await until(lambda: len(broker.process.serving.purgatory) == 5, "all have come")
        offsets = [(await client.receive_produce())[1][0].base_offset for _ in range(5)]
        assert offsets == [0, 1, 2, 3, 4]
        assert len(await broker.objects.keys("*.kfs")) == 2


@on_uvloop
async def test_an_index_on_its_way_takes_no_place() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=1) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic(partitions=2)
        with broker.objects.hold("put_if_absent", "*.index") as hold:
            for number in (0, 1):
                await client.send_produce(topic, {number: wire.batch([b"x"])})
                assert (await client.receive_produce())[1][number].error_code == 0
            assert hold.waiting == 2


@on_uvloop
async def test_a_trickle_beyond_the_burst_is_answered_in_time() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=2) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic()
        for offset in range(BURST_FLUSHES + 20):
            await client.send_produce(topic, {0: wire.batch([b"x"])})
            assert (await client.receive_produce())[1][0].base_offset == offset


@on_uvloop
async def test_a_stream_that_has_paused_is_flushed_early() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=2) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic()
        for _ in range(2):
            await client.send_produce(topic, {0: wire.batch([bytes(STREAM_BYTES)])})
            assert (await client.receive_produce())[1][0].error_code == 0


@on_uvloop
async def test_a_stream_gathers_while_others_are_flushed_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "PAUSE_SEC", 3600.0)
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=2, segment_bytes=MIB) as broker,
        broker.connect() as client,
        broker.connect() as other,
    ):
        topic = await broker.create_topic(partitions=2)
        await client.send_produce(topic, {0: wire.batch([bytes(STREAM_BYTES)])})
        await until(lambda: len(broker.process.serving.purgatory) == 1, "it has come")
        await other.send_produce(topic, {1: wire.batch([b"x"])})
        assert (await other.receive_produce())[1][1].error_code == 0
        assert broker.partition(topic, 0).high_watermark == 0
        await client.send_produce(topic, {0: wire.batch([bytes(STREAM_BYTES)])})
        offsets = [(await client.receive_produce())[1][0].base_offset for _ in range(2)]
        assert offsets == [0, 1]
        assert len(await broker.objects.keys("*/0/*.kfs")) == 1


@on_uvloop
async def test_a_flush_that_is_cancelled_gives_its_place_back() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=1) as broker,
        broker.connect() as client,
        broker.connect() as other,
    ):
        topic = await broker.create_topic(partitions=2)
        with broker.objects.hold("put_if_absent", "*.kfs") as hold:
            await client.send_produce(topic, {0: wire.batch([b"a"])})
            await hold.reached()
            await other.send_produce(topic, {1: wire.batch([b"b"])})
            await until(lambda: len(broker.process.serving.purgatory) == 2, "both have come")
            (flush,) = broker.partition(topic, 0).flush_tasks
            flush.cancel()
            await until(lambda: not broker.partition(topic, 0).flush_tasks, "it has ended")
        assert (await other.receive_produce())[1][1].error_code == 0


@on_uvloop
async def test_a_stop_flushes_what_waits_for_its_turn() -> None:
    async with (
        in_process_broker(flush_interval_ms=AN_HOUR_MS, early_flushes=1) as broker,
        broker.connect() as client,
    ):
        topic = await broker.create_topic(partitions=3)
        with broker.objects.hold("put_if_absent", "*.kfs") as hold:
            await client.send_produce(topic, {number: wire.batch([b"x"]) for number in range(3)})
            await until(lambda: hold.waiting == 1, "one is being flushed")
            broker.stop_signal.set()
            await until(lambda: hold.waiting == 3, "all are being flushed")
        _, parts = await client.receive_produce()
        assert {part.error_code for part in parts.values()} == {0}
