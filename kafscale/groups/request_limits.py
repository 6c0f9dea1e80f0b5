"""Limits of texts in group requests: what every version of every group API can carry."""

from typing import Final

from kafscale.protocol.error_codes import ErrorCode, KafkaError

MAX_TEXT_BYTES: Final = 2**15 - 1
"""The longest string of versions that are not flexible, and of the group record."""

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


def check_group_id(group_id: str) -> None:
    """Raises `KafkaError` INVALID_GROUP_ID for an id that some versions could not carry."""
    if len(group_id.encode()) > MAX_TEXT_BYTES:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, f"a group id has more than {MAX_TEXT_BYTES} bytes")


def check_named(group_id: str) -> None:
    """Raises `KafkaError` INVALID_GROUP_ID for the empty id: such a group can have offsets, but no members."""
    if group_id == "":
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id must not be empty")
