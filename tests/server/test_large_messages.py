"""Large messages: decoded one at a time beside the loop, and answered in pieces."""

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest
from kafka.protocol.consumer import FetchResponse

from kafscale.handlers import fetch
from kafscale.protocol.api_keys import ApiKey
from kafscale.server import dispatcher
from tests.support.driven_connection import DrivenConnection
from tests.support.hand_made import array, frame, repeated, string
from tests.support.in_process_broker import in_process_broker
from tests.support.loop_turns import turns_beside
from tests.support.on_uvloop import on_uvloop

CLIENTS = 4
MANY = 10_000


def metadata_request() -> bytes:
    return frame(ApiKey.METADATA, 4, array(string(f"missing{index}") for index in range(MANY)) + b"\x00")


def fetch_request() -> bytes:
    partitions = array(struct.pack(">iqi", index, 0, 1) for index in range(MANY))
    start = struct.pack(">iiiib", -1, 1, 1, 1 << 20, 0)
    return frame(ApiKey.FETCH, 4, start + array([string("missing") + partitions]))


@pytest.mark.parametrize(
    ("module", "name", "request_bytes"),
    [(dispatcher, "decode_request", metadata_request()), (fetch, "decode_asked_once", fetch_request())],
    ids=["Metadata", "Fetch"],
)
@on_uvloop
async def test_large_messages_are_decoded_one_at_a_time(
    module: Any, name: str, request_bytes: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode: Callable[..., Any] = getattr(module, name)
    lock, under_way, most = threading.Lock(), 0, 0

    def counted(*given: Any) -> Any:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        try:
            return decode(*given)
        finally:
            with lock:
                under_way -= 1

    monkeypatch.setattr(module, name, counted)
    async with in_process_broker() as broker:

        async def ask() -> None:
            async with broker.connect() as client:
                await client.send_bytes(request_bytes)
                await client.receive_frame()

        await asyncio.gather(*(ask() for _ in range(CLIENTS)))
    assert most == 1


@on_uvloop
async def test_others_run_while_a_large_answer_is_encoded() -> None:
    # So many that the request is decoded at once, on the loop: only its answer takes turns.
    count = dispatcher.LARGE_MESSAGE_BYTES // 32
    acl = b"\x02" + string("t") + b"\x03" + string("User:a") + string("*") + b"\x03\x03"
    async with in_process_broker() as broker, broker.connect() as client:

        async def ask() -> None:
            await client.send_bytes(frame(ApiKey.CREATE_ACLS, 1, repeated(acl, count)))
            await client.receive_frame()

        assert await turns_beside(ask()) >= count // 256


@on_uvloop
async def test_others_run_while_a_large_fetch_is_answered() -> None:
    async with in_process_broker() as broker, broker.connect() as client:

        async def ask() -> None:
            await client.send_bytes(fetch_request())
            await client.receive_frame()

        # They are looked up in turns, and answered in turns.
        assert await turns_beside(ask()) >= 2 * (MANY // 256)


@on_uvloop
async def test_a_large_fetch_is_not_read_from_another_clients_bytes() -> None:
    """It lies in the buffer that all connections receive into, which others fill while it waits for its decoding."""
    indexes = range(5_000)
    partitions = array(struct.pack(">iqi", index, 0, 1) for index in indexes)
    start = struct.pack(">iiiib", -1, 1, 1, 1 << 20, 0)
    async with in_process_broker() as broker:
        driven = DrivenConnection(broker)
        driven.feed(frame(ApiKey.FETCH, 4, start + array([string("missing") + partitions])))
        (reply,) = await driven.next_frames(1)
        answer = FetchResponse.decode(reply, version=4, header=True)
        assert [part.partition_index for part in answer.responses[0].partitions] == list(indexes)
        await driven.end()
