"""The hand-written Metadata response against kio and kafka-python, over every version."""

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.metadata import MetadataResponse as KafkaPythonResponse
from kio.index import load_response_schema

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.metadata import (
    MAX_VERSION,
    MIN_VERSION,
    NO_AUTHORIZED_OPERATIONS,
    MetadataBroker,
    MetadataPartition,
    MetadataTopic,
    encode_metadata_response,
    encode_topic,
)
from tests.protocol import oracle

VERSIONS = range(MIN_VERSION, MAX_VERSION + 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=150)
NODE_IDS = st.lists(INT32, max_size=4)
ERROR_CODES = st.sampled_from(ErrorCode).map(int)

BROKERS = st.lists(st.builds(MetadataBroker, INT32, TEXT, INT32, st.none() | TEXT), max_size=3)
PARTITIONS = st.lists(
    st.builds(MetadataPartition, ERROR_CODES, INT32, INT32, INT32, NODE_IDS, NODE_IDS, NODE_IDS), max_size=4
)
TOPICS = st.lists(
    st.builds(MetadataTopic, ERROR_CODES, TEXT, st.uuids(), st.booleans(), PARTITIONS, INT32), max_size=4
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40, deadline=None)
@given(
    correlation_id=INT32,
    brokers=BROKERS,
    cluster_id=st.none() | TEXT,
    controller_id=INT32,
    topics=TOPICS,
    throttle_time_ms=st.integers(0, 2**31 - 1),
    operations=INT32,
)
def test_a_response_decodes_to_the_same_values_with_the_oracle(
    version: int,
    correlation_id: int,
    brokers: list[MetadataBroker],
    cluster_id: str | None,
    controller_id: int,
    topics: list[MetadataTopic],
    throttle_time_ms: int,
    operations: int,
) -> None:
    frame = encode_metadata_response(
        correlation_id,
        version,
        brokers,
        cluster_id,
        controller_id,
        [encode_topic(topic, version) for topic in topics],
        throttle_time_ms=throttle_time_ms,
        cluster_authorized_operations=operations,
    )
    response_type: Any = load_response_schema(ApiKey.METADATA, version)
    received = oracle.plain(oracle.decode_frame(response_type, frame, correlation_id))

    def partition_fields(partition: MetadataPartition) -> list[Any]:
        epoch = [partition.leader_epoch] if version >= 7 else []
        offline = [partition.offline_replicas] if version >= 5 else []
        return [*partition[:3], *epoch, partition.replicas, partition.isr, *offline]

    def topic_fields(topic: MetadataTopic) -> list[Any]:
        return [
            topic.error_code,
            topic.name,
            *([topic.topic_id if topic.topic_id.int else None] if version >= 10 else []),
            *([topic.is_internal] if version >= 1 else []),
            [partition_fields(partition) for partition in topic.partitions],
            *([topic.authorized_operations] if version >= 8 else []),
        ]

    assert received == [
        *([throttle_time_ms] if version >= 3 else []),
        [list(broker if version >= 1 else broker[:3]) for broker in brokers],
        *([cluster_id] if version >= 2 else []),
        *([controller_id] if version >= 1 else []),
        [topic_fields(topic) for topic in topics],
        *([operations] if 8 <= version <= 10 else []),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_operations_that_were_not_asked_for_are_the_lowest_int32(version: int) -> None:
    topic = MetadataTopic(0, "t", uuid.UUID(int=1), False, [MetadataPartition(0, 0, 1, 2, (1,), (1,))])
    frame = encode_metadata_response(
        4, version, [MetadataBroker(1, "h", 9092, None)], "c", 1, [encode_topic(topic, version)]
    )
    theirs = KafkaPythonResponse.decode(frame, version=version, header=True, framed=True)
    assert theirs.header.correlation_id == 4
    assert theirs.topics[0].authorized_operations is None  # which is how kafka-python reads that number
    assert theirs.authorized_operations is None
    if version >= 8:
        assert NO_AUTHORIZED_OPERATIONS.to_bytes(4, "big", signed=True) in frame


@pytest.mark.parametrize("replica_count", [126, 127, 300])
def test_long_lists_of_replicas_have_a_count_of_two_bytes(replica_count: int) -> None:
    replicas = list(range(replica_count))
    topic = MetadataTopic(
        0, "t", uuid.UUID(int=1), False, [MetadataPartition(0, 0, 1, 2, replicas, [1], [2])]
    )
    frame = encode_metadata_response(4, 12, [], None, -1, [encode_topic(topic, 12)])
    partition = (
        KafkaPythonResponse.decode(frame, version=12, header=True, framed=True).topics[0].partitions[0]
    )
    assert partition.replica_nodes == replicas
    assert (partition.isr_nodes, partition.offline_replicas) == ([1], [2])


def test_unknown_topic_id_has_a_null_name_from_v12() -> None:
    topic_id = uuid.UUID(int=5)
    unknown = MetadataTopic(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id, False, [])
    frame = encode_metadata_response(4, 12, [], "c", 1, [encode_topic(unknown, 12)])
    topic = KafkaPythonResponse.decode(frame, version=12, header=True, framed=True).topics[0]
    assert (topic.error_code, topic.name, topic.topic_id) == (100, None, topic_id)
    with pytest.raises(ValueError, match="cannot answer for topic id"):
        encode_topic(unknown, 11)
