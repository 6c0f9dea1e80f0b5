"""The embedded consumer protocol: what members of classic groups write into JoinGroup, and read from SyncGroup.

As in Kafka's ConsumerProtocol, versions 0 to 3. A newer version is read as the newest one that is known: versions
only add fields at the end.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.protocol.wire import (
    UNDERRUN_ERRORS,
    MalformedRequestError,
    check_count,
    read_nullable_string,
    read_string,
    string,
)

HIGHEST_VERSION: Final = 3

_FIRST_WITH_OWNED: Final = 1
_FIRST_WITH_GENERATION: Final = 2
_FIRST_WITH_RACK: Final = 3
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_MIN_STRING_BYTES: Final = 2
_MIN_TOPIC_BYTES: Final = 6
_MAX_TOPICS: Final = 100_000
_MAX_PARTITIONS: Final = 1_000_000
_NULL: Final = _INT32.pack(-1)

TopicPartitions = Mapping[str, frozenset[int]]
"""Partitions by the topic's name. A topic without partitions is not in them."""


class MalformedProtocolError(ValueError):
    """The bytes are not those of the embedded consumer protocol."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's own words. `owned`: its partitions when it joined; none in versions that do not say it."""

    version: int
    topics: frozenset[str]
    owned: TopicPartitions
    rack_id: str | None


def decode_subscription(metadata: bytes) -> Subscription:
    """Read a member's metadata. Raises `MalformedProtocolError`."""
    try:
        return _subscription(metadata)
    except (MalformedRequestError, *UNDERRUN_ERRORS) as problem:
        raise MalformedProtocolError(f"a subscription: {problem}") from problem


def decode_assignment(assignment: bytes) -> TopicPartitions:
    """Read the partitions of an assignment. Raises `MalformedProtocolError`."""
    try:
        version, position = _version(assignment)
        partitions, position = _partitions(assignment, position)
        _check_end(version, assignment, _skip_bytes(assignment, position))
    except (MalformedRequestError, *UNDERRUN_ERRORS) as problem:
        raise MalformedProtocolError(f"an assignment: {problem}") from problem
    return partitions


def encode_assignment(version: int, partitions: TopicPartitions) -> bytes:
    """An assignment for a member whose subscription has this version."""
    parts = [_INT16.pack(min(version, HIGHEST_VERSION)), _INT32.pack(len(partitions))]
    for topic in sorted(partitions):
        indexes = sorted(partitions[topic])
        parts += [string(topic), struct.pack(f">{1 + len(indexes)}i", len(indexes), *indexes)]
    return b"".join((*parts, _NULL))


def encode_subscription(subscription: Subscription, generation: int = -1) -> bytes:
    """A member's metadata, as a client sends it."""
    version, topics = subscription.version, sorted(subscription.topics)
    parts = [_INT16.pack(version), _INT32.pack(len(topics)), *(string(one) for one in topics), _NULL]
    if version >= _FIRST_WITH_OWNED:
        # Of the same form as an assignment, between its version and its user data.
        parts.append(encode_assignment(version, subscription.owned)[_INT16.size : -len(_NULL)])
    if version >= _FIRST_WITH_GENERATION:
        parts.append(_INT32.pack(generation))
    if version >= _FIRST_WITH_RACK:
        rack_id = subscription.rack_id
        parts.append(_INT16.pack(-1) if rack_id is None else string(rack_id))
    return b"".join(parts)


def _subscription(data: bytes) -> Subscription:
    version, position = _version(data)
    topics, position = _topics(data, position)
    position = _skip_bytes(data, position)
    owned: TopicPartitions = {}
    rack_id: str | None = None
    if version >= _FIRST_WITH_OWNED:
        owned, position = _partitions(data, position)
    if version >= _FIRST_WITH_GENERATION:
        _, position = _int32(data, position)
    if version >= _FIRST_WITH_RACK:
        rack_id, position = read_nullable_string(data, position)
    _check_end(version, data, position)
    return Subscription(version, topics, owned, rack_id or None)


def _version(data: bytes) -> tuple[int, int]:
    (version,) = _INT16.unpack_from(data)
    if version < 0:
        raise MalformedRequestError(f"version {version}")
    return version, _INT16.size


def _check_end(version: int, data: bytes, position: int) -> None:
    if version <= HIGHEST_VERSION and position != len(data):
        raise MalformedRequestError(f"{len(data) - position} bytes after the end of version {version}")


def _int32(data: bytes, position: int) -> tuple[int, int]:
    (value,) = _INT32.unpack_from(data, position)
    return value, position + _INT32.size


def _skip_bytes(data: bytes, position: int) -> int:
    """The position after the user data, which only assignors of clients understand."""
    size_bytes, position = _int32(data, position)
    if size_bytes < -1 or size_bytes > len(data) - position:
        raise MalformedRequestError(f"{size_bytes} bytes of user data, {len(data) - position} are left")
    return position + max(size_bytes, 0)


def _topics(data: bytes, position: int) -> tuple[frozenset[str], int]:
    count, position = _int32(data, position)
    check_count(count, _MIN_STRING_BYTES, data, position, _MAX_TOPICS)
    topics = []
    for _ in range(count):
        topic, position = read_string(data, position, "a subscribed topic")
        topics.append(topic)
    return frozenset(topics), position


def _partitions(data: bytes, position: int) -> tuple[TopicPartitions, int]:
    count, position = _int32(data, position)
    check_count(count, _MIN_TOPIC_BYTES, data, position, _MAX_TOPICS)
    partitions: dict[str, frozenset[int]] = {}
    left = _MAX_PARTITIONS
    for _ in range(count):
        topic, position = read_string(data, position, "a topic")
        index_count, position = _int32(data, position)
        left = check_count(index_count, _INT32.size, data, position, left)
        indexes = frozenset(struct.unpack_from(f">{index_count}i", data, position))
        position += index_count * _INT32.size
        if any(index < 0 for index in indexes):
            raise MalformedRequestError(f"a partition below 0 of {topic}")
        if indexes:
            partitions[topic] = partitions.get(topic, frozenset()) | indexes
    return partitions, position
