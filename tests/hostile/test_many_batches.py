"""Very many batches, or old messages, for one partition in one Produce: refused without a walk through them."""

import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.producer import ProduceResponse

from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.nightly import by_day
from tests.support.watcher import GIVE_UP_SEC, TOPIC, watching

ATTACK_BYTES = 80_000_000
REQUESTS = by_day(1, by_night=8)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path) as running:
        yield running


def old_message(magic: int) -> bytes:
    """The smallest message of an old magic."""
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", int(time.time() * 1000)) if magic else b"")
    body += struct.pack(">ii", -1, -1)
    body = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(body)) + body


BATCHES = wire.batch([b"a value of a few bytes"])
ATTACKS = [
    pytest.param(9, BATCHES, ErrorCode.INVALID_RECORD, id="batches"),
    pytest.param(
        2, BATCHES, ErrorCode.INVALID_RECORD, id="batches in an old request", marks=pytest.mark.nightly
    ),
    pytest.param(
        1, old_message(0), ErrorCode.MESSAGE_TOO_LARGE, id="messages of magic 0", marks=pytest.mark.nightly
    ),
    pytest.param(2, old_message(1), ErrorCode.MESSAGE_TOO_LARGE, id="messages of magic 1"),
]


@pytest.mark.parametrize(("version", "one", "code"), ATTACKS)
def test_request_of_many_batches_makes_no_client_wait(
    broker: KafscaleBroker, version: int, one: bytes, code: ErrorCode
) -> None:
    records = one * (ATTACK_BYTES // len(one))
    with watching(broker) as watcher, wire.connect(broker, GIVE_UP_SEC) as attacker:
        for _ in range(REQUESTS):
            reply = attacker.call(wire.produce_request(TOPIC, {0: records}), ProduceResponse, version)
            assert reply.responses[0].partition_responses[0].error_code == code
        watcher.wait_for_rounds()
