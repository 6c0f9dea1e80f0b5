"""The ShareFetch response that is encoded by hand is what the schema says."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kafscale.protocol.api_messages import ShareFetchResponse
from kafscale.protocol.node_endpoints import NodeEndpoint
from kafscale.protocol.share_fetch import (
    AcquiredRange,
    SharedPartition,
    SharedTopic,
    encode_share_fetch_response,
)

INT16, INT32, INT64 = (st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (16, 32, 64))
MESSAGES = st.none() | st.text(max_size=200)
NAMES = st.text(max_size=20)


@st.composite
def partitions(draw: st.DrawFn) -> SharedPartition:
    records = draw(st.lists(st.binary(min_size=1, max_size=200), max_size=3))
    return SharedPartition(
        draw(INT32), draw(INT16), draw(MESSAGES), draw(INT16), draw(MESSAGES), records, sum(map(len, records)),
        draw(st.lists(st.builds(AcquiredRange, INT64, INT64, INT16), max_size=3)), draw(INT32), draw(INT32),
    )  # fmt: skip


TOPICS = st.lists(
    st.builds(SharedTopic, st.binary(min_size=16, max_size=16), st.lists(partitions(), max_size=3)),
    max_size=3,
)
ENDPOINTS = st.lists(st.builds(NodeEndpoint, INT32, NAMES, INT32, st.none() | NAMES), max_size=3)


@given(INT32, INT16, MESSAGES, INT32, TOPICS, ENDPOINTS, st.integers(0, 10**6), st.sampled_from([1, 2]))
def test_it_is_what_the_schema_says(
    correlation_id: int,
    error_code: int,
    message: str | None,
    lock_timeout_ms: int,
    topics: list[SharedTopic],
    endpoints: list[NodeEndpoint],
    throttle_time_ms: int,
    version: int,
) -> None:
    frame = b"".join(
        encode_share_fetch_response(
            correlation_id, error_code, message, lock_timeout_ms, topics, endpoints,
            throttle_time_ms=throttle_time_ms,
        )
    )  # fmt: skip
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert int.from_bytes(frame[4:8], "big", signed=True) == correlation_id
    response = _decoded(frame[9:], version)
    assert (response.throttle_time_ms, response.error_code) == (throttle_time_ms, error_code)
    assert (response.error_message, response.acquisition_lock_timeout_ms) == (message, lock_timeout_ms)
    assert [
        SharedTopic(
            topic.topic_id.bytes if topic.topic_id else bytes(16),
            [
                SharedPartition(
                    one.partition_index, one.error_code, one.error_message, one.acknowledge_error_code,
                    one.acknowledge_error_message, [bytes(one.records or b"")], len(one.records or b""),
                    [AcquiredRange(*_fields(part)) for part in one.acquired_records],
                    one.current_leader.leader_id, one.current_leader.leader_epoch,
                )
                for one in topic.partitions
            ],
        )
        for topic in response.responses
    ] == [
        topic._replace(
            partitions=[one._replace(records=[b"".join(map(bytes, one.records))]) for one in topic.partitions]
        )
        for topic in topics
    ]  # fmt: skip
    assert [
        NodeEndpoint(one.node_id, one.host, one.port, one.rack) for one in response.node_endpoints
    ] == endpoints


def _decoded(body: bytes, version: int) -> ShareFetchResponse:
    message_class: Any = ShareFetchResponse
    response: ShareFetchResponse = message_class.decode(body, version=version)
    return response


def _fields(
    part: ShareFetchResponse.ShareFetchableTopicResponse.PartitionData.AcquiredRecords,
) -> tuple[int, int, int]:
    return part.first_offset, part.last_offset, part.delivery_count
