"""The hand-written Fetch codec against kio and kafka-python, over every version."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchResponse as KafkaPythonResponse
from kio.index import load_request_schema, load_response_schema

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.fetch import (
    MAX_VERSION,
    MIN_VERSION,
    FetchedPartition,
    FetchedTopic,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_response,
)
from kafscale.protocol.types import Buffer
from kafscale.protocol.wire import MAX_ARRAY_ELEMENTS, MalformedRequestError, uvarint
from tests.protocol import oracle

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TOPIC_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def topic_id_or_none(topic_id: bytes) -> uuid.UUID | None:
    return uuid.UUID(bytes=topic_id) if any(topic_id) else None


def in_schema_order(request: FetchRequest, version: int) -> list[Any]:
    """The fields that this version has, as the schema orders them, without the tagged cluster id."""

    def topic(name: str | None, topic_id: bytes | None) -> Any:
        if version < 13:
            assert topic_id is None
            return name
        assert name is None
        assert topic_id is not None
        return topic_id_or_none(topic_id)

    topics = [
        [
            topic(name, topic_id),
            [
                [
                    asked.partition,
                    *([asked.current_leader_epoch] if version >= 9 else []),
                    asked.fetch_offset,
                    *([asked.last_fetched_epoch] if version >= 12 else []),
                    *([asked.log_start_offset] if version >= 5 else []),
                    asked.partition_max_bytes,
                ]
                for asked in partitions
            ],
        ]
        for name, topic_id, partitions in request.topics
    ]
    forgotten = [[topic(name, topic_id), ids] for name, topic_id, ids in request.forgotten_topics]
    return [
        *request[:5],
        *([request.session_id, request.session_epoch] if version >= 7 else []),
        topics,
        *([forgotten] if version >= 7 else []),
        *([request.rack_id] if version >= 11 else []),
    ]


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_request_of_the_oracle_decodes_to_the_same_values(version: int, data: st.DataObject) -> None:
    sent: Any = data.draw(oracle.entities(load_request_schema(ApiKey.FETCH, version)))
    body = bytearray(oracle.encode(sent))

    request = decode_fetch_request(memoryview(body), version)
    body[:] = b"\xaa" * len(body)

    expected = oracle.plain(sent)
    if version >= 12:
        del expected[0]  # the cluster id, which only replicas send
    assert in_schema_order(request, version) == expected


def test_fields_that_a_version_lacks_have_kafkas_defaults() -> None:
    body = b"\xff\xff\xff\xff" + bytes(8) + b"\x00\x01\x00\x00\x01" + b"\x00\x00\x00\x01\x00\x01t"
    body += b"\x00\x00\x00\x01\x00\x00\x00\x02" + b"\x00" * 7 + b"\x09\x00\x00\x10\x00"
    request = decode_fetch_request(memoryview(body), 4)
    assert (request.replica_id, request.max_bytes, request.isolation_level) == (-1, 0x10000, 1)
    assert (request.session_id, request.session_epoch) == (0, -1)
    assert (request.forgotten_topics, request.rack_id) == ([], "")
    assert request.topics == [("t", None, [(2, -1, 9, -1, -1, 4096)])]


@st.composite
def fetched_partitions(draw: st.DrawFn) -> FetchedPartition:
    records = draw(st.lists(st.binary(min_size=1, max_size=300), max_size=3))
    return FetchedPartition(
        draw(INT32),
        int(draw(st.sampled_from(ErrorCode))),
        draw(INT64),
        draw(INT64),
        draw(INT64),
        [memoryview(part) for part in records],
        sum(map(len, records)),
        draw(INT32),
        draw(st.lists(st.tuples(INT64, INT64), max_size=3) | st.just([(7, 1 << 40)] * 200)),
    )


TOPICS = st.lists(
    st.builds(
        FetchedTopic,
        st.text(st.characters(codec="utf-8"), max_size=150),
        st.binary(min_size=16, max_size=16),
        st.lists(fetched_partitions(), max_size=4),
    ),
    max_size=3,
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=30, deadline=None)
@given(
    topics=TOPICS,
    error_code=st.sampled_from(ErrorCode),
    session_id=INT32,
    correlation_id=INT32,
    throttle_time_ms=st.integers(0, 2**31 - 1),
    read_committed=st.booleans(),
)
def test_a_response_decodes_to_the_same_values_with_the_oracle(
    version: int,
    topics: list[FetchedTopic],
    error_code: ErrorCode,
    session_id: int,
    correlation_id: int,
    throttle_time_ms: int,
    read_committed: bool,
) -> None:
    buffers = encode_fetch_response(
        correlation_id,
        version,
        error_code,
        session_id,
        topics,
        throttle_time_ms=throttle_time_ms,
        read_committed=read_committed,
    )
    response_type: Any = load_response_schema(ApiKey.FETCH, version)
    response: Any = oracle.decode_frame(response_type, b"".join(buffers), correlation_id)

    assert response.throttle_time.total_seconds() * 1000 == pytest.approx(throttle_time_ms)
    if version >= 7:
        assert (response.error_code, response.session_id) == (error_code, session_id)
    assert len(response.responses) == len(topics)
    for received_topic, topic in zip(response.responses, topics, strict=True):
        if version >= 13:
            assert received_topic.topic_id == topic_id_or_none(topic.topic_id or b"")
        else:
            assert received_topic.topic == topic.name
        assert len(received_topic.partitions) == len(topic.partitions)
        for received, partition in zip(received_topic.partitions, topic.partitions, strict=True):
            assert_same_partition(received, partition, version, read_committed)


def assert_same_partition(
    received: Any, partition: FetchedPartition, version: int, read_committed: bool
) -> None:
    assert received.partition_index == partition.partition
    assert received.error_code == partition.error_code
    assert received.high_watermark == partition.high_watermark
    assert received.last_stable_offset == partition.last_stable_offset
    assert received.records == b"".join(partition.records)
    if read_committed:
        found = [(one.producer_id, one.first_offset) for one in received.aborted_transactions]
        assert found == partition.aborted
    else:
        assert received.aborted_transactions is None
    if version >= 5:
        assert received.log_start_offset == partition.log_start_offset
    if version >= 11:
        assert received.preferred_read_replica == partition.preferred_read_replica
    if version >= 12:
        epoch, leader = received.diverging_epoch, received.current_leader
        assert (epoch.epoch, epoch.end_offset, leader.leader_id, leader.leader_epoch) == (-1, -1, -1, -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("aborted", [None, [], [(9, 1 << 33), (1 << 40, 5)]])
def test_a_response_equals_that_of_kafka_python_byte_for_byte(
    version: int, aborted: list[tuple[int, int]] | None
) -> None:
    topic_class = KafkaPythonResponse.FetchableTopicResponse
    theirs = KafkaPythonResponse(
        version=version,
        throttle_time_ms=5,
        error_code=0,
        session_id=6,
        responses=[
            topic_class(
                version=version,
                topic="orders",
                topic_id=TOPIC_ID,
                partitions=[
                    topic_class.PartitionData(
                        version=version,
                        partition_index=3,
                        error_code=0,
                        high_watermark=1 << 40,
                        last_stable_offset=(1 << 40) - 1,
                        log_start_offset=2,
                        aborted_transactions=None
                        if aborted is None
                        else [
                            topic_class.PartitionData.AbortedTransaction(
                                version=version, producer_id=producer_id, first_offset=first_offset
                            )
                            for producer_id, first_offset in aborted
                        ],
                        preferred_read_replica=-1,
                        records=b"abcdef",
                    )
                ],
            )
        ],
    )
    theirs.with_header(correlation_id=4)
    parts = [memoryview(b"abc"), memoryview(b"def")]
    partition = FetchedPartition(3, 0, 1 << 40, (1 << 40) - 1, 2, parts, 6, aborted=aborted or ())
    topics = [FetchedTopic("orders", TOPIC_ID.bytes, [partition])]
    ours = encode_fetch_response(
        4, version, 0, 6, topics, throttle_time_ms=5, read_committed=aborted is not None
    )
    assert b"".join(ours) == bytes(theirs.encode(header=True, framed=True))


@pytest.mark.parametrize("version", VERSIONS)
def test_records_pass_through_uncopied_between_few_buffers(version: int) -> None:
    views: list[Buffer] = [memoryview(b"a" * 100), memoryview(b"b" * 100), memoryview(b"c" * 100)]
    empty = FetchedPartition(0, 0, 5, 5, 0)
    topics = [
        FetchedTopic("t", TOPIC_ID.bytes, [empty, FetchedPartition(1, 0, 5, 5, 0, views[:2], 200), empty]),
        FetchedTopic("u", TOPIC_ID.bytes, [empty, FetchedPartition(2, 0, 5, 5, 0, views[2:], 100)]),
    ]
    buffers = encode_fetch_response(1, version, 0, 0, topics)
    assert [id(buffer) for buffer in buffers if isinstance(buffer, memoryview)] == list(map(id, views))
    small = [isinstance(buffer, bytes) for buffer in buffers]
    assert small[:5] == [True, False, False, True, False]
    assert len(buffers) <= 6

    only_empty = encode_fetch_response(1, version, 0, 0, [FetchedTopic("t", TOPIC_ID.bytes, [empty] * 50)])
    assert len(only_empty) == 1


def test_topic_without_its_versions_name_raises() -> None:
    with pytest.raises(ValueError, match="names topics by id"):
        encode_fetch_response(1, 13, 0, 0, [FetchedTopic("t", None, [])])
    with pytest.raises(ValueError, match="names topics by name"):
        encode_fetch_response(1, 12, 0, 0, [FetchedTopic(None, TOPIC_ID.bytes, [])])


START = b"\xff\xff\xff\xff" + bytes(13)
SESSION = bytes(8)
V7_FORGOTTEN = START + SESSION + bytes(4) + b"\x00\x00\x00\x01\x00\x01t"
V12_PARTITION = START + SESSION + b"\x02\x02t\x02" + bytes(32)
V13_TOPIC = TOPIC_ID.bytes


@pytest.mark.parametrize(
    ("version", "body", "problem"),
    [
        (4, b"", "nothing"),
        (4, START + b"\xff\xff\xff\xff", "null topics"),
        (4, START + b"\x7f\xff\xff\xff" + bytes(60), "2^31 - 1 topics"),
        (4, START + b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00", "null topic name"),
        (4, START + b"\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff", "null partitions"),
        (4, START + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x02" + bytes(31), "half a partition"),
        (7, START + SESSION + b"\x00\x00\x00\x00\xff\xff\xff\xff", "null forgotten topics"),
        (7, V7_FORGOTTEN + b"\x20\x00\x00\x00" + bytes(60), "2^29 forgotten partitions"),
        (11, START + SESSION + bytes(8) + b"\xff\xff", "null rack"),
        (12, START + SESSION + b"\x00\x01\x01\x00", "null topics"),
        (12, START + SESSION + b"\xff\xff\xff\xff\x07\x01\x01\x00" + bytes(60), "2^31 - 2 topics"),
        (12, V12_PARTITION + b"\x01\x00\x63\x00\x01\x01\x00", "tag past the end"),
        (13, START + SESSION + b"\x02" + bytes(15), "half a topic id"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_malformed_requests_are_refused(version: int, body: bytes, problem: str) -> None:
    with pytest.raises(MalformedRequestError, match=f"FetchRequest v{version} of {len(body)} bytes"):
        decode_fetch_request(memoryview(body), version)


def test_tagged_fields_are_stepped_over() -> None:
    tags = b"\x01\x05\x03abc"
    partition = b"\x00\x00\x00\x07" + b"\xff" * 4 + bytes(7) + b"\x2a" + b"\xff" * 12 + b"\x00\x01\x00\x00"
    forgotten = b"\x02" + V13_TOPIC + b"\x02\x00\x00\x00\x08" + tags
    body = START + SESSION + b"\x02" + V13_TOPIC + b"\x03" + (partition + tags) * 2 + tags
    request = decode_fetch_request(memoryview(body + forgotten + b"\x02r" + tags), 13)
    assert request.topics == [(None, V13_TOPIC, [(7, -1, 42, -1, -1, 65536)] * 2)]
    assert request.forgotten_topics == [(None, V13_TOPIC, [8])]
    assert request.rack_id == "r"


def test_tagged_fields_count_as_elements() -> None:
    tags = bytes((50,)) + bytes(2 * 50)

    def body(partitions: int) -> memoryview:
        topics = b"\x02" + V13_TOPIC + uvarint(partitions + 1) + (bytes(32) + tags) * partitions + b"\x00"
        return memoryview(START + SESSION + topics + b"\x01\x01\x00")

    most = (MAX_ARRAY_ELEMENTS - 1) // 51
    assert len(decode_fetch_request(body(most), 13).topics[0].partitions) == most
    with pytest.raises(MalformedRequestError, match="array elements and tagged fields"):
        decode_fetch_request(body(most + 1), 13)


@pytest.mark.parametrize("version", [4, 12])
def test_the_number_of_partitions_is_limited_over_all_topics(version: int) -> None:
    def body(partitions: int) -> memoryview:
        if version == 4:
            topic = b"\x00\x01t" + partitions.to_bytes(4, "big") + bytes(16 * partitions)
            return memoryview(START + b"\x00\x00\x00\x02" + topic * 2)
        count = bytes((partitions + 1 & 0x7F | 0x80, partitions + 1 >> 7 & 0x7F | 0x80, partitions + 1 >> 14))
        topic = b"\x02t" + count + bytes(33 * partitions) + b"\x00"
        return memoryview(START + SESSION + b"\x03" + topic * 2 + b"\x01\x01\x00")

    half = MAX_ARRAY_ELEMENTS // 2
    assert len(decode_fetch_request(body(half - 1), version).topics[1].partitions) == half - 1
    with pytest.raises(MalformedRequestError, match="array elements"):
        decode_fetch_request(body(half), version)


@pytest.mark.parametrize("version", [MIN_VERSION - 1, MAX_VERSION + 1])
def test_another_version_is_a_bug_of_the_caller(version: int) -> None:
    with pytest.raises(ValueError, match=f"Fetch version {version} is not in 4 to 13"):
        decode_fetch_request(memoryview(b""), version)
