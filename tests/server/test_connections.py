"""Which connections are accepted, which requests end theirs, and that one's end is not another's."""

import asyncio
import struct

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from kafscale.handlers.fetch import LARGE_BODY_BYTES
from kafscale.handlers.routes import ROUTES
from kafscale.ops.metrics import FrameRefusal
from kafscale.protocol.api_keys import ApiKey
from tests.support import wire
from tests.support.driven_connection import DrivenConnection
from tests.support.in_process_broker import Client, dispatcher_of, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

UNSUPPORTED_VERSION = 35


def api_versions() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="tests", client_software_version="1")


def request(api_key: int, api_version: int, body: bytes = b"") -> bytes:
    """A frame with a header of version 1, or 2 where `body` begins with its tagged fields."""
    payload = struct.pack(">hhi", api_key, api_version, 7) + b"\x00\x05tests" + body
    return struct.pack(">i", len(payload)) + payload


async def answers(client: Client) -> bool:
    return bool((await client.call(api_versions(), ApiVersionsResponse, 0)).api_keys)


@on_uvloop
async def test_connections_above_the_limit_are_closed() -> None:
    async with in_process_broker(max_connections=2) as broker:
        async with broker.connect() as first:
            async with broker.connect() as second:
                assert await answers(first)
                assert await answers(second)
                async with broker.connect() as third:
                    assert await third.closed_by_peer()
                assert broker.metrics.connections.rejected == 1
                assert await answers(first)
            await until(lambda: broker.connection_count == 1, "a place is free")
            async with broker.connect() as fourth:
                assert await answers(fourth)
        await until(lambda: broker.connection_count == 0, "all are gone")
        assert broker.metrics.connections.accepted == 4


NOT_SERVED = [
    (9999, 0),
    (-1, 0),
    (-32768, -32768),
    (int(ApiKey.PRODUCE), 13),
    (int(ApiKey.PRODUCE), -1),
    (int(ApiKey.FETCH), 3),
    (int(ApiKey.FETCH), 14),
    (int(ApiKey.METADATA), 32767),
]


@pytest.mark.parametrize(("api_key", "api_version"), NOT_SERVED)
@on_uvloop
async def test_an_unserved_api_or_version_ends_the_connection(api_key: int, api_version: int) -> None:
    async with in_process_broker() as broker, broker.connect() as other, broker.connect() as client:
        assert await answers(client)
        await client.send_bytes(request(api_key, api_version, bytes(20)))
        assert await client.closed_by_peer()
        assert broker.metrics.frames_refused[FrameRefusal.UNSUPPORTED_API] == 1
        assert await answers(other)


@pytest.mark.parametrize("api_version", [-1, 5, 99, 32767])
@on_uvloop
async def test_an_unknown_version_of_api_versions_gets_the_range(
    api_version: int,
) -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await client.send_bytes(request(ApiKey.API_VERSIONS, api_version, b"\x00\x02a\x02b\x00"))
        reply = ApiVersionsResponse.decode(await client.receive_frame(), version=0, header=True)
        assert (reply.header.correlation_id, reply.error_code) == (7, UNSUPPORTED_VERSION)
        (own,) = reply.api_keys
        assert (own.api_key, own.min_version, own.max_version) == (ApiKey.API_VERSIONS, 0, 4)
        assert await answers(client)


FIRST_VERSION_WITH_A_BODY = {ApiKey.API_VERSIONS: 3, ApiKey.LIST_GROUPS: 4}
"""Of APIs whose lowest versions have none that could break off."""


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.api.name.lower())
@on_uvloop
async def test_a_truncated_body_ends_only_its_own_connection(route: object) -> None:
    api, version = route.api, route.min_version  # type: ignore[attr-defined]
    version = FIRST_VERSION_WITH_A_BODY.get(api, version)
    async with in_process_broker() as broker, broker.connect() as other, broker.connect() as client:
        await client.send_bytes(request(api, version, b"\x00\x7f\xff"))
        assert await client.closed_by_peer()
        assert broker.metrics.frames_refused[FrameRefusal.MALFORMED] == 1
        assert await answers(other)


@on_uvloop
async def test_a_header_that_breaks_off_ends_the_connection() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await client.send_bytes(struct.pack(">ihhih", 10, ApiKey.METADATA, 9, 1, 500))
        assert await client.closed_by_peer()
        assert broker.metrics.frames_refused[FrameRefusal.MALFORMED] == 1


@on_uvloop
async def test_a_malformed_large_message_ends_the_connection() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await client.send_bytes(request(ApiKey.METADATA, 1, b"\x7f\xff\xff\xff" + bytes(200_000)))
        assert await client.closed_by_peer()
        assert broker.metrics.frames_refused[FrameRefusal.MALFORMED] == 1
        await until(lambda: broker.budget.used_bytes == 0, "the frame is given back")
        assert broker.pool.spare_bytes == 1024 * 1024  # and its slab is there for the next


class _Broken:
    """A view that cannot be read."""

    def __getattr__(self, name: str) -> object:
        raise RuntimeError("a defect")


@pytest.mark.parametrize("large", [False, True])
@on_uvloop
async def test_a_handler_that_fails_ends_the_connection_and_says_so(
    large: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_process_broker() as broker, broker.connect() as other, broker.connect() as client:
        services = dispatcher_of(broker)._broker
        view, producers = services.view, services.producer_ids
        object.__setattr__(services, "view", _Broken())
        object.__setattr__(services, "producer_ids", _Broken())
        names = b"".join(b"\x01\x00" + bytes([65 + n % 26]) * 256 for n in range(700 if large else 1))
        await client.send_bytes(request(ApiKey.METADATA, 1, struct.pack(">i", 700 if large else 1) + names))
        assert await client.closed_by_peer()
        object.__setattr__(services, "view", view)
        object.__setattr__(services, "producer_ids", producers)
        assert await answers(other)
    assert [record for record in caplog.records if record.exc_text and "a defect" in record.exc_text]


@on_uvloop
async def test_a_failed_fetch_ends_its_connection_and_no_produce() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        async with broker.connect() as waiting, broker.connect() as producer:
            await waiting.send_fetch(topic, {0: 0}, max_wait_ms=60_000)
            partition = broker.partition(topic)
            await until(lambda: partition._listeners, "the fetch waits")
            reader = broker.process.serving.reader
            reader.read = None  # type: ignore[assignment, method-assign]  # a defect
            part = await producer.produce(topic, 0, wire.batch([b"x"]))
            assert (part.error_code, part.base_offset) == (0, 0)
            assert await waiting.closed_by_peer()
            del reader.read
            fetched = await producer.fetch(topic, {0: 0})
            assert wire.records_in(fetched[0].records) == [(0, b"x")]
            assert broker.budget.used_bytes == 0


@on_uvloop
async def test_a_connection_that_only_opens_and_leaves_is_forgotten() -> None:
    async with in_process_broker() as broker:
        for _ in range(50):
            async with broker.connect():
                pass
        await until(
            lambda: broker.metrics.connections.accepted == 50 and broker.connection_count == 0, "all are gone"
        )
        assert not broker.process.basics.listener._connections


@on_uvloop
async def test_client_gone_during_decoding_leaves_no_waiting_fetch() -> None:
    async with in_process_broker() as broker:
        topic = await broker.create_topic()
        request = wire.fetch_request(topic, {0: 0}, max_wait_ms=2**31 - 1)
        request.rack_id = "r" * 32_767
        driven, client = DrivenConnection(broker), Client(None)  # type: ignore[arg-type]
        frame = client.frame(request, 11)
        assert len(frame) > LARGE_BODY_BYTES
        driven.feed(frame[:1000])
        driven.feed(frame[1000:])
        assert broker.budget.used_bytes > LARGE_BODY_BYTES
        await driven.end()
        await until(lambda: broker.budget.used_bytes == 0, "the request is decoded")
        for _ in range(10):
            await asyncio.sleep(0)
        assert not broker.partition(topic).has_listeners


class HeldMemory:
    releases = 0

    def release(self) -> None:
        self.releases += 1


async def test_reply_to_a_client_that_has_gone_gives_its_memory_back() -> None:
    """As many as are in flight: memory that replies keep is counted, and what is counted makes replies small."""
    async with in_process_broker() as broker:
        driven = DrivenConnection(broker)
        early, late = (driven.connection.open_slot(ApiKey.FETCH) for _ in range(2))
        held, ended = HeldMemory(), []
        early.abandoned = lambda: ended.append("early")
        await driven.end()
        assert ended == ["early"]
        late.abandoned = lambda: ended.append("late")
        assert ended == ["early", "late"]
        late.send((b"reply",), held)
        assert held.releases == 1
