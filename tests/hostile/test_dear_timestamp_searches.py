"""Searches by time through batches of a few bytes and a million records: no thread is missing for other work."""

import os
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.producer import ProduceResponse
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from kafscale.protocol.compression import Codec, compress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import write_crc
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.watcher import GIVE_UP_SEC, TOPIC, watching

RECORDS = 500_000
BATCHES = 60
SEARCHES = 8
AHEAD_MS = 1_800_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path) as running:
        yield running


def dear_batch(max_timestamp_ms: int) -> bytes:
    """A batch that holds what it claims, but for the largest timestamp: its records are of 1970.

    The first record is so large that the number of the others is no reason to count them.
    """
    first = wire.batch([os.urandom(RECORDS // 4)], timestamp=0)
    records = compress(Codec.ZSTD, first[61:] + b"\x0c\x00\x00\x00\x01\x01\x00" * (RECORDS - 1))
    batch = bytearray(first[:61] + records)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, Codec.ZSTD)
    struct.pack_into(">i", batch, 23, RECORDS - 1)
    struct.pack_into(">q", batch, 35, max_timestamp_ms)
    struct.pack_into(">i", batch, 57, RECORDS)
    write_crc(batch, 0)
    return bytes(batch)


def search(broker: KafscaleBroker, timestamp_ms: int, answers: list[int]) -> None:
    with wire.connect(broker, GIVE_UP_SEC) as connection:
        answers.append(wire.list_offset(connection, TOPIC, 0, timestamp_ms).error_code)


def old_message_set() -> bytes:
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=wire.CODECS["gzip"], batch_size=1 << 20)
    builder.append(0, timestamp=1000, key=None, value=b"old")
    return bytes(builder.build())


def large_request() -> ListOffsetsRequest:
    """Decoded on a thread, for its length."""
    row = ListOffsetsRequest.ListOffsetsTopic
    partition = row.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=wire.LATEST)
    topics = [row(name="n" * 240, partitions=[partition])] * 500
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics)


def test_dear_searches_by_time_make_no_client_wait(broker: KafscaleBroker) -> None:
    now_ms = int(time.time() * 1000)
    batch, answers = dear_batch(now_ms + AHEAD_MS), list[int]()
    with watching(broker) as watcher, wire.connect(broker, GIVE_UP_SEC) as other:
        # One request, so that most of them lie in one segment.
        request = wire.produce_request(TOPIC, {})
        for _ in range(BATCHES):
            request.topic_data += wire.produce_request(TOPIC, {0: batch}).topic_data
        reply = other.call(request, ProduceResponse, wire.PRODUCE_VERSION)
        codes = {part.error_code for one in reply.responses for part in one.partition_responses}
        assert codes == {ErrorCode.NONE}
        searches = [
            threading.Thread(target=search, args=(broker, now_ms + AHEAD_MS // 2, answers))
            for _ in range(SEARCHES)
        ]
        for thread in searches:
            thread.start()
        for _ in range(3):
            reply = other.call(wire.produce_request(TOPIC, {0: old_message_set()}), ProduceResponse, 2)
            assert reply.responses[0].partition_responses[0].error_code == ErrorCode.NONE
            other.call(large_request(), ListOffsetsResponse, wire.LIST_OFFSETS_VERSION)
        watcher.wait_for_rounds()
        for thread in searches:
            thread.join()
    assert len(answers) == SEARCHES
    assert set(answers) <= {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
