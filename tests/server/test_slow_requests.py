"""Requests through a whole broker: their stages are counted, and slow ones are logged."""

import logging
import time
from collections.abc import Iterator
from typing import cast

import pytest

from kafscale.ops.histogram import Histogram
from kafscale.ops.metrics import Metrics
from kafscale.server.connection import Connection
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

SLOW_MS = 20
TIMER_SEC = 0.001  # libuv's timers count whole milliseconds, and so may end a wait that much early


def counted(metrics: Metrics) -> dict[str, int]:
    """How many requests went through each stage."""
    stages: list[tuple[str, Histogram]] = []
    stages += [(f"FETCH {name}", one) for name, one in metrics.fetch_stages]
    stages += [(f"PRODUCE {name}", one) for name, one in metrics.produce_stages]
    return {name: sum(one.counts) for name, one in stages if sum(one.counts)}


def slow_lines(caplog: pytest.LogCaptureFixture) -> Iterator[logging.LogRecord]:
    return (record for record in caplog.records if record.message == "a request was slow")


async def slow_time() -> None:
    """Until a request that began before is a slow one."""
    began_sec = time.perf_counter()
    await until(lambda: time.perf_counter() > began_sec + SLOW_MS / 1000, "time goes on")


async def cold_fetch(broker: InProcessBroker, topic: str) -> None:
    broker.forget_cached(topic)
    async with broker.connect() as client:
        with broker.objects.hold("read_into", "*.entry") as hold:
            await client.send_fetch(topic, {0: 0})
            await hold.reached()
            await slow_time()
        assert wire.records_in(bytes((await client.receive_fetch())[0].records))


@on_uvloop
async def test_a_produce_goes_through_every_stage_once() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        stages = ("append", "commit", "flush_wait", "queue", "reply", "upload")
        assert counted(broker.metrics) == {f"PRODUCE {stage}": 1 for stage in stages}


@on_uvloop
async def test_a_fetch_from_memory_neither_waits_nor_loads() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        await client.fetch(topic, {0: 0})
        found = {name for name in counted(broker.metrics) if name.startswith("FETCH")}
        assert found == {"FETCH queue", "FETCH plan", "FETCH send"}


@on_uvloop
async def test_an_idle_consumer_waits_and_is_not_active() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for _ in range(3):
            await client.fetch(topic, {0: 0}, max_wait_ms=30)
        stages = broker.metrics.fetch_stages
        waited_sec = 3 * (0.030 - TIMER_SEC)
        assert sum(stages.wait.counts) == 3 and stages.wait.total >= waited_sec
        assert stages.active.total < broker.metrics.apis["FETCH"].duration.total - waited_sec + 0.001


@on_uvloop
async def test_time_in_the_object_store_is_load() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        await cold_fetch(broker, topic)
        stages = broker.metrics.fetch_stages
        assert stages.load.total >= SLOW_MS / 1000
        assert stages.check.total > 0


@on_uvloop
async def test_a_slow_fetch_is_logged_with_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    async with in_process_broker(slow_request_ms=SLOW_MS) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        await cold_fetch(broker, topic)
        (line,) = (one for one in slow_lines(caplog) if vars(one)["api"] == "FETCH")
        fields = vars(line)
        assert (fields["client"], fields["client_id"]) == ("127.0.0.1", "tests")
        assert (fields["segments_cached"], fields["segments_missing"], fields["gets"]) == (0, 1, 1)
        assert fields["load_ms"] >= SLOW_MS
        assert fields["reply_bytes"] > 0


@on_uvloop
async def test_a_slow_produce_is_logged_with_its_stages(caplog: pytest.LogCaptureFixture) -> None:
    async with in_process_broker(slow_request_ms=SLOW_MS) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"x"])})
            await hold.reached()
            await slow_time()
        await client.receive_produce()
        (line,) = slow_lines(caplog)
        assert vars(line)["upload_ms"] >= SLOW_MS
        assert vars(line)["puts"] == 1


@on_uvloop
async def test_slow_lines_of_one_client_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    async with in_process_broker(slow_request_ms=SLOW_MS) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        for _ in range(3):
            await cold_fetch(broker, topic)
        assert len([one for one in slow_lines(caplog) if vars(one)["api"] == "FETCH"]) == 1


@on_uvloop
async def test_no_request_is_slow_when_the_limit_is_0(caplog: pytest.LogCaptureFixture) -> None:
    async with in_process_broker(slow_request_ms=0) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await client.produce(topic, 0, wire.batch([b"x"]))
        await cold_fetch(broker, topic)
        assert not list(slow_lines(caplog))


@on_uvloop
async def test_a_request_behind_another_waits_in_the_queue() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(topic, {0: wire.batch([b"x"])})
            await client.send_fetch(topic, {0: 0})
            await hold.reached()
            (connection,) = cast(set[Connection], broker.process.basics.listener._connections)
            await until(lambda: connection._kept, "the fetch has arrived")
            await slow_time()
        await client.receive_produce()
        await client.receive_fetch()
        assert broker.metrics.fetch_stages.queue.total >= SLOW_MS / 1000
