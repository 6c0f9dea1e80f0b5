"""Empty tagged fields by the million, in a request's header and its body: refused at once, and nobody waits."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.wire import uvarint
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.watcher import watching

MIB = 1024 * 1024
TAGS = uvarint(24 * MIB) + bytes(48 * MIB)
TIMES = 3


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        yield broker


def frame(api_key: ApiKey, version: int, after_client_id: bytes) -> bytes:
    payload = struct.pack(">hhi", api_key, version, 1) + b"\x00\x01x" + after_client_id
    return struct.pack(">i", len(payload)) + payload


@pytest.mark.parametrize(
    ("api_key", "version", "body"),
    [
        (ApiKey.API_VERSIONS, 3, b""),
        (ApiKey.METADATA, 9, b"\x00\x01\x01\x00"),
        (ApiKey.PRODUCE, 9, b"\x00\x00\x00" + bytes(3) + b"\x01\x01"),
        (
            ApiKey.FETCH,
            12,
            struct.pack(">iiiib", -1, 0, 0, 0, 0) + struct.pack(">ii", 0, -1) + b"\x01\x01\x01",
        ),
    ],
    ids=["header", "message", "produce", "fetch"],
)
def test_millions_of_tagged_fields_are_refused_at_once(
    broker: KafscaleBroker, api_key: ApiKey, version: int, body: bytes
) -> None:
    header_tags = b"\x00" if body else b""
    with watching(broker) as watcher:
        for _ in range(TIMES):
            with wire.connect(broker, 120.0) as connection:
                connection.send_bytes(frame(api_key, version, header_tags + body + TAGS))
                connection.assert_closed_by_peer()
        watcher.wait_for_rounds()
