"""Compact strings as long as a frame: as in Kafka they end their connection, and nobody looks into them."""

import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafscale.protocol.api_keys import ApiKey
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.flexible_body import NO_TAGS, NULL, array, int32, text, varint
from tests.support.watcher import GIVE_UP_SEC, TOPIC, watching

MIB = 1024 * 1024
TOPIC_CONFIG, APPEND = b"\x02", b"\x02"


def long_text(part: bytes) -> bytes:
    return varint(60 * MIB + 1) + part * (60 * MIB // len(part))


def alter_list() -> bytes:
    change = text("cleanup.policy") + APPEND + long_text(b"a,") + NO_TAGS
    return array([TOPIC_CONFIG + text(TOPIC) + array([change]) + NO_TAGS]) + b"\x01"


REQUESTS: dict[str, tuple[ApiKey, int, Callable[[], bytes]]] = {
    "client software": (ApiKey.API_VERSIONS, 3, lambda: long_text(b"a") + text("1")),
    "list config": (ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, alter_list),
    "group": (ApiKey.OFFSET_FETCH, 8, lambda: array([long_text(b"/") + NULL + NO_TAGS]) + b"\x00"),
    "produced topic": (
        ApiKey.PRODUCE,
        9,
        lambda: NULL + struct.pack(">hi", -1, 30_000) + array([long_text(b"t") + array([]) + NO_TAGS]),
    ),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    folder: Path = tmp_path_factory.mktemp("strings")
    with running_broker(folder, flush_interval_ms=0) as broker:
        yield broker


@pytest.mark.parametrize("name", REQUESTS)
def test_compact_string_of_60_mib_ends_its_connection(broker: KafscaleBroker, name: str) -> None:
    api_key, version, body = REQUESTS[name]
    payload = struct.pack(">hhi", api_key, version, 1) + b"\xff\xff" + NO_TAGS + body() + NO_TAGS
    with watching(broker) as watcher:
        with wire.connect(broker, GIVE_UP_SEC) as attacker:
            attacker.send_bytes(int32(len(payload)) + payload)
            attacker.assert_closed_by_peer()
        watcher.wait_for_rounds()
