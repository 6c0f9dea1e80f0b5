"""ConsumerGroupHeartbeat and ConsumerGroupDescribe by hand, from the schemas of Kafka 4.1 (KIP-848).

The broker's own codec has no part in it: bytes that are wrong in both directions would be seen here.
"""

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from tests.support.flexible_body import NO_TAGS, NULL, array, int32, int32s, text
from tests.support.wire import Wire

CONSUMER_GROUP_HEARTBEAT = 68
CONSUMER_GROUP_DESCRIBE = 69
NEWEST = 1
"""The version of both."""

Partitions = Mapping[uuid.UUID, frozenset[int]]

T = TypeVar("T")

_CORRELATION_ID = 848


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The fields of the request. None is null: the same as before. `owned`: topic id -> partitions."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    names: Iterable[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Mapping[uuid.UUID, Iterable[int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """`assignment`: None if the reply says nothing about it."""

    error_code: int
    error_message: str | None
    member_id: str | None
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedMember:
    """One row of ConsumerGroupDescribe. `assignment`, `target`: (topic name, partition). `member_type`: -1 in v0."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    names: tuple[str, ...]
    regex: str | None
    assignment: frozenset[tuple[str, int]]
    target: frozenset[tuple[str, int]]
    member_type: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedGroup:
    """One group of ConsumerGroupDescribe. `members` by member id."""

    error_code: int
    error_message: str | None
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: Mapping[str, DescribedMember]
    authorized_operations: int


def heartbeat(wire: Wire, request: Heartbeat, version: int = NEWEST) -> HeartbeatReply:
    """Send one ConsumerGroupHeartbeat and wait for its reply."""
    send_heartbeat(wire, request, version)
    return receive_heartbeat(wire)


def send_heartbeat(wire: Wire, request: Heartbeat, version: int = NEWEST) -> None:
    """Send one ConsumerGroupHeartbeat and do not wait."""
    names = request.names
    owned = request.owned
    body = (
        text(request.group_id)
        + text(request.member_id)
        + int32(request.member_epoch)
        + _nullable(request.instance_id)
        + _nullable(request.rack_id)
        + int32(request.rebalance_timeout_ms)
        + (NULL if names is None else array(map(text, names)))
        + (b"" if version < 1 else _nullable(request.regex))
        + _nullable(request.assignor)
        + (NULL if owned is None else array(_partitions(*one) for one in owned.items()))
        + NO_TAGS
    )
    _send(wire, CONSUMER_GROUP_HEARTBEAT, version, body)


def receive_heartbeat(wire: Wire) -> HeartbeatReply:
    """The reply to a heartbeat that was sent."""
    reply = _receive(wire)
    reply.int32()  # throttle time
    decoded = HeartbeatReply(
        error_code=reply.int16(),
        error_message=reply.nullable(),
        member_id=reply.nullable(),
        member_epoch=reply.int32(),
        heartbeat_interval_ms=reply.int32(),
        assignment=_assignment(reply) if reply.int8() >= 0 else None,
    )
    reply.end()
    return decoded


def describe_consumer_groups(
    wire: Wire, groups: Iterable[str], version: int = NEWEST, *, operations: bool = False
) -> list[DescribedGroup]:
    """ConsumerGroupDescribe: the groups in the order of the reply."""
    body = array(map(text, groups)) + (b"\x01" if operations else b"\x00") + NO_TAGS
    _send(wire, CONSUMER_GROUP_DESCRIBE, version, body)
    reply = _receive(wire)
    reply.int32()  # throttle time
    found = reply.array(lambda: _described_group(reply, version))
    reply.end()
    return found


class _Reply:
    """A flexible body, field by field."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        assert len(taken) == count, f"{self._data!r} ends at {self._at}"
        self._at += count
        return taken

    def int8(self) -> int:
        return int(struct.unpack(">b", self.take(1))[0])

    def int16(self) -> int:
        return int(struct.unpack(">h", self.take(2))[0])

    def int32(self) -> int:
        return int(struct.unpack(">i", self.take(4))[0])

    def varint(self) -> int:
        value = shift = 0
        while True:
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def nullable(self) -> str | None:
        length = self.varint()
        return None if length == 0 else self.take(length - 1).decode()

    def text(self) -> str:
        found = self.nullable()
        assert found is not None, f"null at {self._at} of {self._data!r}"
        return found

    def array(self, item: Callable[[], T]) -> list[T]:
        length = self.varint()
        assert length > 0, f"null at {self._at} of {self._data!r}"
        return [item() for _ in range(length - 1)]

    def tags(self) -> None:
        assert self.take(1) == NO_TAGS, f"tagged fields at {self._at} of {self._data!r}"

    def end(self) -> None:
        self.tags()
        assert self._at == len(self._data), f"bytes without meaning after {self._at} of {self._data!r}"


def _nullable(value: str | None) -> bytes:
    return NULL if value is None else text(value)


def _partitions(topic_id: uuid.UUID, partitions: Iterable[int]) -> bytes:
    return topic_id.bytes + int32s(partitions) + NO_TAGS


def _send(wire: Wire, api_key: int, version: int, body: bytes) -> None:
    client = b"tests"
    header = struct.pack(">hhih", api_key, version, _CORRELATION_ID, len(client)) + client + NO_TAGS
    wire.send_bytes(struct.pack(">i", len(header) + len(body)) + header + body)


def _receive(wire: Wire) -> _Reply:
    reply = _Reply(wire.receive_frame())
    assert reply.int32() == _CORRELATION_ID, "the reply to another request"
    reply.tags()
    return reply


def _assignment(reply: _Reply) -> Partitions:
    def row() -> tuple[uuid.UUID, frozenset[int]]:
        found = uuid.UUID(bytes=reply.take(16)), frozenset(reply.array(reply.int32))
        reply.tags()
        return found

    rows = reply.array(row)
    reply.tags()
    assert len(dict(rows)) == len(rows), "a topic is named twice"
    return dict(rows)


def _named_assignment(reply: _Reply) -> frozenset[tuple[str, int]]:
    def row() -> list[tuple[str, int]]:
        reply.take(16)
        name = reply.text()
        found = [(name, partition) for partition in reply.array(reply.int32)]
        reply.tags()
        return found

    rows = [pair for one in reply.array(row) for pair in one]
    reply.tags()
    assert len(set(rows)) == len(rows), "a partition is named twice"
    return frozenset(rows)


def _described_group(reply: _Reply, version: int) -> DescribedGroup:
    found = DescribedGroup(
        error_code=reply.int16(),
        error_message=reply.nullable(),
        group_id=reply.text(),
        state=reply.text(),
        group_epoch=reply.int32(),
        assignment_epoch=reply.int32(),
        assignor=reply.text(),
        members={one.member_id: one for one in reply.array(lambda: _described_member(reply, version))},
        authorized_operations=reply.int32(),
    )
    reply.tags()
    return found


def _described_member(reply: _Reply, version: int) -> DescribedMember:
    found = DescribedMember(
        member_id=reply.text(),
        instance_id=reply.nullable(),
        rack_id=reply.nullable(),
        member_epoch=reply.int32(),
        client_id=reply.text(),
        client_host=reply.text(),
        names=tuple(reply.array(reply.text)),
        regex=reply.nullable(),
        assignment=_named_assignment(reply),
        target=_named_assignment(reply),
        member_type=reply.int8() if version >= 1 else -1,
    )
    reply.tags()
    return found
