"""The hand-written Produce codec against kio and kafka-python, over every version."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest as KafkaPythonRequest
from kafka.protocol.producer import ProduceResponse as KafkaPythonResponse
from kio.index import load_request_schema, load_response_schema

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.node_endpoints import CurrentLeader, NodeEndpoint
from kafscale.protocol.produce import (
    MAX_VERSION,
    MIN_VERSION,
    PartitionProduceResponse,
    decode_produce_request,
    encode_produce_response,
)
from kafscale.protocol.wire import MAX_ARRAY_ELEMENTS, MalformedRequestError, uvarint
from tests.protocol import oracle

ALL_VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
ORACLE_VERSIONS = [version for version in oracle.kio_versions(ApiKey.PRODUCE) if version <= MAX_VERSION]
INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=150)

ENDPOINTS = st.lists(st.builds(NodeEndpoint, INT32, TEXT, INT32, st.none() | TEXT), max_size=3)
ANSWERS = st.lists(
    st.tuples(
        TEXT,
        st.lists(
            st.builds(
                PartitionProduceResponse,
                INT32,
                st.sampled_from(ErrorCode).map(int),
                INT64,
                st.just(-1) | st.integers(0, 253_402_300_799).map(lambda seconds: seconds * 1000),
                INT64,
                st.none() | TEXT,
                st.lists(st.tuples(INT32, TEXT), max_size=3),
                st.none() | st.builds(CurrentLeader, INT32, INT32),
            ),
            max_size=4,
        ),
    ),
    max_size=4,
)


@pytest.mark.parametrize("version", ORACLE_VERSIONS)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_request_of_the_oracle_decodes_to_the_same_values(version: int, data: st.DataObject) -> None:
    sent: Any = data.draw(oracle.entities(load_request_schema(ApiKey.PRODUCE, version)))
    body = memoryview(oracle.encode(sent))

    request = decode_produce_request(body, version)

    topics = [
        [name, [[index, None if records is None else bytes(records)] for index, records in partitions]]
        for name, partitions in request.topics
    ]
    assert [request.transactional_id, request.acks, request.timeout_ms, topics] == oracle.plain(sent)


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_request_of_kafka_python_decodes_to_the_same_values(version: int) -> None:
    topic_class = KafkaPythonRequest.TopicProduceData
    partition_class = topic_class.PartitionProduceData
    sent = KafkaPythonRequest(
        version=version,
        transactional_id="tx" if version >= 3 else None,
        acks=-1,
        timeout_ms=1500,
        topic_data=[
            topic_class(
                version=version,
                name="größe",
                partition_data=[
                    partition_class(version=version, index=7, records=b"r" * 300),
                    partition_class(version=version, index=0, records=None),
                ],
            ),
            topic_class(version=version, name="", partition_data=[]),
        ],
    )
    request = decode_produce_request(memoryview(bytes(sent.encode(version=version))), version)
    assert request.transactional_id == ("tx" if version >= 3 else None)
    assert (request.acks, request.timeout_ms) == (-1, 1500)
    assert request.topics == [("größe", [(7, b"r" * 300), (0, None)]), ("", [])]


@pytest.mark.parametrize("version", ORACLE_VERSIONS)
@settings(max_examples=30, deadline=None)
@given(topics=ANSWERS, throttle_time_ms=st.integers(0, 2**31 - 1), correlation_id=INT32, endpoints=ENDPOINTS)
def test_a_response_decodes_to_the_same_values_with_the_oracle(
    version: int, topics: Any, throttle_time_ms: int, correlation_id: int, endpoints: list[NodeEndpoint]
) -> None:
    frame = encode_produce_response(correlation_id, version, topics, throttle_time_ms, endpoints)

    response_type: Any = load_response_schema(ApiKey.PRODUCE, version)
    received = oracle.plain(oracle.decode_frame(response_type, frame, correlation_id))

    def expected(partition: PartitionProduceResponse) -> list[Any]:
        append_time = None if partition.log_append_time_ms == -1 else partition.log_append_time_ms
        return [
            *partition[:3],
            append_time,
            *([partition.log_start_offset] if version >= 5 else []),
            *([list(map(list, partition.record_errors)), partition.error_message] if version >= 8 else []),
            *([list(partition.current_leader or CurrentLeader())] if version >= 10 else []),
        ]

    assert received == [
        [[name, [expected(partition) for partition in partitions]] for name, partitions in topics],
        throttle_time_ms,
        *([list(map(list, endpoints))] if version >= 10 else []),
    ]


@pytest.mark.parametrize("version", ALL_VERSIONS)
def test_a_response_equals_that_of_kafka_python_byte_for_byte(version: int) -> None:
    leader = CurrentLeader(2, 5)
    partition = PartitionProduceResponse(3, 87, 1 << 40, 1_700_000_000_000, 12, "bad record", (), leader)
    topic_class = KafkaPythonResponse.TopicProduceResponse
    partition_class = topic_class.PartitionProduceResponse
    has_leaders = version >= 10
    theirs = KafkaPythonResponse(
        version=version,
        throttle_time_ms=5,
        responses=[
            topic_class(
                version=version,
                name="orders",
                partition_responses=[
                    partition_class(
                        version=version,
                        index=3,
                        error_code=87,
                        base_offset=1 << 40,
                        log_append_time_ms=1_700_000_000_000,
                        log_start_offset=12,
                        record_errors=[],
                        error_message="bad record",
                        **(
                            {"current_leader": partition_class.LeaderIdAndEpoch(*leader)}
                            if has_leaders
                            else {}
                        ),
                    )
                ],
            )
        ],
        **(
            {"node_endpoints": [KafkaPythonResponse.NodeEndpoint(2, "host", 9092, None)]}
            if has_leaders
            else {}
        ),
    )
    theirs.with_header(correlation_id=4)
    expected = bytes(theirs.encode(header=True, framed=True))
    endpoints = [NodeEndpoint(2, "host", 9092, None)]
    assert encode_produce_response(4, version, [("orders", [partition])], 5, endpoints) == expected


def test_records_are_views_of_the_receive_buffer() -> None:
    buffer = bytearray(b"\xff\xff\x00\x01\x00\x00\x00\x0a\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01")
    buffer += b"\x00\x00\x00\x02\x00\x00\x00\x03abc"
    request = decode_produce_request(memoryview(buffer), 3)
    buffer[-3:] = b"xyz"
    topics: Any = request.topics
    assert topics == [("t", [(2, b"xyz")])]


V3_START = b"\xff\xff\xff\xff\x00\x00\x00\x0a"
V3_RECORDS = V3_START + b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01" + bytes(4)
V9_START = b"\x00\xff\xff\x00\x00\x00\x0a"


@pytest.mark.parametrize(
    ("version", "body", "problem"),
    [
        (0, b"", "nothing"),
        (3, V3_START + b"\xff\xff\xff\xff", "null topics"),
        (3, V3_START + b"\x7f\xff\xff\xff" + bytes(60), "2^31 - 1 topics"),
        (3, V3_START + b"\x00\x00\x00\x01\xff\xff\x00\x00\x00\x00", "null topic name"),
        (3, V3_START + b"\x00\x00\x00\x01\x00\x09t\x00\x00\x00\x00", "topic name past the end"),
        (3, V3_START + b"\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff", "null partitions"),
        (3, V3_START + b"\x00\x00\x00\x01\x00\x01t\x10\x00\x00\x00" + bytes(60), "2^28 partitions"),
        (3, V3_RECORDS + b"\x00\x00\x00\x02z", "records past the end"),
        (3, V3_RECORDS + b"\xff\xff\xff\xfe", "records of length -2"),
        (9, V9_START + b"\x00\x00", "null topics"),
        (9, V9_START + b"\xff\xff\xff\xff\x07" + bytes(60), "2^31 - 2 topics"),
        (9, V9_START + b"\x02\x00\x01\x00\x00", "null topic name"),
        (9, V9_START + b"\x02\x02t\x00\x00\x00", "null partitions"),
        (9, V9_START + b"\x02\x02t\x02\x00\x00\x00\x00\x04ab\x00\x00\x00", "records past the tags' end"),
        (9, V9_START + b"\x02\x02t\x02\x00\x00\x00\x00\x01\x01\x00\x09\x00\x00", "tag past the end"),
        (9, V9_START + b"\x01", "no tags"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_malformed_requests_are_refused(version: int, body: bytes, problem: str) -> None:
    with pytest.raises(MalformedRequestError, match=f"ProduceRequest v{version} of {len(body)} bytes"):
        decode_produce_request(memoryview(body), version)


def test_tagged_fields_are_stepped_over() -> None:
    tags = b"\x01\x05\x03abc"
    body = V9_START + b"\x02\x02t\x02\x00\x00\x00\x07\x03xy" + tags + tags + tags
    topics: Any = decode_produce_request(memoryview(body), 9).topics
    assert topics == [("t", [(7, b"xy")])]


def test_the_number_of_partitions_is_limited_over_all_topics() -> None:
    def body(partitions: int) -> memoryview:
        topic = b"\x00\x01t" + partitions.to_bytes(4, "big") + bytes(8 * partitions)
        return memoryview(V3_START + b"\x00\x00\x00\x02" + topic * 2)

    half = MAX_ARRAY_ELEMENTS // 2
    assert len(decode_produce_request(body(half - 1), 3).topics[1][1]) == half - 1
    with pytest.raises(MalformedRequestError, match="array elements"):
        decode_produce_request(body(half), 3)


def test_tagged_fields_count_as_elements() -> None:
    def body(partitions: int) -> memoryview:
        tags = bytes((50,)) + bytes(2 * 50)
        counts = b"\x02\x02t" + uvarint(partitions + 1)
        return memoryview(V9_START + counts + (b"\x00\x00\x00\x07\x03xy" + tags) * partitions + b"\x00\x00")

    most = (MAX_ARRAY_ELEMENTS - 1) // 51
    assert len(decode_produce_request(body(most), 9).topics[0][1]) == most
    with pytest.raises(MalformedRequestError, match="array elements and tagged fields"):
        decode_produce_request(body(most + 1), 9)


@pytest.mark.parametrize("version", [MIN_VERSION - 1, MAX_VERSION + 1])
def test_another_version_is_a_bug_of_the_caller(version: int) -> None:
    with pytest.raises(ValueError, match=f"Produce version {version} is not in 0 to 12"):
        decode_produce_request(memoryview(b""), version)
