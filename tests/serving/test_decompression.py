"""Fetches of clients that have not said that they have the codecs, and of those that have."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from kafscale.log.reading import reply_memory
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving import decompression, reply_reads
from kafscale.serving.decompression import CLIENTS_WITH_CODECS
from kafscale.serving.idle_fetch import IdleFetch
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

VALUES = [b"a value that shrinks " * 50] * 20
RARE = ("snappy", "lz4", "zstd")


def _batch(codec: str = "snappy", values: Sequence[bytes] = VALUES) -> bytes:
    return wire.batch(values, codec=codec, timestamp=1_700_000_000_000)


async def introduce(client: Client, name: str, version: int = wire.INTRODUCTION_VERSION) -> int:
    """Sends a client's first request; returns the error code."""
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
    reply = await client.call(request, ApiVersionsResponse, version)
    return int(reply.error_code)


@asynccontextmanager
async def broker_with(*batches: bytes, **settings: Any) -> AsyncIterator[tuple[InProcessBroker, str]]:
    """A broker that stores these batches in a partition, and the topic's name."""
    async with in_process_broker(**{"codec_clients": (), **settings}) as broker:
        topic = await broker.create_topic()
        async with broker.connect() as producer:
            for one in batches:
                assert (await producer.produce(topic, 0, one)).error_code == 0
        yield broker, topic


def _codecs(part: Any) -> list[int]:
    return [one.attributes & 7 for one in wire.batches_in(part.records)]


def _values(part: Any) -> list[bytes | None]:
    return [value for _, value in wire.records_in(part.records)]


@pytest.mark.parametrize("codec", RARE)
@on_uvloop
async def test_a_client_that_says_nothing_gets_plain_batches(codec: str) -> None:
    async with broker_with(_batch(codec)) as (broker, topic), broker.connect() as client:
        part = (await client.fetch(topic, {0: 0}))[0]
        assert _codecs(part) == [0]
        assert _values(part) == VALUES
        assert broker.metrics.decompression.batches == 1
        assert broker.metrics.decompression.bytes == len(part.records)
        assert broker.metrics.topic(topic).bytes_out == len(part.records)
        assert broker.metrics.topic(topic).records_out == len(VALUES)


@pytest.mark.parametrize("name", sorted(CLIENTS_WITH_CODECS))
@on_uvloop
async def test_a_known_client_gets_the_stored_bytes(name: str) -> None:
    sent = _batch()
    async with broker_with(sent) as (broker, topic), broker.connect() as client:
        assert await introduce(client, name) == 0
        part = (await client.fetch(topic, {0: 0}))[0]
        assert bytes(part.records)[21:] == sent[21:]
        assert broker.metrics.decompression.batches == 0


@pytest.mark.parametrize(
    ("further", "name", "codecs"),
    [
        ((), "kafka-python", [0]),
        ((), "Apache-Kafka-Java", [0]),
        (("kafka-python",), "kafka-python", [2]),
        (("kafka-python",), "kafkajs", [0]),
        (("*",), "kafkajs", [2]),
    ],
)
@on_uvloop
async def test_names_decide_and_the_setting_adds_some(
    further: tuple[str, ...], name: str, codecs: list[int]
) -> None:
    async with broker_with(_batch(), codec_clients=further) as (broker, topic), broker.connect() as client:
        await introduce(client, name)
        assert _codecs((await client.fetch(topic, {0: 0}))[0]) == codecs


@on_uvloop
async def test_with_all_clients_named_silence_will_do() -> None:
    async with broker_with(_batch(), codec_clients=("*",)) as (broker, topic), broker.connect() as client:
        assert _codecs((await client.fetch(topic, {0: 0}))[0]) == [2]


@on_uvloop
async def test_what_a_client_says_counts_for_its_connection_only() -> None:
    async with (
        broker_with(_batch()) as (broker, topic),
        broker.connect() as client,
        broker.connect() as other,
    ):
        await introduce(client, "librdkafka")
        assert _codecs((await other.fetch(topic, {0: 0}))[0]) == [0]
        assert _codecs((await client.fetch(topic, {0: 0}))[0]) == [2]
        await introduce(client, "kafka-python")
        assert _codecs((await client.fetch(topic, {0: 0}))[0]) == [0]


@on_uvloop
async def test_a_refused_name_says_nothing() -> None:
    name = "librdkafka/"
    async with broker_with(_batch(), codec_clients=(name,)) as (broker, topic), broker.connect() as client:
        request = ApiVersionsRequest(client_software_name=name, client_software_version="1.0")
        await client.send(request, wire.INTRODUCTION_VERSION)
        error_code = (await client.receive_frame())[4:6]
        assert int.from_bytes(error_code, "big") == ErrorCode.INVALID_REQUEST
        assert _codecs((await client.fetch(topic, {0: 0}))[0]) == [0]


@on_uvloop
async def test_a_fetch_that_waits_at_the_end_gets_plain_batches() -> None:
    async with broker_with() as (broker, topic), broker.connect() as client, broker.connect() as other:
        await client.send_fetch(topic, {0: 0}, max_wait_ms=60_000)
        await other.produce(topic, 0, _batch())
        part = (await client.receive_fetch())[0]
        assert (_codecs(part), _values(part)) == ([0], VALUES)


@on_uvloop
async def test_a_fetch_known_as_idle_gets_plain_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    started = 0
    start = IdleFetch.start

    def counted(idle: IdleFetch) -> None:
        nonlocal started
        started += 1
        start(idle)

    monkeypatch.setattr(IdleFetch, "start", counted)
    async with broker_with() as (broker, topic), broker.connect() as client, broker.connect() as other:
        wait: dict[str, int] = {"max_wait_ms": 1_000}
        assert not (await client.fetch(topic, {0: 0}, **wait))[0].records
        await client.send_fetch(topic, {0: 0}, **wait)
        await until(lambda: started == 1, "its answer is known")
        await other.produce(topic, 0, _batch())
        part = (await client.receive_fetch())[0]
        while not part.records:  # The machine was so slow that the wait was over.
            part = (await client.fetch(topic, {0: 0}, **wait))[0]
        assert (_codecs(part), _values(part)) == ([0], VALUES)


@on_uvloop
async def test_a_reply_keeps_to_its_limits_and_loses_nothing() -> None:
    async with (
        broker_with(*[_batch(codec) for codec in RARE * 3]) as (broker, topic),
        broker.connect() as client,
    ):
        offset, values, replies = 0, list[bytes | None](), 0
        while offset < 9 * len(VALUES):
            part = (await client.fetch(topic, {0: offset}, partition_max_bytes=50_000))[0]
            assert 0 < len(part.records) <= 50_000
            values += _values(part)
            offset = wire.records_in(part.records)[-1][0] + 1
            replies += 1
        assert values == VALUES * 9
        assert replies > 4
        first = (await client.fetch(topic, {0: 0}, partition_max_bytes=1))[0]
        assert _values(first) == VALUES


@on_uvloop
async def test_the_whole_reply_keeps_to_its_limit() -> None:
    async with in_process_broker(codec_clients=()) as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=3)
        for number in range(3):
            await client.produce(topic, number, _batch())
        parts = await client.fetch(topic, {0: 0, 1: 0, 2: 0}, max_bytes=30_000)
        assert [_codecs(parts[number]) for number in range(3)] == [[0], [], []]
        assert {part.error_code for part in parts.values()} == {0}
        parts = await client.fetch(topic, {0: 0, 1: 0, 2: 0}, max_bytes=45_000)
        assert [_codecs(parts[number]) for number in range(3)] == [[0], [0], []]


@on_uvloop
async def test_a_batch_that_holds_too_much_is_sent_as_stored() -> None:
    bomb = _batch("zstd", [bytes(900_000)] * 20)
    async with broker_with(bomb, _batch()) as (broker, topic), broker.connect() as client:
        part = (await client.fetch(topic, {0: 0}))[0]
        assert _codecs(part)[0] == 4
        assert broker.metrics.decompression.batches <= 1


@on_uvloop
async def test_a_connection_that_ends_meanwhile_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, go_on = asyncio.Event(), asyncio.Event()

    async def held(*_: object) -> None:
        entered.set()
        await go_on.wait()

    released = 0
    release = reply_reads.ReplyReads.release

    def counted(reads: reply_reads.ReplyReads) -> None:
        nonlocal released
        released += 1
        release(reads)

    monkeypatch.setattr(decompression.Decompression, "apply", held)
    monkeypatch.setattr(reply_reads.ReplyReads, "release", counted)
    async with broker_with(_batch()) as (broker, topic):
        async with broker.connect() as client:
            await client.send_fetch(topic, {0: 0})
            await entered.wait()
            assert released == 0
        await until(lambda: released == 1, "its memory is given back")
    go_on.set()
    assert released == 1


@on_uvloop
async def test_a_reply_that_leaves_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_memory, "MAX_LINGERING_BYTES", 60_000)
    async with broker_with(_batch()) as (broker, topic), broker.connect() as client:
        for _ in range(10):
            assert _codecs((await client.fetch(topic, {0: 0}))[0]) == [0]
        await until(lambda: not broker.process.serving.reader.is_short_of_memory, "nothing is lent")
