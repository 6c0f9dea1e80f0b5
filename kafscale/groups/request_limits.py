"""Limits of group requests: texts that every version of every group API can carry, and few protocols."""

from collections.abc import Collection
from typing import Final

from kafscale.groups.events import Protocol
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.wire import MAX_STRING_BYTES

MAX_TEXT_BYTES: Final = MAX_STRING_BYTES
"""The longest string of the protocol and of the group record."""

MAX_PROTOCOLS: Final = 100
"""Protocols of one member. Each costs memory and is compared with those of all members; clients have a few."""

# A member id is the client's or the instance's id, a dash, and a UUID.
_MEMBER_ID_SUFFIX_BYTES: Final = 37


def check_texts(*texts: str | None) -> None:
    """Raises `KafkaError` INVALID_REQUEST for an instance id, a client id or a protocol that is too long."""
    for text in texts:
        if text is not None and len(text.encode()) > MAX_TEXT_BYTES - _MEMBER_ID_SUFFIX_BYTES:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{text[:20]!r}... has more than {MAX_TEXT_BYTES - _MEMBER_ID_SUFFIX_BYTES} bytes",
            )


def check_protocols(protocols: Collection[Protocol]) -> None:
    """Raises `KafkaError` INVALID_REQUEST for more than `MAX_PROTOCOLS`."""
    if len(protocols) > MAX_PROTOCOLS:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"a member has {len(protocols)} protocols, at most {MAX_PROTOCOLS} are allowed",
        )


def check_group_id(group_id: str) -> None:
    """Raises `KafkaError` INVALID_GROUP_ID for an id that some versions could not carry."""
    if len(group_id.encode()) > MAX_TEXT_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"a group id has more than {MAX_TEXT_BYTES} bytes")


def check_named(group_id: str) -> None:
    """Raises `KafkaError` INVALID_GROUP_ID for the empty id: such a group can have offsets, but no members."""
    if group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
