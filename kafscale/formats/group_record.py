"""The group record: what of a consumer group outlives its coordinator. Stored bytes and value.

Stored format: docs/format/group-record.md. All integers are big-endian; strings are Kafka's.
"""

from dataclasses import dataclass
from struct import Struct

import zstandard

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.wire import (
    UNDERRUN_ERRORS,
    MalformedRequestError,
    nullable_string,
    read_nullable_string,
    read_string,
    string,
)

VERSION = 1

MAX_GROUP_RECORD_BYTES = 1024 * 1024
"""The largest record that is written: etcd takes requests of up to 1.5 MiB by default."""

MAX_UNCOMPRESSED_BYTES = 64 * 1024 * 1024
"""The most that a record holds before it is compressed: it is built, and read back, in memory and in one piece."""

_PREFIX = Struct(">HB")
_GROUP = Struct(">iqi")
_TIMEOUTS = Struct(">ii")
_COUNT = Struct(">i")

_PLAIN = 0
_ZSTD = 1
# Below this, compressing a record gains nothing worth its time.
_COMPRESS_FROM_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRecord:
    """A member. `protocols`: each name and its metadata, as the member sent them, in its order.

    `assignment`: as the leader sent it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRecord:
    """A completed generation, or a group without members.

    `protocol_type`: None for a group that only ever stored offsets. `protocol_name` and `leader`: None without
    members. `state_since_ms`: Unix milliseconds, when the group came to be so.
    """

    generation: int
    state_since_ms: int
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: tuple[MemberRecord, ...] = ()


class GroupRecordTooLargeError(ValueError):
    """The record has more than `MAX_UNCOMPRESSED_BYTES` before it is compressed."""


def encode_group_record(record: GroupRecord) -> bytes:
    """The record's stored bytes; may be more than `MAX_GROUP_RECORD_BYTES`, which the caller refuses.

    Raises `GroupRecordTooLargeError` for a record that `decode_group_record` would refuse.
    """
    body = b"".join(
        (
            _GROUP.pack(record.generation, record.state_since_ms, len(record.members)),
            nullable_string(record.protocol_type),
            nullable_string(record.protocol_name),
            nullable_string(record.leader),
            *(_encode_member(member) for member in record.members),
        )
    )
    if len(body) > MAX_UNCOMPRESSED_BYTES:
        raise GroupRecordTooLargeError(f"{len(body)} bytes, at most {MAX_UNCOMPRESSED_BYTES}")
    if len(body) < _COMPRESS_FROM_BYTES:
        return _PREFIX.pack(VERSION, _PLAIN) + body
    # The members of a group name the same topics: a large record shrinks to a small part of itself.
    return _PREFIX.pack(VERSION, _ZSTD) + zstandard.ZstdCompressor().compress(body)


def _encode_member(member: MemberRecord) -> bytes:
    return b"".join(
        (
            string(member.member_id),
            nullable_string(member.group_instance_id),
            string(member.client_id),
            string(member.client_host),
            _TIMEOUTS.pack(member.session_timeout_ms, member.rebalance_timeout_ms),
            _COUNT.pack(len(member.protocols)),
            *(part for name, metadata in member.protocols for part in (string(name), _sized(metadata))),
            _sized(member.assignment),
        )
    )


def _sized(data: bytes) -> bytes:
    return _COUNT.pack(len(data)) + data


def decode_group_record(name: str, data: bytes) -> GroupRecord:
    """The record. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < _PREFIX.size:
        raise CorruptDataError(name, f"a group record of {len(data)} bytes is too short")
    version, form = _PREFIX.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    body = data[_PREFIX.size :]
    if form not in (_PLAIN, _ZSTD):
        raise CorruptDataError(name, f"form {form} of a group record is neither {_PLAIN} nor {_ZSTD}")
    try:
        return _decode_body(name, body if form == _PLAIN else _decompressed(body))
    except (MalformedRequestError, zstandard.ZstdError, *UNDERRUN_ERRORS) as problem:
        raise CorruptDataError(name, f"group record: {problem}") from problem


def _decompressed(body: bytes) -> bytes:
    # The frame says how large its content is, and room for that is taken before any of it is looked at.
    size_bytes = zstandard.frame_content_size(body)
    if size_bytes > MAX_UNCOMPRESSED_BYTES:
        raise MalformedRequestError(
            f"it decompresses to {size_bytes} bytes, at most {MAX_UNCOMPRESSED_BYTES} are legal"
        )
    return zstandard.ZstdDecompressor().decompress(body, allow_extra_data=False)


def _decode_body(name: str, body: bytes) -> GroupRecord:
    generation, state_since_ms, member_count = _GROUP.unpack_from(body)
    protocol_type, position = read_nullable_string(body, _GROUP.size)
    protocol_name, position = read_nullable_string(body, position)
    leader, position = read_nullable_string(body, position)
    members = []
    for _ in _counted(member_count, "members"):
        member, position = _decode_member(body, position)
        members.append(member)
    if position != len(body):
        raise CorruptDataError(name, f"{len(body) - position} bytes after the end of the group record")
    return GroupRecord(
        generation=generation,
        state_since_ms=state_since_ms,
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        leader=leader,
        members=tuple(members),
    )


def _decode_member(body: bytes, position: int) -> tuple[MemberRecord, int]:
    member_id, position = read_string(body, position, "a member id")
    group_instance_id, position = read_nullable_string(body, position)
    client_id, position = read_string(body, position, "a client id")
    client_host, position = read_string(body, position, "a client's host")
    session_timeout_ms, rebalance_timeout_ms = _TIMEOUTS.unpack_from(body, position)
    position += _TIMEOUTS.size
    (protocol_count,) = _COUNT.unpack_from(body, position)
    position += _COUNT.size
    protocols = []
    for _ in _counted(protocol_count, "protocols"):
        protocol_name, position = read_string(body, position, "a protocol's name")
        metadata, position = _read_sized(body, position)
        protocols.append((protocol_name, metadata))
    assignment, position = _read_sized(body, position)
    member = MemberRecord(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        protocols=tuple(protocols),
        assignment=assignment,
    )
    return member, position


def _counted(count: int, what: str) -> range:
    if count < 0:
        raise MalformedRequestError(f"{count} {what}")
    return range(count)


def _read_sized(body: bytes, position: int) -> tuple[bytes, int]:
    (size,) = _COUNT.unpack_from(body, position)
    start = position + _COUNT.size
    end = start + size
    if size < 0 or end > len(body):
        raise MalformedRequestError(f"{size} bytes at byte {start} of {len(body)}")
    return body[start:end], end
