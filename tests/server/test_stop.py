"""A stopping broker and its waiting clients, and a start that comes to nothing."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from kafscale.broker.process import EXIT_FAILED, EXIT_STOPPED
from kafscale.errors import StartupError
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Changes, Snapshot
from kafscale.settings.kinds import Address
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import NotStartedError, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_MS

AN_HOUR_MS = 3_600_000


@on_uvloop
async def test_a_stop_flushes_and_answers_produces_that_wait() -> None:
    async with in_process_broker(flush_interval_ms=AN_HOUR_MS) as broker:
        topic = await broker.create_topic(partitions=3)
        async with broker.connect() as client:
            for partition in (0, 1, 2, 0):
                await client.send_produce(topic, {partition: wire.batch([b"%d" % partition])})
            logs = [broker.partition(topic, index) for index in range(3)]
            await until(
                lambda: sum(one.log.waiting.record_count for one in logs if one.log and one.log.waiting) == 4,
                "all has come",
            )
            stopping = asyncio.create_task(broker.stop())
            offsets = []
            for _ in range(4):
                _, parts = await client.receive_produce()
                offsets += [(index, part.error_code, part.base_offset) for index, part in parts.items()]
            assert offsets == [(0, 0, 0), (1, 0, 0), (2, 0, 0), (0, 0, 1)]
            assert await client.closed_by_peer()
            assert await stopping == EXIT_STOPPED
    async with (
        in_process_broker(metadata=broker.metadata, objects=broker.objects) as again,
        again.connect() as client,
    ):
        fetched = await client.fetch(topic, dict.fromkeys(range(3), 0))
        values = {index: wire.records_in(part.records) for index, part in fetched.items()}
        assert values == {0: [(0, b"0"), (1, b"0")], 1: [(0, b"1")], 2: [(0, b"2")]}


@on_uvloop
async def test_a_stop_answers_fetches_that_wait() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            await client.send_fetch(topic, {0: 0}, max_wait_ms=60_000)
            await until(lambda: broker.partition(topic)._listeners, "the fetch waits")
            stopping = asyncio.create_task(broker.stop())
            part = (await client.receive_fetch())[0]
            assert (part.error_code, bytes(part.records or b"")) == (0, b"")
            assert await client.closed_by_peer()
            assert await stopping == EXIT_STOPPED


@on_uvloop
async def test_a_stop_lets_a_request_that_was_begun_come_to_its_end() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = CreateTopicsRequest.CreatableTopic(
            name="new", num_partitions=50, replication_factor=-1, assignments=[], configs=[]
        )
        await client.send(CreateTopicsRequest(topics=[topic], timeout_ms=PATIENCE_MS, validate_only=False), 7)
        await until(lambda: broker.process.basics.listener._requests, "the request is in flight")
        stopping = asyncio.create_task(broker.stop())
        assert (await client.receive(CreateTopicsResponse, 7)).topics[0].error_code == 0
        assert await stopping == EXIT_STOPPED


@on_uvloop
async def test_a_stopping_broker_reads_and_accepts_nothing_more() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client, broker.connect() as other:
            await other.call(ApiVersionsRequest(), ApiVersionsResponse, 0)
            with broker.objects.hold("put_if_absent", "*.entry") as hold:
                await client.send_produce(topic, {0: wire.batch([b"waits"])})
                await hold.reached()
                stopping = asyncio.create_task(broker.stop())
                connections = broker.process.basics.listener._connections
                await until(lambda: all(one.is_stopping for one in connections), "nothing is read any more")
                assert len(connections) == 2
                await other.send_produce(topic, {0: wire.batch([b"too late"])})
                with pytest.raises(OSError):
                    async with broker.connect():
                        pass
                await asyncio.sleep(0.01)
            assert (await client.receive_produce())[1][0].base_offset == 0
            assert await other.closed_by_peer()
            assert await stopping == EXIT_STOPPED
    async with in_process_broker(metadata=broker.metadata, objects=broker.objects) as again:
        assert again.partition(topic).high_watermark == 1


@on_uvloop
async def test_a_stop_gives_up_on_a_store_and_acknowledges_nothing() -> None:
    async with in_process_broker(shutdown_timeout_ms=50) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as client:
            with broker.objects.hold("put_if_absent", "*.entry") as hold:
                await client.send_produce(topic, {0: wire.batch([b"lost"])})
                await hold.reached()
                assert await broker.stop() == EXIT_FAILED
            assert await client.closed_by_peer()
    async with in_process_broker(metadata=broker.metadata, objects=broker.objects) as again:
        assert again.partition(topic).high_watermark == 0


@on_uvloop
async def test_stop_gives_up_on_a_store_where_another_takes_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metadata, objects = MemoryStore(), ControlledStore()
    async with in_process_broker(metadata=metadata, objects=objects, shutdown_timeout_ms=50) as broker:
        topic = await broker.create_topic(partitions=2)
        async with in_process_broker(metadata=metadata, objects=objects, broker_id=1) as stays:
            logs = broker.process.serving.logs
            await until(lambda: logs.partition_count == 1, "each leads one")
            index = next(logs.partitions()).id.index
            async with broker.connect() as client:
                with objects.hold("put_if_absent", "*.entry") as hold:
                    await client.send_produce(topic, {index: wire.batch([b"lost"])})
                    await hold.reached()
                    assert await broker.stop() == EXIT_FAILED
                assert await client.closed_by_peer()
            assert "stopping without having flushed everything" in caplog.text
            await until(lambda: stays.process.serving.logs.partition_count == 2, "the other one leads")
            assert stays.partition(topic, index).high_watermark == 0


@on_uvloop
async def test_a_client_that_reads_nothing_hardly_delays_a_stop() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as producer, broker.connect(receive_buffer_bytes=4096) as deaf:
            for _ in range(6):
                await producer.produce(topic, 0, wire.batch([bytes(1_000_000)]))
            await deaf.send_fetch(topic, {0: 0}, partition_max_bytes=1 << 26)
            connections = broker.process.basics.listener._connections
            await until(lambda: any(not one.takes_replies for one in connections), "the reply is stuck")
            assert await broker.stop() == EXIT_STOPPED
            assert not connections


@on_uvloop
async def test_a_start_that_waits_for_its_view_can_be_stopped() -> None:
    metadata = MemoryStore()
    metadata.watch = _silent_watch  # type: ignore[method-assign]
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, stop.set)
    with pytest.raises(NotStartedError) as ended:
        async with in_process_broker(metadata=metadata, stop_signal=stop):
            pass
    assert ended.value.exit_status == EXIT_STOPPED
    assert not (await metadata.range(keys.BROKERS)).items


async def _silent_watch(prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
    """A watch that the store does not answer."""
    await asyncio.Event().wait()
    yield Snapshot(items=(), revision=0)


@on_uvloop
async def test_an_address_that_is_taken_is_named() -> None:
    async with in_process_broker() as broker:
        with pytest.raises(StartupError, match=rf"127\.0\.0\.1:{broker.port}.*KAFSCALE_BROKER_ADDR"):
            async with in_process_broker(broker_addr=Address("127.0.0.1", broker.port)):
                pass
