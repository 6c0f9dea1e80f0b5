"""The ShareFetch response (API 78), versions 1 and 2, encoded by hand: the records stay views of segments."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

from kafscale.protocol.node_endpoints import NO_LEADER, NO_LEADER_EPOCH, NodeEndpoint, encode_node_endpoints
from kafscale.protocol.types import Buffer
from kafscale.protocol.wire import nullable_compact_string, uvarint

_LENGTH_BYTES = 4
# Length, correlation id, no tagged fields of the header, throttle time, error code.
_FRAME_START = struct.Struct(">iibih")
_INT32 = struct.Struct(">i")
_INDEX_AND_ERROR = struct.Struct(">ih")
_ERROR = struct.Struct(">h")
# Leader id, leader epoch, no tagged fields.
_LEADER = struct.Struct(">iib")
# First offset, last offset, delivery count, no tagged fields.
_ACQUIRED = struct.Struct(">qqhb")
_NO_TAGS = b"\x00"


class AcquiredRange(NamedTuple):
    """Offsets, both inclusive, that the member has now; `delivery_count` with this delivery."""

    first_offset: int
    last_offset: int
    delivery_count: int


class SharedPartition(NamedTuple):
    """One partition of the answer. `acknowledge_error_code`: of the acknowledgements in the same request.

    `leader_id` and `leader_epoch`: given with NOT_LEADER_OR_FOLLOWER.
    """

    partition_index: int
    error_code: int = 0
    error_message: str | None = None
    acknowledge_error_code: int = 0
    acknowledge_error_message: str | None = None
    records: Sequence[Buffer] = ()
    records_size_bytes: int = 0
    acquired: Sequence[AcquiredRange] = ()
    leader_id: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH


class SharedTopic(NamedTuple):
    """The partitions of one topic, by its id (16 bytes)."""

    topic_id: bytes
    partitions: Sequence[SharedPartition]


def encode_share_fetch_response(
    correlation_id: int,
    error_code: int,
    error_message: str | None,
    lock_timeout_ms: int,
    topics: Sequence[SharedTopic],
    endpoints: Sequence[NodeEndpoint] = (),
    *,
    throttle_time_ms: int = 0,
) -> list[Buffer]:
    """Encode a whole frame (4-byte length, header, body) as buffers to be written in order.

    Raises `struct.error` when a value does not fit its field.
    """
    buffers: list[Buffer] = []
    pending: list[Buffer] = [
        nullable_compact_string(error_message), _INT32.pack(lock_timeout_ms), uvarint(len(topics) + 1),
    ]  # fmt: skip
    for topic in topics:
        pending.append(topic.topic_id + uvarint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            pending.append(_before_records(partition))
            if partition.records_size_bytes:
                buffers.append(b"".join(pending))
                buffers.extend(partition.records)
                pending.clear()
            pending.append(_after_records(partition))
        pending.append(_NO_TAGS)
    pending.append(encode_node_endpoints(endpoints))
    pending.append(_NO_TAGS)
    buffers.append(b"".join(pending))
    size_bytes = _FRAME_START.size - _LENGTH_BYTES + sum(map(len, buffers))
    buffers[0] = _FRAME_START.pack(size_bytes, correlation_id, 0, throttle_time_ms, error_code) + buffers[0]
    return buffers


def _before_records(partition: SharedPartition) -> bytes:
    return b"".join(
        (
            _INDEX_AND_ERROR.pack(partition.partition_index, partition.error_code),
            nullable_compact_string(partition.error_message),
            _ERROR.pack(partition.acknowledge_error_code),
            nullable_compact_string(partition.acknowledge_error_message),
            _LEADER.pack(partition.leader_id, partition.leader_epoch, 0),
            uvarint(partition.records_size_bytes + 1),
        )
    )


def _after_records(partition: SharedPartition) -> bytes:
    acquired = partition.acquired
    ranges = (_ACQUIRED.pack(*one, 0) for one in acquired)
    return b"".join((uvarint(len(acquired) + 1), *ranges, _NO_TAGS))
