"""A batch that breaks its format is refused with Kafka's code, and nothing of it is stored."""

import struct
from collections.abc import Callable, Iterator

import crc32c
import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support import wire
from tests.support.wire import Wire

CORRUPT_MESSAGE = 2
INVALID_TIMESTAMP = 32
INVALID_RECORD = 87

LENGTH_AT, MAGIC_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, COUNT_AT = 8, 16, 17, 21, 23, 57

Change = Callable[[bytearray], None]


def put(position: int, form: str, value: int, *, valid_crc: bool = True) -> Change:
    """Overwrites a field of the batch and, unless told otherwise, makes the CRC fit again."""

    def change(batch: bytearray) -> None:
        struct.pack_into(form, batch, position, value)
        if valid_crc:
            struct.pack_into(">I", batch, CRC_AT, crc32c.crc32c(bytes(batch[ATTRIBUTES_AT:])))

    return change


def flip_last_byte(batch: bytearray) -> None:
    batch[-1] ^= 1


def cut(count: int) -> Change:
    def change(batch: bytearray) -> None:
        del batch[-count:]

    return change


@pytest.fixture
def connection(broker: Peer) -> Iterator[Wire]:
    with wire.connect(broker) as opened:
        yield opened


def refusal(connection: Wire, topic: str, records: bytes) -> int:
    """The code with which the records are refused; checks that nothing of them was stored."""
    before = wire.list_offset(connection, topic, 0, wire.LATEST).offset
    answer = wire.produce(connection, topic, 0, records)
    assert answer.error_code != 0
    assert answer.base_offset == -1
    assert wire.list_offset(connection, topic, 0, wire.LATEST).offset == before
    stored = wire.produce(connection, topic, 0, wire.batch([b"good"]))
    assert (stored.error_code, stored.base_offset) == (0, before)
    assert wire.read_all(connection, topic, 0)[-1] == (before, b"good")
    code: int = answer.error_code
    return code


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param(flip_last_byte, CORRUPT_MESSAGE, id="payload does not fit the CRC"),
        pytest.param(put(CRC_AT, ">I", 0, valid_crc=False), CORRUPT_MESSAGE, id="CRC of 0"),
        pytest.param(put(COUNT_AT, ">i", 4), INVALID_RECORD, id="one record more than the last offset says"),
        pytest.param(put(COUNT_AT, ">i", 2), INVALID_RECORD, id="one record less than the last offset says"),
        pytest.param(put(COUNT_AT, ">i", -1), INVALID_RECORD, id="negative count"),
        pytest.param(put(LAST_OFFSET_DELTA_AT, ">i", 7), INVALID_RECORD, id="last offset beyond the count"),
        pytest.param(put(LAST_OFFSET_DELTA_AT, ">i", -1), INVALID_RECORD, id="negative last offset"),
        pytest.param(put(ATTRIBUTES_AT, ">h", 0x20), INVALID_RECORD, id="control batch from a client"),
        pytest.param(put(LENGTH_AT, ">i", 10), CORRUPT_MESSAGE, id="length less than a header"),
        pytest.param(put(LENGTH_AT, ">i", -5), CORRUPT_MESSAGE, id="negative length"),
    ],
)
def test_a_broken_batch_is_refused(connection: Wire, new_topic: NewTopic, change: Change, code: int) -> None:
    topic = new_topic()
    records = bytearray(wire.batch([b"a", b"b", b"c"]))
    change(records)
    assert refusal(connection, topic, bytes(records)) == code


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("claimed", [50_000, 2**31 - 1])
def test_compressed_batch_of_false_count_is_refused(
    connection: Wire, new_topic: NewTopic, codec: str, claimed: int
) -> None:
    records = bytearray(wire.batch([b"the same value"] * 100, codec=codec))
    put(LAST_OFFSET_DELTA_AT, ">i", claimed - 1)(records)
    put(COUNT_AT, ">i", claimed)(records)
    assert refusal(connection, new_topic(), bytes(records)) == INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"),
    [(0, INVALID_RECORD), (1, INVALID_RECORD), (3, CORRUPT_MESSAGE), (127, CORRUPT_MESSAGE)],
)
def test_another_magic_is_refused(connection: Wire, new_topic: NewTopic, magic: int, code: int) -> None:
    topic = new_topic()
    records = bytearray(wire.batch([b"a"]))
    put(MAGIC_AT, ">b", magic, valid_crc=False)(records)
    assert refusal(connection, topic, bytes(records)) == code


@pytest.mark.parametrize(
    "change", [pytest.param(cut(1), id="cut short"), pytest.param(cut(60), id="cut inside its header")]
)
def test_a_batch_that_is_cut_short_is_refused(connection: Wire, new_topic: NewTopic, change: Change) -> None:
    topic = new_topic()
    records = bytearray(wire.batch([b"a", b"b", b"c"]))
    change(records)
    assert refusal(connection, topic, bytes(records)) in (CORRUPT_MESSAGE, INVALID_RECORD)


@pytest.mark.parametrize("garbage", [b"\x00", bytes(range(11)), bytes(60)])
def test_garbage_behind_a_batch_is_never_stored(
    connection: Wire, new_topic: NewTopic, garbage: bytes
) -> None:
    """Kafka drops what cannot be a batch; to refuse it all is as good for a client that is not broken."""
    topic = new_topic()
    answer = wire.produce(connection, topic, 0, wire.batch([b"a"]) + garbage)
    assert answer.error_code in (0, CORRUPT_MESSAGE, INVALID_RECORD)
    stored = [(0, b"a")] if answer.error_code == 0 else []
    assert wire.read_all(connection, topic, 0) == stored
    assert wire.produce(connection, topic, 0, wire.batch([b"next"])).base_offset == len(stored)
    assert wire.read_all(connection, topic, 0) == [*stored, (len(stored), b"next")]


def test_no_batch_at_all_is_refused(connection: Wire, new_topic: NewTopic) -> None:
    assert refusal(connection, new_topic(), b"") in (CORRUPT_MESSAGE, INVALID_RECORD)


def test_future_timestamps_are_refused_by_topic_config(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(configs={"message.timestamp.after.max.ms": 1000})
    future = wire.batch([b"a"], timestamp=33_000_000_000_000)
    assert refusal(connection, topic, future) == INVALID_TIMESTAMP
