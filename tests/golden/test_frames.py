"""Requests as real clients sent them (the file's name says who), recorded by `capture_frames.py`."""

from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest
from kafka.record.memory_records import MemoryRecords

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.fetch import decode_fetch_request
from kafscale.protocol.header import RequestHeader, parse_request_header
from kafscale.protocol.messages import decode_request
from kafscale.protocol.produce import decode_produce_request

FRAMES = Path(__file__).with_name("frames")
CASES = [
    pytest.param(path.stem, *line.split(), id=f"{path.stem}-{'-v'.join(line.split()[:2])}-line{number}")
    for path in sorted(FRAMES.glob("*.txt"))
    for number, line in enumerate(path.read_text().splitlines(), 1)
]
LIBRDKAFKA_ASKS_FOR_ALL_TOPICS = ("librdkafka-2.16.0", "Metadata", b"\x01\x00\x00")
"""Client, API and three bytes too many: it writes a null array in four bytes where the version has one."""

CLIENT_IDS = {
    "kafka-python-3.0.12": "kafka-python",
    "librdkafka-2.16.0": "rdkafka",
    "aiokafka-0.14.0": "aiokafka-",
    "kafka-clients-4.1.1": "",
    "kcat-1.7.1": "rdkafka",
}


def test_frames_of_every_client_are_there() -> None:
    assert {path.stem for path in FRAMES.glob("*.txt")} == set(CLIENT_IDS)
    assert len(CASES) >= 115


@pytest.mark.parametrize(("client", "api_name", "version", "frame_hex"), CASES)
def test_a_clients_request_is_understood(client: str, api_name: str, version: str, frame_hex: str) -> None:
    frame = memoryview(bytes.fromhex(frame_hex))
    header = parse_request_header(frame)
    assert (ApiKey(header.api_key).api_name, header.api_version) == (api_name, int(version))
    assert header.client_id is not None
    assert header.client_id.startswith(CLIENT_IDS[client])

    body = frame[header.body_offset :]
    match header.api_key:
        case ApiKey.PRODUCE:
            assert_same_produce_request(header, body)
        case ApiKey.FETCH:
            assert_same_fetch_request(header, body)
        case _:
            message = decode_request(header.api_key, header.api_version, body)
            encoded = bytes(message.encode(version=header.api_version))
            assert bytes(body[: len(encoded)]) == encoded
            extra = bytes(body[len(encoded) :])
            assert extra == b"" or (client, api_name, extra) == LIBRDKAFKA_ASKS_FOR_ALL_TOPICS


def assert_same_produce_request(header: RequestHeader, body: memoryview) -> None:
    theirs = ProduceRequest.decode(bytes(body), version=header.api_version)
    ours = decode_produce_request(body, header.api_version)
    assert (ours.transactional_id, ours.acks, ours.timeout_ms) == (None, theirs.acks, theirs.timeout_ms)
    topics: Any = ours.topics
    assert topics == [
        (topic.name, [(partition.index, partition.records) for partition in topic.partition_data])
        for topic in theirs.topic_data
    ]
    batch = MemoryRecords(bytes(ours.topics[0][1][0][1] or b"")).next_batch()
    assert batch.validate_crc()
    assert next(record.value for record in batch) == b"value-0"


def assert_same_fetch_request(header: RequestHeader, body: memoryview) -> None:
    theirs = FetchRequest.decode(bytes(body), version=header.api_version)
    ours = decode_fetch_request(body, header.api_version)
    assert ours.replica_id == -1
    assert (ours.max_wait_ms, ours.min_bytes, ours.max_bytes, ours.isolation_level) == (
        theirs.max_wait_ms, theirs.min_bytes, theirs.max_bytes, theirs.isolation_level,
    )  # fmt: skip
    assert (ours.session_id, ours.session_epoch) == (theirs.session_id, theirs.session_epoch)
    assert len(ours.topics) == len(theirs.topics)
    for topic, their_topic in zip(ours.topics, theirs.topics, strict=True):
        if header.api_version >= 13:
            assert topic.topic_id == their_topic.topic_id.bytes
        else:
            assert topic.name == their_topic.topic
        assert [(asked.partition, asked.fetch_offset, asked.partition_max_bytes) for asked in topic.partitions] == [
            (asked.partition, asked.fetch_offset, asked.partition_max_bytes) for asked in their_topic.partitions
        ]  # fmt: skip
