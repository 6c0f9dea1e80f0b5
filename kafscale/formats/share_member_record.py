"""The record of a member of a share group (KIP-932): all of it that outlives the group's coordinator.

Stored format: docs/format/share-group-records.md. All integers are big-endian; strings are Kafka's.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.stored_assignment import (
    Assignment,
    decode_assignment,
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

VERSION: Final = 2
"""Records of version 1 are those of members of consumer groups."""

_VERSION = Struct(">H")
_EPOCHS = Struct(">ii")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """A member as its coordinator knows it.

    `member_epoch`: the epoch of the group's assignment that it has. `assigned`: the partitions that it may read;
    others may read them, too.
    """

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: frozenset[str] = frozenset()
    member_epoch: int = 0
    previous_member_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)


def encode_share_member(member: ShareMember) -> bytes:
    """The stored bytes. The member's id is in the key."""
    return b"".join(
        (
            _VERSION.pack(VERSION),
            _EPOCHS.pack(member.member_epoch, member.previous_member_epoch),
            nullable_string(member.rack_id),
            string(member.client_id),
            string(member.client_host),
            *encode_names(member.subscribed_topic_names),
            *encode_assignment(member.assigned),
        )
    )


def is_share_member(data: bytes) -> bool:
    """True if this member's record is that of a member of a share group, by its version."""
    return len(data) >= _VERSION.size and _VERSION.unpack_from(data) == (VERSION,)


def decode_share_member(name: str, member_id: str, data: bytes) -> ShareMember:
    """The member of this id. `name` says which record in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a member's record of {len(data)} bytes is too short")
    if not is_share_member(data):
        (version,) = _VERSION.unpack_from(data)
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        member, end = _decode(member_id, data)
    except (MalformedRequestError, *UNDERRUN_ERRORS, ValueError) as problem:
        raise CorruptDataError(name, f"a member's record: {problem}") from problem
    if end != len(data):
        raise CorruptDataError(name, f"{len(data) - end} bytes after the end of the member's record")
    return member


def _decode(member_id: str, data: bytes) -> tuple[ShareMember, int]:
    member_epoch, previous_member_epoch = _EPOCHS.unpack_from(data, _VERSION.size)
    rack_id, position = read_nullable_string(data, _VERSION.size + _EPOCHS.size)
    client_id, position = read_string(data, position, "a client id")
    client_host, position = read_string(data, position, "a client's host")
    names, position = decode_names(data, position)
    assigned, position = decode_assignment(data, position)
    member = ShareMember(
        member_id=member_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        subscribed_topic_names=names,
        member_epoch=member_epoch,
        previous_member_epoch=previous_member_epoch,
        assigned=assigned,
    )
    return member, position
