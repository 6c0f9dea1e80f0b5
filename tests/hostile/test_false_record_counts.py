"""Compressed batches that claim records which they do not hold: refused alone, and the log end moves by no lie."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.protocol.compression import Codec, compress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import write_crc
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.in_process_broker import in_process_broker
from tests.support.on_uvloop import on_uvloop
from tests.support.watcher import GIVE_UP_SEC, TOPIC, watching

HEADER_BYTES = 61
MOST = 2**31 - 1
CODECS = [codec for codec in Codec if codec]


def claiming(count: int, records: bytes, codec: Codec = Codec.ZSTD) -> bytes:
    """A batch whose header claims `count` records; `records` are its bytes, compressed."""
    batch = bytearray(wire.batch([b"x"])[:HEADER_BYTES] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, codec)
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    write_crc(batch, 0)
    return bytes(batch)


LIES = [
    *(pytest.param(claiming(MOST, compress(codec, bytes(100)), codec), id=codec.name) for codec in CODECS),
    pytest.param(claiming(MOST, bytes(100)), id="noise"),
    pytest.param(claiming(1_000_000, compress(Codec.ZSTD, bytes(10_000_000))), id="bytes without records"),
    pytest.param(claiming(MOST, compress(Codec.ZSTD, bytes(10_000_000)) * 1000), id="possible by size"),
]


@pytest.mark.parametrize("lie", LIES)
@on_uvloop
async def test_false_record_count_is_refused_and_spoils_nothing_else(lie: bytes) -> None:
    """Two of the largest claims in one segment were more than its header can say."""
    async with in_process_broker(flush_interval_ms=50) as broker, broker.connect() as client:
        topic = await broker.create_topic(partitions=2)
        async with broker.connect() as other:
            refused = []
            for number in range(4):
                await other.send_produce(topic, {0: wire.batch([b"%d" % number])})
                await client.send_produce(topic, {0: lie, 1: wire.batch([b"beside it"])})
                parts = (await client.receive_produce())[1]
                refused.append(parts[0].error_code)
                assert (parts[1].error_code, parts[1].base_offset) == (0, number)
                answer = (await other.receive_produce())[1][0]
                assert (answer.error_code, answer.base_offset) == (0, number)
        assert set(refused) <= {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
        assert broker.partition(topic).record.log_end_offset == 4
        assert broker.partition(topic).record.leader_epoch == 0


@on_uvloop
async def test_unlikely_but_true_record_count_is_taken() -> None:
    """Records by zstd at its best: equal but for their offsets, so many that they are counted."""
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        count = 100_000
        records = compress(Codec.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00" * count)
        assert count > 100 * len(records)
        for first in range(2):
            answer = await client.produce(topic, 0, claiming(count, records))
            assert (answer.error_code, answer.base_offset) == (0, first * count)
        assert broker.partition(topic).record.log_end_offset == 2 * count


@on_uvloop
async def test_connection_keeps_its_order_while_records_are_counted() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        topic = await broker.create_topic()
        count = 100_000
        honest = claiming(count, compress(Codec.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00" * count))
        sent = [await client.send_produce(topic, {0: one}) for one in (honest, wire.batch([b"x"]), honest)]
        replies = [await client.receive_produce() for _ in sent]
        assert [correlation_id for correlation_id, _ in replies] == sent
        assert [parts[0].base_offset for _, parts in replies] == [0, count, count + 1]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path) as running:
        yield running


def test_counting_of_claimed_records_makes_no_client_wait(broker: KafscaleBroker) -> None:
    """The dearest to count: as many bytes as are opened at most, full of the smallest records but for the last."""
    claimed = 2_300_000
    dear = claiming(claimed + 1, compress(Codec.ZSTD, b"\x0c\x00\x00\x00\x01\x01\x00" * claimed))
    assert len(dear) < 100_000
    with watching(broker) as watcher, wire.connect(broker, GIVE_UP_SEC) as attacker:
        for _ in range(10):
            answer = wire.produce(attacker, TOPIC, 0, dear)
            assert answer.error_code == ErrorCode.INVALID_RECORD
        watcher.wait_for_rounds()
        end = wire.list_offset(attacker, TOPIC, 0, wire.LATEST).offset
        assert end < claimed
