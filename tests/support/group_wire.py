"""Groups over a raw connection: members that send exactly what a test requires, in any version."""

import contextlib
import itertools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafka.protocol.consumer import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

from tests.support.group_apis import TopicPartition, commit, describe, find_coordinator
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until
from tests.support.wire import Wire

NONE = 0
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82

JOIN_VERSION = 7
SYNC_VERSION = 5
HEARTBEAT_VERSION = 4
LEAVE_VERSION = 4

# Kafka asks new members for their id from this version of JoinGroup on (KIP-394).
MEMBER_ID_REQUIRED_SINCE = 4

T = TypeVar("T")

_instances = itertools.count()


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """A consumer's metadata in JoinGroup: version 0, topics, user data."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", len(user_data)) + user_data


def unique_instance() -> str:
    """A group instance id that no other test uses."""
    return f"instance-{next(_instances)}"


class StrictWire(Wire):
    """A connection that accepts only replies that are, byte for byte, those of their version."""

    def receive(self, response: Any, version: int) -> tuple[int, Any]:
        """As `Wire.receive`; raises AssertionError if the reply has bytes without meaning."""
        frame = self.receive_frame()
        decoded = response.decode(frame, version=version, header=True)
        assert decoded.encode(header=True, framed=False) == frame, f"{response.name} v{version}: {frame!r}"
        return decoded.header.correlation_id, decoded


@contextlib.contextmanager
def connect_strictly(broker: Any) -> Iterator[StrictWire]:
    """A `StrictWire` for the time of the block."""
    wire = StrictWire(broker.host, broker.port)
    try:
        yield wire
    finally:
        wire.close()


@dataclass(slots=True, kw_only=True)
class Member:
    """One member on a connection of its own. It uses the id and generation of the last reply.

    `protocols` is name -> metadata, the preferred first. Timeouts in milliseconds.
    """

    wire: Wire
    group: str
    instance: str | None = None
    session_timeout_ms: int = 60_000
    rebalance_timeout_ms: int = 60_000
    protocol_type: str = "consumer"
    protocols: Mapping[str, bytes] = field(default_factory=lambda: {"range": subscription("topic")})
    id: str = ""
    generation: int = -1
    leader: str | None = None
    protocol_name: str | None = None  # of the generation

    @property
    def leads(self) -> bool:
        return self.leader == self.id

    def send_join(self, version: int = JOIN_VERSION) -> None:
        """Send JoinGroup with the current values, and do not wait."""
        row = JoinGroupRequest.JoinGroupRequestProtocol
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            member_id=self.id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[row(name=name, metadata=metadata) for name, metadata in self.protocols.items()],
        )
        self.wire.send(request, version)

    def receive_join(self, version: int = JOIN_VERSION) -> Any:
        """The reply to JoinGroup. One without error sets id, generation and leader."""
        _, reply = self.wire.receive(JoinGroupResponse, version)
        if reply.error_code == NONE:
            self.id, self.generation, self.leader = reply.member_id, reply.generation_id, reply.leader
            self.protocol_name = reply.protocol_name
        return reply

    def join(self, version: int = JOIN_VERSION) -> Any:
        """One JoinGroup and its reply, with any error."""
        self.send_join(version)
        return self.receive_join(version)

    def register(self) -> None:
        """Get an id, and be a pending member from then on."""
        reply = self.join()
        assert reply.error_code == MEMBER_ID_REQUIRED, f"joining {self.group}: error {reply.error_code}"
        self.id = reply.member_id

    def start_join(self) -> None:
        """Send the JoinGroup that the coordinator keeps until all have joined."""
        if not self.id and self.instance is None:
            self.register()
        self.send_join()

    def joined(self) -> Any:
        """The reply to the JoinGroup that was started, which must be without error."""
        reply = self.receive_join()
        assert reply.error_code == NONE, f"joining {self.group} as {self.id!r}: error {reply.error_code}"
        return reply

    def enter(self) -> Any:
        """Join, alone or as the last missing member."""
        self.start_join()
        return self.joined()

    def send_sync(
        self,
        assignments: Mapping[str, bytes] | None = None,
        version: int = SYNC_VERSION,
        **changes: Any,
    ) -> None:
        """Send SyncGroup and do not wait. `assignments`: member id -> bytes; `changes`: other fields."""
        row = SyncGroupRequest.SyncGroupRequestAssignment
        fields = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.id,
            "group_instance_id": self.instance,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocol_name,
            "assignments": [row(member_id=key, assignment=one) for key, one in (assignments or {}).items()],
        }
        self.wire.send(SyncGroupRequest(**fields | changes), version)

    def receive_sync(self, version: int = SYNC_VERSION) -> Any:
        """The reply to SyncGroup."""
        return self.wire.receive(SyncGroupResponse, version)[1]

    def sync(
        self, assignments: Mapping[str, bytes] | None = None, version: int = SYNC_VERSION, **changes: Any
    ) -> Any:
        """One SyncGroup and its reply, with any error."""
        self.send_sync(assignments, version, **changes)
        return self.receive_sync(version)

    def heartbeat(self, version: int = HEARTBEAT_VERSION, *, generation: int | None = None) -> int:
        """The error code of one Heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation if generation is None else generation,
            member_id=self.id,
            group_instance_id=self.instance,
        )
        return int(self.wire.call(request, HeartbeatResponse, version).error_code)

    def leave(self, version: int = LEAVE_VERSION) -> int:
        """The error code of one LeaveGroup."""
        reply = leave(self.wire, self.group, [(self.id, self.instance)], version)
        return int(reply.error_code or (reply.members[0].error_code if version >= 3 else NONE))

    def commit(self, offsets: Mapping[TopicPartition, int], **options: Any) -> dict[TopicPartition, int]:
        """Commit as this member of this generation; returns the error code of each partition."""
        options.setdefault("generation", self.generation)
        return commit(
            self.wire, self.group, offsets, member_id=self.id, instance=self.instance, **options
        )  # fmt: skip

    def has_reply(self) -> bool:
        """True if a reply waits to be read."""
        return self.wire.has_reply()


def leave(
    wire: Wire, group: str, leavers: Iterable[tuple[str, str | None]], version: int = LEAVE_VERSION
) -> Any:
    """LeaveGroup for member ids and instance ids; one alone before v3. Returns the whole reply."""
    leavers = list(leavers)
    row = LeaveGroupRequest.MemberIdentity
    request = LeaveGroupRequest(
        group_id=group,
        member_id=leavers[0][0] if leavers else "",
        members=[row(member_id=member, group_instance_id=instance) for member, instance in leavers],
    )
    return wire.call(request, LeaveGroupResponse, version)


@dataclass(slots=True)
class RawGroup:
    """A group of its own for a test, and a connection (`wire`) that belongs to none of its members."""

    broker: Any
    wire: Wire
    name: str
    _connections: contextlib.ExitStack

    def connection(self) -> Wire:
        """One more connection, closed when the test ends."""
        return self._connections.enter_context(connect_strictly(self.broker))

    def member(self, *, group: str | None = None, **options: Any) -> Member:
        """One more member that has not joined yet."""
        return Member(wire=self.connection(), group=group or self.name, **options)

    def describe(self) -> Any:
        return describe(self.wire, [self.name])[0]

    def new_topic(self) -> str:
        """The name of a new topic of one partition, for commits."""
        name = unique_name()
        create_topic(self.broker, name)
        return name

    def until(self, condition: Callable[[], T], what: str, *, after_ms: int = 0) -> T:
        """`wait_until`. `after_ms`: how long it takes; on the machine exactly so long (machine_group.py)."""
        return wait_until(condition, what)

    def elapse(self, duration_ms: int) -> None:
        """Wait until that time has passed at the coordinator: a session that begins now has ended."""
        with raw_group(self.broker) as clock:
            clock.stable(1, session_timeout_ms=duration_ms)
            clock.await_state("Empty")

    def await_state(self, state: str) -> Any:
        """Wait until the group is in that state; returns its description."""
        return self.until(
            lambda: described if (described := self.describe()).group_state == state else None,
            f"{self.name} is {state}",
        )

    def await_members(self, count: int) -> None:
        """Wait until the coordinator knows that many members."""
        self.until(lambda: len(self.describe().members) == count, f"{self.name} has {count} members")

    def joined(self, count: int, **options: Any) -> list[Member]:
        """That many new members, the leader first, in CompletingRebalance: all joined, none has synced."""
        members = [self.member(**options) for _ in range(count)]
        self.join_together(members)
        assert members[0].leads
        return members

    def stable(self, count: int, **options: Any) -> list[Member]:
        """That many new members, the leader first, in Stable. Each is assigned its own id, as bytes."""
        members = self.joined(count, **options)
        self.sync_together(members)
        return members

    def join_together(self, members: list[Member]) -> dict[str, Any]:
        """New members, all in one generation, led by the first. Returns member id -> its reply."""
        first, others = members[0], members[1:]
        reply = first.enter()
        if others:
            first.sync({first.id: first.id.encode()})
            for other in others:
                other.start_join()
            self.await_members(len(members))
            first.send_join()
            return self.all_joined(members)
        return {first.id: reply}

    def all_joined(self, members: Iterable[Member]) -> dict[str, Any]:
        """Those members' replies, by member id, once the generation begins: the same for all."""
        replies = {member.id: reply for member in members for reply in [member.joined()]}
        assert len({(reply.generation_id, reply.leader) for reply in replies.values()}) == 1
        return replies

    def sync_together(self, members: list[Member]) -> None:
        """The leader assigns each its own id, and each receives it."""
        for member in members:
            member.send_sync({one.id: one.id.encode() for one in members} if member.leads else None)
        for member in members:
            reply = member.receive_sync()
            received = (reply.error_code, bytes(reply.assignment))
            assert received == (NONE, member.id.encode()), f"{member.id} got {received}"


@contextlib.contextmanager
def raw_group(broker: Any) -> Iterator[RawGroup]:
    """A new group, once its coordinator is ready."""
    name = unique_name("group")
    with contextlib.ExitStack() as connections:
        wire = connections.enter_context(connect_strictly(broker))
        await_coordinator(wire, name)
        yield RawGroup(broker, wire, name, connections)


def await_coordinator(wire: Wire, group: str) -> None:
    """Kafka creates its offsets topic for the first request, and loads it then."""
    wait_until(
        lambda: find_coordinator(wire, [group])[group].error_code == NONE, "the group has a coordinator"
    )
    wait_until(lambda: describe(wire, [group])[0].error_code == NONE, "the coordinator serves the group")
