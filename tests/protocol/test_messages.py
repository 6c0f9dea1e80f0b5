"""Cold messages against kio, an independent codec: every version of every API that is or may be served."""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest
from kio.index import load_request_schema, load_response_schema

from kafscale.handlers.routes import ROUTES
from kafscale.protocol import response_pieces
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.message_classes import RESPONSE_CLASSES
from kafscale.protocol.messages import decode_request, encode_response
from kafscale.protocol.wire import MAX_ARRAY_ELEMENTS, MalformedRequestError, uvarint
from tests.protocol import oracle
from tests.support.nightly import by_day

SERVED: dict[ApiKey, tuple[int, int]] = {
    ApiKey.LIST_OFFSETS: (0, 7),
    ApiKey.METADATA: (0, 12),
    ApiKey.OFFSET_COMMIT: (2, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (0, 7),
    ApiKey.DELETE_TOPICS: (0, 6),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 1),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_ACLS: (1, 3),
    ApiKey.CREATE_ACLS: (1, 3),
    ApiKey.DELETE_ACLS: (1, 3),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (1, 2),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
    ApiKey.UPDATE_FEATURES: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 1),
    ApiKey.SASL_HANDSHAKE: (0, 1),
    ApiKey.SASL_AUTHENTICATE: (0, 2),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.SHARE_GROUP_HEARTBEAT: (1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.SHARE_ACKNOWLEDGE: (1, 2),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (0, 0),
}
"""Lowest and highest version of the APIs that are or will be served by these codecs."""

COLD_VERSIONS = [(key, version) for key in SERVED for version in oracle.kio_versions(key)]
NAMES = [f"{key.api_name}-v{version}" for key, version in COLD_VERSIONS]

SYNC_GROUP_START = b"\x00\x01g\x00\x00\x00\x01\x00\x01m" + b"\x00\x00\x00\x01\x00\x01m"
"""Group, generation, member, and one assignment up to its bytes."""

# Of one the first is always the simplest: empty arrays, and nothing of what is in them.
few_examples = settings(
    max_examples=by_day(1, by_night=60), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


def test_oracle_covers_every_version_not_tested_by_bytes() -> None:
    served = {(key, version) for key, (low, high) in SERVED.items() for version in range(low, high + 1)}
    byte_by_byte = {
        (ApiKey.LIST_OFFSETS, 0),
        (ApiKey.CREATE_TOPICS, 0),
        (ApiKey.CREATE_TOPICS, 1),
        (ApiKey.DELETE_TOPICS, 0),
    }
    assert served - set(COLD_VERSIONS) == byte_by_byte
    routed = {
        (route.api, version)
        for route in ROUTES
        if route.message_handler is not None
        for version in range(route.min_version, route.max_version + 1)
    }
    assert routed <= served


@pytest.mark.parametrize(("api_key", "version"), COLD_VERSIONS, ids=NAMES)
@few_examples
@given(data=st.data())
def test_a_request_of_the_oracle_decodes_to_the_same_values(
    api_key: ApiKey, version: int, data: st.DataObject
) -> None:
    request = data.draw(oracle.entities(load_request_schema(api_key, version)))
    body = bytearray(oracle.encode(request))

    message = decode_request(api_key, version, memoryview(body))
    body[:] = b"\xaa" * len(body)  # what was decoded must not live in the receive buffer

    assert oracle.plain_message(message) == oracle.plain(request)


@pytest.mark.parametrize(("api_key", "version"), COLD_VERSIONS, ids=NAMES)
@few_examples
@given(data=st.data(), correlation_id=st.integers(-(2**31), 2**31 - 1))
def test_our_response_decodes_to_the_same_values_with_the_oracle(
    api_key: ApiKey, version: int, data: st.DataObject, correlation_id: int
) -> None:
    response_type: Any = load_response_schema(api_key, version)
    response = data.draw(oracle.entities(response_type))
    message_class = RESPONSE_CLASSES[api_key]
    message = oracle.to_message(response, message_class._struct, message_class, version)

    frame = encode_response(message, version, correlation_id)

    assert oracle.decode_frame(response_type, frame, correlation_id) == response
    with patch.object(response_pieces, "ELEMENTS_PER_PIECE", 1):
        pieces = list(response_pieces.encode_pieces(message, version))
    start = response_pieces.frame_start(message, version, correlation_id, sum(map(len, pieces)))
    assert b"".join((start, *pieces)) == frame


def test_list_offsets_v0_has_a_count_of_offsets() -> None:
    body = (
        b"\xff\xff\xff\xff"  # replica id
        b"\x00\x00\x00\x01\x00\x01t"  # one topic
        b"\x00\x00\x00\x01\x00\x00\x00\x02"  # partition 2
        b"\xff\xff\xff\xff\xff\xff\xff\xfe\x00\x00\x00\x05"  # earliest, at most 5 offsets
    )
    partition = decode_request(ApiKey.LIST_OFFSETS, 0, memoryview(body)).topics[0].partitions[0]
    assert (partition.partition_index, partition.timestamp, partition.max_num_offsets) == (2, -2, 5)
    assert ListOffsetsRequest.decode(body, version=0).topics[0].partitions[0] == partition

    topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
    answer = topic_class.ListOffsetsPartitionResponse(
        version=0, partition_index=2, error_code=0, old_style_offsets=[7, 0]
    )
    response = ListOffsetsResponse(version=0, topics=[topic_class(version=0, name="t", partitions=[answer])])
    assert encode_response(response, 0, 9) == (
        b"\x00\x00\x00\x29\x00\x00\x00\x09"
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00"
        b"\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"
    )


@pytest.mark.parametrize("version", [0, 1])
def test_create_topics_v0_and_v1(version: int) -> None:
    body = (
        b"\x00\x00\x00\x01\x00\x01t\x00\x00\x00\x06\x00\x01"  # one topic, 6 partitions, replication factor 1
        b"\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02"  # partition 0 on broker 2
        b"\x00\x00\x00\x01\x00\x01k\xff\xff"  # config k = null
        b"\x00\x00\x01\x00"  # timeout
    ) + (b"\x01" if version == 1 else b"")  # validate only
    request = decode_request(ApiKey.CREATE_TOPICS, version, memoryview(body))
    topic = request.topics[0]
    assert (topic.name, topic.num_partitions, topic.replication_factor) == ("t", 6, 1)
    assert (topic.assignments[0].partition_index, topic.assignments[0].broker_ids) == (0, [2])
    assert (topic.configs[0].name, topic.configs[0].value) == ("k", None)
    assert (request.timeout_ms, request.validate_only) == (256, version == 1)
    assert CreateTopicsRequest.decode(body, version=version) == request

    answer = CreateTopicsResponse.CreatableTopicResult(
        version=version, name="t", error_code=36, error_message="no"
    )
    message = b"\x00\x02no" if version == 1 else b""
    expected = b"\x00\x00\x00\x09\x00\x00\x00\x01\x00\x01t\x00\x24" + message
    frame = encode_response(CreateTopicsResponse(version=version, topics=[answer]), version, 9)
    assert frame == len(expected).to_bytes(4, "big") + expected


def test_delete_topics_v0() -> None:
    body = b"\x00\x00\x00\x01\x00\x01t\x00\x00\x01\x00"
    request = decode_request(ApiKey.DELETE_TOPICS, 0, memoryview(body))
    assert (request.topic_names, request.timeout_ms) == (["t"], 256)
    assert DeleteTopicsRequest.decode(body, version=0) == request

    answer = DeleteTopicsResponse.DeletableTopicResult(version=0, name="t", error_code=3)
    frame = encode_response(DeleteTopicsResponse(version=0, responses=[answer]), 0, 9)
    assert frame == b"\x00\x00\x00\x0d\x00\x00\x00\x09\x00\x00\x00\x01\x00\x01t\x00\x03"


def test_the_header_of_api_versions_is_never_flexible() -> None:
    frame = encode_response(ApiVersionsResponse(version=3), 3, 9)
    assert frame[4:10] == b"\x00\x00\x00\x09\x00\x00"  # correlation id, then at once the error code


def test_null_and_empty_arrays_differ() -> None:
    assert decode_request(ApiKey.METADATA, 1, memoryview(b"\xff\xff\xff\xff")).topics is None
    assert decode_request(ApiKey.METADATA, 1, memoryview(b"\x00\x00\x00\x00")).topics == []
    assert decode_request(ApiKey.METADATA, 9, memoryview(b"\x00\x01\x00\x00\x00")).topics is None


def test_unknown_tagged_fields_are_stepped_over() -> None:
    topic = b"\x02t\x02\x07\x03abc\x09\x00"  # tag 7 of 3 bytes, tag 9 of none
    body = b"\x02" + topic + b"\x00\x01\x00" + b"\x01\x00\x01z"
    request = decode_request(ApiKey.METADATA, 9, memoryview(body))
    assert [topic.name for topic in request.topics] == ["t"]
    assert request.allow_auto_topic_creation is False
    assert request.include_cluster_authorized_operations is True


def test_tagged_fields_count_as_elements() -> None:
    topic = b"\x02t" + bytes((50,)) + bytes(2 * 50)

    def body(topics: int) -> memoryview:
        return memoryview(uvarint(topics + 1) + topic * topics + b"\x00\x01\x00\x00")

    most = MAX_ARRAY_ELEMENTS // 51
    assert len(decode_request(ApiKey.METADATA, 9, body(most)).topics) == most
    with pytest.raises(MalformedRequestError, match="array elements and tagged fields"):
        decode_request(ApiKey.METADATA, 9, body(most + 1))


def test_a_zero_topic_id_reads_as_none() -> None:
    sent = MetadataRequest(version=12, topics=[MetadataRequest.MetadataRequestTopic(version=12, name="t")])
    request = decode_request(ApiKey.METADATA, 12, memoryview(sent.encode(version=12)))
    assert request.topics[0].topic_id is None


def test_bytes_after_the_last_field_are_passed_over() -> None:
    # the body with which librdkafka 2.16.1 asks for all topics: an array count of four bytes, not of one
    request = decode_request(ApiKey.METADATA, 12, memoryview(b"\x00\x00\x00\x00\x01\x00\x00"))
    assert request.topics is None


@pytest.mark.parametrize(
    ("api_key", "version", "body", "problem"),
    [
        (ApiKey.METADATA, 0, b"\xff\xff\xff\xff", "null where v0 has none"),
        (ApiKey.METADATA, 1, b"\xff\xff\xff\xfe", "negative count"),
        (ApiKey.METADATA, 1, b"\x7f\xff\xff\xff" + bytes(40), "count of 2^31 - 1"),
        (ApiKey.METADATA, 1, b"\x00\x00\x00\x01\x00\x05abc", "string past the end"),
        (ApiKey.METADATA, 1, b"\x00\x00\x00\x01\xff\xff", "null string"),
        (ApiKey.METADATA, 1, b"\x00\x00\x00\x01\xff\xfe", "negative string length"),
        (ApiKey.METADATA, 1, b"\x00\x00\x00\x01\x00\x01\xff", "not UTF-8"),
        (ApiKey.METADATA, 1, b"", "nothing"),
        (ApiKey.METADATA, 9, b"\xff\xff\xff\xff\x0f\x01\x00\x00\x00", "varint past 31 bits"),
        (ApiKey.METADATA, 9, b"\x80\x80\x80\x80\x80\x00\x01\x00\x00\x00", "varint of six bytes"),
        (ApiKey.METADATA, 9, b"\x00\x01\x00\x00\xff\xff\xff\xff\x07", "count of tags past the end"),
        (ApiKey.METADATA, 9, b"\x00\x01\x00\x00\x01\x00\x05ab", "tagged field past the end"),
        (ApiKey.METADATA, 12, b"\x03" + bytes(16) + b"\x12" + b"n" * 17 + b"\x00" + bytes(5), "UUID past the end"),
        (ApiKey.SYNC_GROUP, 0, SYNC_GROUP_START + b"\x00\x00\x00\x02z", "bytes past the end"),
        (ApiKey.SYNC_GROUP, 0, SYNC_GROUP_START + b"\xff\xff\xff\xff", "null bytes"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)  # fmt: skip
def test_malformed_bodies_are_refused(api_key: ApiKey, version: int, body: bytes, problem: str) -> None:
    with pytest.raises(MalformedRequestError, match=f"v{version} of {len(body)} bytes"):
        decode_request(api_key, version, memoryview(body))


def test_the_number_of_array_elements_is_limited_over_all_arrays() -> None:
    def request(topics: int, partitions: int) -> bytes:
        topic = b"\x00\x01t" + partitions.to_bytes(4, "big") + bytes(12 * partitions)
        return b"\xff\xff\xff\xff" + topics.to_bytes(4, "big") + topic * topics

    accepted = decode_request(ApiKey.LIST_OFFSETS, 1, memoryview(request(2, MAX_ARRAY_ELEMENTS // 2 - 1)))
    assert len(accepted.topics[1].partitions) == MAX_ARRAY_ELEMENTS // 2 - 1
    with pytest.raises(MalformedRequestError, match=f"more than {MAX_ARRAY_ELEMENTS} array elements"):
        decode_request(ApiKey.LIST_OFFSETS, 1, memoryview(request(2, MAX_ARRAY_ELEMENTS // 2)))


def test_api_or_version_without_a_codec_raises() -> None:
    with pytest.raises(ValueError, match="no codec for API 71 version 0"):
        decode_request(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, memoryview(b""))
    with pytest.raises(ValueError, match="no codec for API 3 version 99"):
        decode_request(ApiKey.METADATA, 99, memoryview(b""))
