"""The record of a consumer group (KIP-848), under the key of a group's record.

Stored format: docs/format/consumer-group-records.md. All integers are big-endian.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError

VERSION: Final = 2
"""Records of version 1 are those of classic groups."""

_RECORD = Struct(">HBiq")
_VERSION = Struct(">H")
_CONSUMER: Final = 1


@dataclass(frozen=True, slots=True)
class ConsumerGroupRecord:
    """`group_epoch`: at least that of every member. `state_since_ms`: Unix milliseconds, as of a classic group."""

    group_epoch: int
    state_since_ms: int


def encode_consumer_group(record: ConsumerGroupRecord) -> bytes:
    """The stored bytes."""
    return _RECORD.pack(VERSION, _CONSUMER, record.group_epoch, record.state_since_ms)


def is_consumer_group(data: bytes) -> bool:
    """True if this group's record is that of a consumer group, by its version."""
    return len(data) >= _VERSION.size and _VERSION.unpack_from(data) == (VERSION,)


def decode_consumer_group(name: str, data: bytes) -> ConsumerGroupRecord:
    """The record of what `is_consumer_group`. Raises `CorruptDataError`."""
    if len(data) != _RECORD.size:
        raise CorruptDataError(name, f"a consumer group's record has {_RECORD.size} bytes, not {len(data)}")
    _, group_type, group_epoch, state_since_ms = _RECORD.unpack(data)
    if group_type != _CONSUMER:
        raise CorruptDataError(name, f"type {group_type} of a group, not {_CONSUMER}")
    if group_epoch < 0:
        raise CorruptDataError(name, f"group epoch {group_epoch} is below 0")
    return ConsumerGroupRecord(group_epoch, state_since_ms)
