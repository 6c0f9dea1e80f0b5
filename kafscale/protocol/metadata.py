"""Metadata responses (API 3), versions 0 to 12, by hand: clusters of 10,000 partitions are asked for often.

v1: rack, controller, internal topics. v2: cluster id. v3: throttle time. v5: offline replicas. v7: leader
epoch. v8: authorized operations. v9: flexible. v10: topic ids. v11: no cluster authorized operations. v12: a
topic asked for by an unknown id has a null name.
"""

import struct
import uuid
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from kafscale.protocol.wire import (
    array_count,
    compact_string,
    nullable_compact_string,
    nullable_string,
    string,
    uvarint,
)

MIN_VERSION: Final = 0
MAX_VERSION: Final = 12
NO_AUTHORIZED_OPERATIONS: Final = -(1 << 31)
"""Kafka's value of authorized operations that were not requested."""

NO_TOPIC_ID: Final = uuid.UUID(int=0)
"""Of a topic that is not known."""

_FIRST_FLEXIBLE_VERSION = 9
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_FRAME_START = struct.Struct(">ii")


class MetadataBroker(NamedTuple):
    """A broker as clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class MetadataPartition(NamedTuple):
    """A partition: its leader (-1 for none), the leader's epoch, and node ids."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int] = ()


class MetadataTopic(NamedTuple):
    """A topic. `name` is None only for an unknown topic id, which only version 12 can say."""

    error_code: int
    name: str | None
    topic_id: uuid.UUID
    is_internal: bool
    partitions: Sequence[MetadataPartition]
    authorized_operations: int = NO_AUTHORIZED_OPERATIONS


def encode_metadata_response(
    correlation_id: int,
    version: int,
    brokers: Sequence[MetadataBroker],
    cluster_id: str | None,
    controller_id: int,
    topics: Sequence[bytes],
    *,
    throttle_time_ms: int = 0,
    cluster_authorized_operations: int = NO_AUTHORIZED_OPERATIONS,
) -> bytes:
    """Encode a whole Metadata response frame: 4-byte length, header, body. `topics`: each from `encode_topic`.

    Raises `struct.error` when a value does not fit its field.
    """
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    parts = [b"", b"\x00" if flexible else b""]
    if version >= 3:
        parts.append(_INT32.pack(throttle_time_ms))
    parts.append(_count(len(brokers), flexible))
    parts.extend(_broker(broker, version) for broker in brokers)
    if version >= 2:
        parts.append(nullable_compact_string(cluster_id) if flexible else nullable_string(cluster_id))
    if version >= 1:
        parts.append(_INT32.pack(controller_id))
    parts.append(_count(len(topics), flexible))
    parts.extend(topics)
    if 8 <= version <= 10:
        parts.append(_INT32.pack(cluster_authorized_operations))
    if flexible:
        parts.append(b"\x00")
    parts[0] = _FRAME_START.pack(4 + sum(map(len, parts)), correlation_id)
    return b"".join(parts)


def _count(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else array_count(count)


def _broker(broker: MetadataBroker, version: int) -> bytes:
    node_id, port = _INT32.pack(broker.node_id), _INT32.pack(broker.port)
    if version >= _FIRST_FLEXIBLE_VERSION:
        return node_id + compact_string(broker.host) + port + nullable_compact_string(broker.rack) + b"\x00"
    rack = nullable_string(broker.rack) if version >= 1 else b""
    return node_id + string(broker.host) + port + rack


def encode_topic(topic: MetadataTopic, version: int) -> bytes:
    """A topic as a response of this version holds it.

    Raises `struct.error` when a value does not fit its field, `ValueError` for a version before 12 when the
    topic has no name.
    """
    flexible = version >= _FIRST_FLEXIBLE_VERSION
    if topic.name is None and version < 12:
        raise ValueError(f"Metadata v{version} cannot answer for topic id {topic.topic_id} without a name")
    parts = [
        _INT16.pack(topic.error_code),
        nullable_compact_string(topic.name) if flexible else nullable_string(topic.name),
    ]
    if version >= 10:
        parts.append(topic.topic_id.bytes)
    if version >= 1:
        parts.append(b"\x01" if topic.is_internal else b"\x00")
    parts.append(_count(len(topic.partitions), flexible))
    encode = _partition_encoder(version)
    parts.extend([encode(partition) for partition in topic.partitions])
    if version >= 8:
        parts.append(_INT32.pack(topic.authorized_operations))
    if flexible:
        parts.append(b"\x00")
    return b"".join(parts)


def with_authorized_operations(topic: bytes, version: int, operations: int) -> bytes:
    """An encoded topic of version 8 or later with other authorized operations: its last field."""
    end = len(topic) - (1 if version >= _FIRST_FLEXIBLE_VERSION else 0)
    return topic[: end - _INT32.size] + _INT32.pack(operations) + topic[end:]


def _partition_encoder(version: int) -> Callable[[MetadataPartition], bytes]:
    if version >= _FIRST_FLEXIBLE_VERSION:
        return _v9_partition
    if version >= 7:
        return _v7_partition
    return _v5_partition if version >= 5 else _v0_partition


@lru_cache(maxsize=1024)
def _layout(start: str, flexible: bool, *counts: int) -> tuple[Callable[..., bytes], list[bytes]]:
    """A partition's packing function for arrays of node ids with these counts, and the counts encoded."""
    encoded = [_count(count, flexible) for count in counts]
    arrays = "".join(f"{len(size)}s{count}i" for size, count in zip(encoded, counts, strict=True))
    tags = "x" if flexible else ""
    return struct.Struct(f">{start}{arrays}{tags}").pack, encoded


def _v0_partition(partition: MetadataPartition) -> bytes:
    error_code, index, leader_id, _, replicas, isr, _ = partition
    pack, (replica_count, isr_count) = _layout("hii", False, len(replicas), len(isr))
    return pack(error_code, index, leader_id, replica_count, *replicas, isr_count, *isr)


def _v5_partition(partition: MetadataPartition) -> bytes:
    error_code, index, leader_id, _, replicas, isr, offline = partition
    pack, (replica_count, isr_count, offline_count) = _layout(
        "hii", False, len(replicas), len(isr), len(offline)
    )
    return pack(
        error_code, index, leader_id, replica_count, *replicas, isr_count, *isr, offline_count, *offline
    )


def _v7_partition(partition: MetadataPartition, flexible: bool = False) -> bytes:
    error_code, index, leader_id, leader_epoch, replicas, isr, offline = partition
    pack, (replica_count, isr_count, offline_count) = _layout(
        "hiii", flexible, len(replicas), len(isr), len(offline)
    )
    return pack(
        error_code,
        index,
        leader_id,
        leader_epoch,
        replica_count,
        *replicas,
        isr_count,
        *isr,
        offline_count,
        *offline,
    )


def _v9_partition(partition: MetadataPartition) -> bytes:
    return _v7_partition(partition, flexible=True)
