"""The record of a member of a consumer group (KIP-848): all of it that outlives the group's coordinator.

Stored format: docs/format/consumer-group-records.md. All integers are big-endian; strings are Kafka's.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.stored_assignment import (
    COUNT,
    MAX_TOPICS,
    MIN_STRING_BYTES,
    Assignment,
    decode_assignment,
    decode_count,
    decode_names,
    encode_assignment,
    encode_names,
)
from kafscale.protocol.wire import (
    UNDERRUN_ERRORS,
    MalformedRequestError,
    nullable_string,
    read_nullable_string,
    read_string,
    string,
)

VERSION: Final = 1

MAX_MEMBER_BYTES: Final = 1024 * 1024
"""The largest record of a member that used the classic protocol: etcd takes requests of up to 1.5 MiB by default."""

_VERSION = Struct(">H")
_FIXED = Struct(">Biii")
_SIZED = Struct(">i")
_MIN_PROTOCOL_BYTES = MIN_STRING_BYTES + _SIZED.size
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
            *encode_names(member.subscribed_topic_names),
            *encode_assignment(member.assigned),
            *encode_assignment(member.pending_revocation),
            *_encode_classic(member.classic),
        )
    )


def _encode_classic(classic: ClassicMembership | None) -> Iterator[bytes]:
    yield bytes([0 if classic is None else _CLASSIC])
    if classic is not None:
        yield COUNT.pack(classic.session_timeout_ms)
        yield COUNT.pack(len(classic.protocols))
        for name, metadata in classic.protocols:
            yield string(name)
            yield _SIZED.pack(len(metadata)) + metadata


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
    names, position = decode_names(data, position)
    assigned, position = decode_assignment(data, position)
    pending_revocation, position = decode_assignment(data, position)
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


def _decode_classic(data: bytes, position: int) -> tuple[ClassicMembership | None, int]:
    kind = data[position]
    position += 1
    if kind == 0:
        return None, position
    if kind != _CLASSIC:
        raise MalformedRequestError(f"kind {kind} of a member")
    (session_timeout_ms,) = COUNT.unpack_from(data, position)
    count, position = decode_count(data, position + COUNT.size, _MIN_PROTOCOL_BYTES, MAX_TOPICS)
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
