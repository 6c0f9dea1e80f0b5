"""ShareFetch and ShareAcknowledge, version 2, for a raw driver: packed by hand, and read without their records."""

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bench.wire import WireError
from kafscale.protocol.wire import compact_string, read_uvarint, uvarint

ACCEPT, RELEASE = 1, 2

_SHARE_FETCH, _SHARE_ACKNOWLEDGE, _VERSION = 78, 79, 2
_CLIENT_ID = b"kafscale-bench"
_NO_TAGS, _NOTHING = b"\x00", b"\x01"
_UUID_BYTES = 16
_INT32 = struct.Struct(">i")
_HEADER = struct.Struct(f">hhih{len(_CLIENT_ID)}sb")
# Longest wait, least and most bytes, most records, records of a range, acquire mode, renewal.
_LIMITS = struct.Struct(">iiiiibb")
_OFFSETS = struct.Struct(">qq")
# Length, correlation id, no tagged fields; throttle time, error code.
_REPLY = struct.Struct(">iibih")
_INDEX_AND_ERROR, _ERROR = struct.Struct(">ih"), struct.Struct(">h")
_LEADER = struct.Struct(">iib")
_ACQUIRED = struct.Struct(">qqhb")


class AcquiredRange(NamedTuple):
    """Offsets, both inclusive, that the member has now."""

    partition: int
    first: int
    last: int
    delivery_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The limits of each ShareFetch."""

    max_wait_ms: int
    max_bytes: int
    max_records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSession:
    """One member's requests, all of one topic."""

    group: str
    member: str
    topic_id: uuid.UUID
    limits: ShareLimits

    def fetch(self, epoch: int, partitions: Sequence[int] = ()) -> bytes:
        """A ShareFetch. `partitions`: to add to the session; none are known before its first epoch, 0."""
        limits = self.limits
        rows = [_INT32.pack(index) + _NOTHING + _NO_TAGS for index in partitions]
        return _frame(
            _SHARE_FETCH,
            self._names(epoch),
            _LIMITS.pack(
                limits.max_wait_ms, 1, limits.max_bytes, limits.max_records, limits.max_records, 0, 0
            ),
            self._topic(rows),
            _NOTHING,  # forgotten topics
            _NO_TAGS,
        )

    def acknowledge(self, epoch: int, said: Mapping[int, Sequence[bytes]]) -> bytes:
        """A ShareAcknowledge. `said`: batches by partition, see `batch`."""
        rows = [
            b"".join((_INT32.pack(index), uvarint(len(batches) + 1), *batches, _NO_TAGS))
            for index, batches in said.items()
        ]
        return _frame(_SHARE_ACKNOWLEDGE, self._names(epoch), b"\x00", self._topic(rows), _NO_TAGS)

    def _names(self, epoch: int) -> bytes:
        return compact_string(self.group) + compact_string(self.member) + _INT32.pack(epoch)

    def _topic(self, rows: Sequence[bytes]) -> bytes:
        if not rows:
            return _NOTHING
        return b"".join((uvarint(2), self.topic_id.bytes, uvarint(len(rows) + 1), *rows, _NO_TAGS))


def batch(first: int, last: int, types: bytes) -> bytes:
    """An acknowledgement batch of ShareAcknowledge. `types`: one byte for all offsets, or one for each."""
    return _OFFSETS.pack(first, last) + uvarint(len(types) + 1) + types + _NO_TAGS


def acquired_ranges(reply: bytes) -> list[AcquiredRange]:
    """The ranges that a ShareFetch reply's frame gives the member. Raises WireError when it carries an error."""
    at = _checked(reply, "ShareFetch")
    ranges: list[AcquiredRange] = []
    topics, at = read_uvarint(reply, at)
    for _ in range(topics - 1):
        partitions, at = read_uvarint(reply, at + _UUID_BYTES)
        for _ in range(partitions - 1):
            index, error = _INDEX_AND_ERROR.unpack_from(reply, at)
            at = _after_text(reply, at + _INDEX_AND_ERROR.size)
            (acknowledge_error,) = _ERROR.unpack_from(reply, at)
            _raise_for(error or acknowledge_error, f"ShareFetch of partition {index}")
            at = _after_text(reply, at + _ERROR.size) + _LEADER.size
            at = _after_text(reply, at)  # records have a length as a text has
            count, at = read_uvarint(reply, at)
            for _ in range(count - 1):
                first, last, delivery_count, _tags = _ACQUIRED.unpack_from(reply, at)
                ranges.append(AcquiredRange(index, first, last, delivery_count))
                at += _ACQUIRED.size
            at += len(_NO_TAGS)
        at += len(_NO_TAGS)
    return ranges


def check_acknowledged(reply: bytes) -> None:
    """Raises WireError when this ShareAcknowledge reply's frame carries an error, of any partition."""
    topics, at = read_uvarint(reply, _checked(reply, "ShareAcknowledge"))
    for _ in range(topics - 1):
        partitions, at = read_uvarint(reply, at + _UUID_BYTES)
        for _ in range(partitions - 1):
            index, error = _INDEX_AND_ERROR.unpack_from(reply, at)
            _raise_for(error, f"ShareAcknowledge of partition {index}")
            at = _after_text(reply, at + _INDEX_AND_ERROR.size) + _LEADER.size + len(_NO_TAGS)
        at += len(_NO_TAGS)


def _checked(reply: bytes, what: str) -> int:
    """The position after what both replies begin with."""
    *_others, error = _REPLY.unpack_from(reply)
    _raise_for(error, what)
    return _after_text(reply, _REPLY.size) + _INT32.size


def _after_text(reply: bytes, at: int) -> int:
    length, at = read_uvarint(reply, at)
    return at + max(length - 1, 0)


def _frame(api_key: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    header = _HEADER.pack(api_key, _VERSION, 1, len(_CLIENT_ID), _CLIENT_ID, 0)
    return _INT32.pack(len(header) + len(body)) + header + body


def _raise_for(code: int, what: str) -> None:
    if code:
        raise WireError(f"{what}: the broker answered error code {code}")
