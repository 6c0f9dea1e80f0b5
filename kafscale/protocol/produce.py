"""Produce (API 0), versions 0 to 12, by hand: it is the hot path in.

v0-2: no transactional id, message sets of magic 0 or 1. v1: throttle time. v2: log append time. v3:
transactional id, record batches (KIP-98). v5: log start offset. v8: error message (KIP-467). v9: flexible.
v10: the new leader after an error (KIP-951). v11 and v12 look like it: v11 knows TRANSACTION_ABORTABLE, and with v12
the leader adds partitions to transactions (KIP-890). v13 has topic ids (KIP-516), which this broker does not offer
for Produce.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafscale.protocol.node_endpoints import CurrentLeader, NodeEndpoint, encode_node_endpoints
from kafscale.protocol.wire import (
    MAX_ARRAY_ELEMENTS,
    UNDERRUN_ERRORS,
    MalformedRequestError,
    array_count,
    check_count,
    compact_string,
    nullable_compact_string,
    nullable_string,
    read_compact_string,
    read_nullable_compact_string,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tagged_fields,
    string,
    uvarint,
)

MIN_VERSION: Final = 0
MAX_VERSION: Final = 12
_FIRST_FLEXIBLE_VERSION = 9
_FIRST_VERSION_WITH_ERROR_MESSAGE = 8
_FIRST_VERSION_WITH_LEADERS = 10

_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_ACKS_TIMEOUT = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_INDEX_AND_LENGTH = struct.Struct(">ii")
_FRAME_START = struct.Struct(">ii")
# Tag 0 and its length; leader id, leader epoch, no tagged fields of their own.
_CURRENT_LEADER = struct.Struct(">BBiib")

_MIN_TOPIC_BYTES = 2 + 4
_MIN_PARTITION_BYTES = 4 + 4
_MIN_FLEXIBLE_TOPIC_BYTES = 1 + 1 + 1
_MIN_FLEXIBLE_PARTITION_BYTES = 4 + 1 + 1

PartitionRecords = tuple[int, memoryview | None]
TopicRecords = tuple[str, list[PartitionRecords]]


class ProduceRequest(NamedTuple):
    """A Produce request: topics as (name, [(partition, records)]).

    Records are views of the request's body and valid only as long as it is; None where the client sent null.
    """

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicRecords]


class PartitionProduceResponse(NamedTuple):
    """The answer for one partition. -1 stands for no offset and no timestamp."""

    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    error_message: str | None
    record_errors: Sequence[tuple[int, str]] = ()
    """The places of records in a batch that is refused for them, each with what is wrong."""
    current_leader: CurrentLeader | None = None
    """From version 10, after NOT_LEADER_OR_FOLLOWER."""


def decode_produce_request(body: memoryview, version: int) -> ProduceRequest:
    """Decode a Produce request's body (after the header).

    Bytes after the last field are passed over, as Kafka does. Raises `MalformedRequestError` on any other byte
    that breaks the format.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise ValueError(f"Produce version {version} is not in {MIN_VERSION} to {MAX_VERSION}")
    try:
        if version >= _FIRST_FLEXIBLE_VERSION:
            return _decode_flexible(body)
        return _decode_plain(body, version)
    except (MalformedRequestError, *UNDERRUN_ERRORS) as error:
        raise MalformedRequestError(f"ProduceRequest v{version} of {len(body)} bytes: {error}") from error


def _decode_plain(body: memoryview, version: int) -> ProduceRequest:
    transactional_id, pos = read_nullable_string(body, 0) if version >= 3 else (None, 0)
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(body, pos)
    pos += _ACKS_TIMEOUT_COUNT.size
    elements_left = check_count(topic_count, _MIN_TOPIC_BYTES, body, pos, MAX_ARRAY_ELEMENTS)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        name, pos = read_string(body, pos, "topic name")
        (partition_count,) = _INT32.unpack_from(body, pos)
        pos += 4
        elements_left = check_count(partition_count, _MIN_PARTITION_BYTES, body, pos, elements_left)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            index, length = _INDEX_AND_LENGTH.unpack_from(body, pos)
            pos += _INDEX_AND_LENGTH.size
            records, pos = _slice_records(body, pos, length)
            partitions.append((index, records))
        topics.append((name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_flexible(body: memoryview) -> ProduceRequest:
    transactional_id, pos = read_nullable_compact_string(body, 0)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(body, pos)
    topic_count, pos = read_uvarint(body, pos + _ACKS_TIMEOUT.size)
    topic_count -= 1
    elements_left = check_count(topic_count, _MIN_FLEXIBLE_TOPIC_BYTES, body, pos, MAX_ARRAY_ELEMENTS)
    topics: list[TopicRecords] = []
    for _ in range(topic_count):
        name, pos = read_compact_string(body, pos, "topic name")
        partition_count, pos = read_uvarint(body, pos)
        partition_count -= 1
        elements_left = check_count(partition_count, _MIN_FLEXIBLE_PARTITION_BYTES, body, pos, elements_left)
        partitions: list[PartitionRecords] = []
        for _ in range(partition_count):
            (index,) = _INT32.unpack_from(body, pos)
            length, pos = read_uvarint(body, pos + 4)
            records, pos = _slice_records(body, pos, length - 1)
            pos, elements_left = skip_tagged_fields(body, pos, elements_left)
            partitions.append((index, records))
        pos, elements_left = skip_tagged_fields(body, pos, elements_left)
        topics.append((name, partitions))
    skip_tagged_fields(body, pos, elements_left)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _slice_records(body: memoryview, pos: int, length: int) -> tuple[memoryview | None, int]:
    if length < 0:
        if length == -1:
            return None, pos
        raise MalformedRequestError(f"records at byte {pos} have length {length}")
    end = pos + length
    if end > len(body):
        raise MalformedRequestError(f"records of {length} bytes at byte {pos} end after the request")
    return body[pos:end], end


_PARTITION_LAYOUTS: Final = tuple(
    struct.Struct(">ihq" if version < 2 else ">ihqq" if version < 5 else ">ihqqq")
    for version in range(MAX_VERSION + 1)
)
"""The fixed part of a partition's answer: index, error code, base offset, append time, log start offset."""


def encode_produce_response(
    correlation_id: int,
    version: int,
    topics: Sequence[tuple[str, Sequence[PartitionProduceResponse]]],
    throttle_time_ms: int = 0,
    node_endpoints: Sequence[NodeEndpoint] = (),
) -> bytes:
    """Encode a whole Produce response frame: 4-byte length, header, body.

    `node_endpoints`: those of the leaders that the partitions name.

    Raises `struct.error` when a value does not fit its field.
    """
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    encode_count: Callable[[int], bytes] = _compact_count if flexible else array_count
    encode_name = compact_string if flexible else string
    layout = _PARTITION_LAYOUTS[version]
    field_count = len(layout.format) - 1
    parts = [b"", b"\x00" if flexible else b"", encode_count(len(topics))]
    for name, partitions in topics:
        parts.append(encode_name(name))
        parts.append(encode_count(len(partitions)))
        for partition in partitions:
            parts.append(layout.pack(*partition[:field_count]))
            if version >= _FIRST_VERSION_WITH_ERROR_MESSAGE:
                parts.append(_record_errors_and_message(partition, flexible))
            if flexible:
                leader = partition.current_leader
                parts.append(
                    b"\x00"
                    if leader is None or version < _FIRST_VERSION_WITH_LEADERS
                    else _leader_tag(leader)
                )
        if flexible:
            parts.append(b"\x00")
    if version >= 1:
        parts.append(_INT32.pack(throttle_time_ms))
    if flexible:
        has_leaders = node_endpoints and version >= _FIRST_VERSION_WITH_LEADERS
        parts.append(_endpoints_tag(node_endpoints) if has_leaders else b"\x00")
    parts[0] = _FRAME_START.pack(4 + sum(map(len, parts)), correlation_id)
    return b"".join(parts)


def _compact_count(count: int) -> bytes:
    return uvarint(count + 1)


def _record_errors_and_message(partition: PartitionProduceResponse, flexible: bool) -> bytes:
    error_message, record_errors = partition.error_message, partition.record_errors
    if flexible:
        errors = b"".join(
            [_INT32.pack(place) + nullable_compact_string(text) + b"\x00" for place, text in record_errors]
        )
        return uvarint(len(record_errors) + 1) + errors + nullable_compact_string(error_message)
    errors = b"".join([_INT32.pack(place) + nullable_string(text) for place, text in record_errors])
    return array_count(len(record_errors)) + errors + nullable_string(error_message)


def _leader_tag(leader: CurrentLeader) -> bytes:
    """The only tagged field of a partition: 0, its current leader."""
    return b"\x01" + _CURRENT_LEADER.pack(0, _CURRENT_LEADER.size - 2, *leader, 0)


def _endpoints_tag(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """The only tagged field of the answer: 0, where the current leaders are."""
    encoded = encode_node_endpoints(endpoints)
    return b"\x01\x00" + uvarint(len(encoded)) + encoded
