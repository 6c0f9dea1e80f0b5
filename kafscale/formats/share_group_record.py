"""The record of a share group (KIP-932), under the key of a group's record.

Stored format: docs/format/share-group-records.md. All integers are big-endian.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError, UnknownFormatVersionError

VERSION: Final = 3
"""Records of versions 1 and 2 are those of classic groups and of consumer groups."""

_RECORD = Struct(">Hiq")
_VERSION = Struct(">H")


@dataclass(frozen=True, slots=True)
class ShareGroupRecord:
    """`group_epoch`: at least that of every member. `state_since_ms`: Unix milliseconds, since it was last empty."""

    group_epoch: int
    state_since_ms: int


def encode_share_group(record: ShareGroupRecord) -> bytes:
    """The stored bytes."""
    return _RECORD.pack(VERSION, record.group_epoch, record.state_since_ms)


def is_share_group(data: bytes) -> bool:
    """True if this group's record is that of a share group, by its version."""
    return len(data) >= _VERSION.size and _VERSION.unpack_from(data) == (VERSION,)


def decode_share_group(name: str, data: bytes) -> ShareGroupRecord:
    """The record. `name` says which in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a share group's record of {len(data)} bytes is too short")
    if not is_share_group(data):
        (version,) = _VERSION.unpack_from(data)
        raise UnknownFormatVersionError(name, version, str(VERSION))
    if len(data) != _RECORD.size:
        raise CorruptDataError(name, f"a share group's record has {_RECORD.size} bytes, not {len(data)}")
    _, group_epoch, state_since_ms = _RECORD.unpack(data)
    if group_epoch < 0:
        raise CorruptDataError(name, f"group epoch {group_epoch} is below 0")
    return ShareGroupRecord(group_epoch, state_since_ms)
