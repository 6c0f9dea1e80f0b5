"""The record of a member of a consumer group (KIP-848): all of it that outlives the group's coordinator.

Stored format: docs/format/consumer-group-records.md. All integers are big-endian; strings are Kafka's.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.wire import (
    UNDERRUN_ERRORS,
    MalformedRequestError,
    check_count,
    nullable_string,
    read_nullable_string,
    read_string,
    string,
)

VERSION: Final = 1

MAX_MEMBER_BYTES: Final = 1024 * 1024
"""The largest record of a member that used the classic protocol: etcd takes requests of up to 1.5 MiB by default."""

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id. No topic without partitions."""

NO_PARTITIONS: Final[Assignment] = {}

_VERSION = Struct(">H")
_FIXED = Struct(">Biii")
_COUNT = Struct(">i")
_SIZED = Struct(">i")
_TOPIC = Struct(">16si")
_RUN = Struct(">ii")
_MIN_STRING_BYTES = 2
_MIN_PROTOCOL_BYTES = _MIN_STRING_BYTES + _SIZED.size
_MAX_PARTITIONS = 1_000_000
_MAX_TOPICS = 1_000_000
_CLASSIC = 1


class MemberState(IntEnum):
    """How far a member has come towards the group's target assignment. The numbers are stored."""

    STABLE = 0
    """It has what the target of its epoch gives it."""

    UNREVOKED_PARTITIONS = 1
    """It was asked to give partitions up, and has not said yet that it did."""

    UNRELEASED_PARTITIONS = 2
    """It lacks partitions that another member has not given up yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMembership:
    """The join of a member that uses the classic protocol. `protocols`: names and metadata, in its order."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member as its coordinator knows it.

    `member_epoch`: the epoch of the group's assignment that it has reached, -2 for a static member that has left for
    a while. `assigned`: what it may consume. `pending_revocation`: what it may have still, and is to give up.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: frozenset[str] = frozenset()
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    state: MemberState = MemberState.STABLE
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)
    classic: ClassicMembership | None = None


def encode_consumer_member(member: ConsumerMember) -> bytes:
    """The stored bytes. The member's id is in the key."""
    names = sorted(member.subscribed_topic_names)
    return b"".join(
        (
            _VERSION.pack(VERSION),
            _FIXED.pack(
                member.state, member.member_epoch, member.previous_member_epoch, member.rebalance_timeout_ms
            ),
            nullable_string(member.instance_id),
            nullable_string(member.rack_id),
            string(member.client_id),
            string(member.client_host),
            nullable_string(member.server_assignor),
            nullable_string(member.subscribed_topic_regex),
            _COUNT.pack(len(names)),
            *(string(name) for name in names),
            *_encode_assignment(member.assigned),
            *_encode_assignment(member.pending_revocation),
            *_encode_classic(member.classic),
        )
    )


def _encode_classic(classic: ClassicMembership | None) -> Iterator[bytes]:
    yield bytes([0 if classic is None else _CLASSIC])
    if classic is not None:
        yield _COUNT.pack(classic.session_timeout_ms)
        yield _COUNT.pack(len(classic.protocols))
        for name, metadata in classic.protocols:
            yield string(name)
            yield _SIZED.pack(len(metadata)) + metadata


def _encode_assignment(assignment: Assignment) -> Iterator[bytes]:
    yield _COUNT.pack(len(assignment))
    for topic_id in sorted(assignment):
        runs = list(_runs(sorted(assignment[topic_id])))
        yield _TOPIC.pack(topic_id.bytes, len(runs))
        yield from (_RUN.pack(first, count) for first, count in runs)


def _runs(ascending: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = count = 0
    for number in ascending:
        if count and number == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count


def decode_consumer_member(name: str, member_id: str, data: bytes) -> ConsumerMember:
    """The member of this id. `name` says which record in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a member's record of {len(data)} bytes is too short")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        member, end = _decode(member_id, data)
    except (MalformedRequestError, *UNDERRUN_ERRORS, ValueError) as problem:
        raise CorruptDataError(name, f"a member's record: {problem}") from problem
    if end != len(data):
        raise CorruptDataError(name, f"{len(data) - end} bytes after the end of the member's record")
    return member


def _decode(member_id: str, data: bytes) -> tuple[ConsumerMember, int]:
    state, member_epoch, previous_member_epoch, rebalance_timeout_ms = _FIXED.unpack_from(data, _VERSION.size)
    instance_id, position = read_nullable_string(data, _VERSION.size + _FIXED.size)
    rack_id, position = read_nullable_string(data, position)
    client_id, position = read_string(data, position, "a client id")
    client_host, position = read_string(data, position, "a client's host")
    server_assignor, position = read_nullable_string(data, position)
    regex, position = read_nullable_string(data, position)
    names, position = _decode_names(data, position)
    assigned, position = _decode_assignment(data, position)
    pending_revocation, position = _decode_assignment(data, position)
    classic, position = _decode_classic(data, position)
    member = ConsumerMember(
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms,
        subscribed_topic_names=names,
        subscribed_topic_regex=regex,
        server_assignor=server_assignor,
        state=MemberState(state),
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        assigned=assigned,
        pending_revocation=pending_revocation,
        classic=classic,
    )
    return member, position


def _decode_count(data: bytes, position: int, smallest_bytes: int, most: int) -> tuple[int, int]:
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    check_count(count, smallest_bytes, data, position, most)
    return count, position


def _decode_names(data: bytes, position: int) -> tuple[frozenset[str], int]:
    count, position = _decode_count(data, position, _MIN_STRING_BYTES, _MAX_TOPICS)
    names = []
    for _ in range(count):
        topic, position = read_string(data, position, "a subscribed topic")
        names.append(topic)
    return frozenset(names), position


def _decode_assignment(data: bytes, position: int) -> tuple[Assignment, int]:
    count, position = _decode_count(data, position, _TOPIC.size, _MAX_TOPICS)
    assignment: dict[uuid.UUID, frozenset[int]] = {}
    total = 0
    for _ in range(count):
        topic_id, run_count = _TOPIC.unpack_from(data, position)
        position += _TOPIC.size
        check_count(run_count, _RUN.size, data, position, _MAX_PARTITIONS)
        partitions: set[int] = set()
        for first, length in _RUN.iter_unpack(data[position : position + run_count * _RUN.size]):
            total += length
            if first < 0 or length < 1 or total > _MAX_PARTITIONS:
                raise MalformedRequestError(f"{length} partitions from {first} on")
            partitions.update(range(first, first + length))
        position += run_count * _RUN.size
        if not partitions:
            raise MalformedRequestError("a topic without partitions")
        assignment[uuid.UUID(bytes=topic_id)] = frozenset(partitions)
    return assignment, position


def _decode_classic(data: bytes, position: int) -> tuple[ClassicMembership | None, int]:
    kind = data[position]
    position += 1
    if kind == 0:
        return None, position
    if kind != _CLASSIC:
        raise MalformedRequestError(f"kind {kind} of a member")
    (session_timeout_ms,) = _COUNT.unpack_from(data, position)
    count, position = _decode_count(data, position + _COUNT.size, _MIN_PROTOCOL_BYTES, _MAX_TOPICS)
    protocols = []
    for _ in range(count):
        name, position = read_string(data, position, "a protocol's name")
        (size_bytes,) = _SIZED.unpack_from(data, position)
        position += _SIZED.size
        if not 0 <= size_bytes <= len(data) - position:
            raise MalformedRequestError(f"{size_bytes} bytes at byte {position} of {len(data)}")
        protocols.append((name, data[position : position + size_bytes]))
        position += size_bytes
    return ClassicMembership(session_timeout_ms=session_timeout_ms, protocols=tuple(protocols)), position
