"""A committed offset: stored bytes and value. Stored format: docs/format/committed-offset.md."""

import uuid
from dataclasses import dataclass
from struct import Struct, error

from kafscale.errors import CorruptDataError, UnknownFormatVersionError

VERSION = 1
NO_LEADER_EPOCH = -1

_FIXED = Struct(">H16sqiqqi")
_NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """The progress of a group in a partition.

    `topic_id`: of the topic that was meant; it means nothing to a later topic of the same name.
    `metadata`: the client's own text. `commit_timestamp_ms`: Unix milliseconds. `expire_timestamp_ms`: set by
    clients old enough to ask for a retention of their own (OffsetCommit 2 to 4).
    """

    topic_id: uuid.UUID
    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None


def encode_committed_offset(committed: CommittedOffset) -> bytes:
    """The stored bytes."""
    metadata = committed.metadata.encode()
    expire = committed.expire_timestamp_ms
    return (
        _FIXED.pack(
            VERSION,
            committed.topic_id.bytes,
            committed.offset,
            committed.leader_epoch,
            committed.commit_timestamp_ms,
            _NEVER if expire is None else expire,
            len(metadata),
        )
        + metadata
    )


def decode_committed_offset(name: str, data: bytes) -> CommittedOffset:
    """The offset. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < 2:
        raise CorruptDataError(name, f"a committed offset of {len(data)} bytes is too short")
    version = int.from_bytes(data[:2], "big")
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        _, topic_id, offset, leader_epoch, committed_ms, expire_ms, length = _FIXED.unpack_from(data)
        metadata = data[_FIXED.size :].decode()
    except (error, UnicodeDecodeError) as problem:
        raise CorruptDataError(name, f"committed offset: {problem}") from problem
    if len(data) - _FIXED.size != length:
        raise CorruptDataError(name, f"{len(data) - _FIXED.size} bytes of metadata, {length} announced")
    return CommittedOffset(
        topic_id=uuid.UUID(bytes=topic_id),
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp_ms=committed_ms,
        expire_timestamp_ms=None if expire_ms == _NEVER else expire_ms,
    )
