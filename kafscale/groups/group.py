"""A consumer group's data and queries on it; machine.py has the events that change it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.formats.group_record import GroupRecord, MemberRecord
from kafscale.groups.effects import JoinedMember, Left
from kafscale.groups.events import Protocol
from kafscale.groups.states import GroupState

GROUP_MEMORY_BYTES = 1024
"""The memory of a group beside its members' subscriptions and assignments, roughly."""

_MEMBER_MEMORY_BYTES = 1024
_PENDING_MEMORY_BYTES = 256
_PROTOCOL_MEMORY_BYTES = 256
# The figures above include this much of each id or other text; a client may send 32 KiB in each.
_TEXT_BYTES_INCLUDED = 128


def long_text_bytes(*texts: str | None) -> int:
    """The memory of clients' texts beyond what is counted for every group and member, roughly."""
    return sum(max(0, len(text) - _TEXT_BYTES_INCLUDED) for text in texts if text is not None)


def protocols_bytes(protocols: Iterable[Protocol]) -> int:
    """The memory of a member's protocols, roughly."""
    return sum(_PROTOCOL_MEMORY_BYTES + len(one.name) + len(one.metadata) for one in protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPolicy:
    """The broker's settings for groups."""

    initial_rebalance_delay_ms: int
    max_size: int


@dataclass(slots=True, kw_only=True)
class Member:
    """A member. `awaiting_join` and `awaiting_sync`: the request that waits for an answer, if any.

    `is_new`: it has not completed a join yet. `expires_at_ms`: when its session ends unless it is extended.
    `counted_bytes`: its part of the group's `memory_bytes`.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    awaiting_join: int | None = None
    awaiting_sync: int | None = None
    expires_at_ms: int = 0
    counted_bytes: int = 0

    def metadata(self, protocol_name: str | None) -> bytes:
        """Its metadata for this protocol; empty if it does not support it."""
        return next((one.metadata for one in self.protocols if one.name == protocol_name), b"")

    @property
    def can_expire(self) -> bool:
        """False while a request of the member waits here: it is alive. A new member may leave without notice."""
        return self.is_new or (self.awaiting_join is None and self.awaiting_sync is None)

    @property
    def memory_bytes(self) -> int:
        """The member's memory, roughly."""
        protocols = protocols_bytes(self.protocols)
        # A static member's instance id is also a key of its group; a dynamic member's client id is in its member id.
        texts = long_text_bytes(self.member_id, self.client_id, self.group_instance_id)
        return _MEMBER_MEMORY_BYTES + texts + protocols + len(self.assignment)


@dataclass(frozen=True, slots=True)
class Replacement:
    """A static member's new id while it is being stored. `former_leader`: the leader before it had that id."""

    member_id: str
    former_leader: str | None
    can_skip_assignment: bool


class Group:
    """One group. Only the actions behind machine.py change it; all other code reads it.

    `initial_remaining_ms`: how much longer an empty group may wait for its first members.
    """

    def __init__(self, group_id: str, policy: GroupPolicy, now_ms: int) -> None:
        self.group_id = group_id
        self.policy = policy
        self.state = GroupState.EMPTY
        self.state_since_ms = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}
        self.pending_members: dict[str, int] = {}
        self.pending_syncs: set[str] = set()
        self.memory_bytes = GROUP_MEMORY_BYTES + long_text_bytes(group_id)
        self.join_deadline_ms: int | None = None
        self.sync_deadline_ms: int | None = None
        self.is_initial_rebalance = False
        self.member_added = False
        self.initial_remaining_ms = 0
        self.rebalance_since_ms: int | None = None
        self.assignments_to_store: tuple[int, Mapping[str, bytes]] | None = None
        self.replacements_to_store: dict[int, Replacement] = {}
        self.leaves_to_store: dict[int, tuple[int, Left]] = {}
        self._store_id = 0
        self._protocol_counts: Counter[str] = Counter()

    @classmethod
    def of(cls, group_id: str, policy: GroupPolicy, record: GroupRecord, now_ms: int) -> "Group":
        """The group as the previous coordinator stored it: Stable, or Empty. Its members' sessions start now.

        Members without a protocol are those of a consumer group that became this one: they are to join (KIP-848).
        """
        group = cls(group_id, policy, now_ms)
        group.generation = record.generation
        group.set_protocol_type(record.protocol_type)
        group.state_since_ms = record.state_since_ms
        for stored in record.members:
            member = Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                session_timeout_ms=stored.session_timeout_ms,
                rebalance_timeout_ms=stored.rebalance_timeout_ms,
                protocols=tuple(Protocol(name, metadata) for name, metadata in stored.protocols),
                assignment=stored.assignment,
                expires_at_ms=now_ms + stored.session_timeout_ms,
            )
            group.add(member)
        if group.members:
            group.state = GroupState.STABLE
            group.protocol_name = record.protocol_name
            group.leader = record.leader
            if record.protocol_name is None:
                group.state = GroupState.PREPARING_REBALANCE
                group.rebalance_since_ms = now_ms
                group.join_deadline_ms = now_ms + group.rebalance_timeout_ms
        return group

    # Queries

    GROUP_TYPE: Final = "classic"
    """As ListGroups names it."""

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        """The record to store. `assignments`: those of a generation that is about to be completed."""
        return GroupRecord(
            generation=self.generation,
            state_since_ms=self.state_since_ms,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            members=tuple(
                MemberRecord(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    session_timeout_ms=member.session_timeout_ms,
                    rebalance_timeout_ms=member.rebalance_timeout_ms,
                    protocols=tuple((one.name, one.metadata) for one in member.protocols),
                    assignment=member.assignment
                    if assignments is None
                    else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ),
        )

    def next_deadline_ms(self) -> int | None:
        """When `TimePassed` is due, unless another event comes first."""
        if self.state is GroupState.DEAD:
            return None
        deadlines = [member.expires_at_ms for member in self.members.values() if member.can_expire]
        deadlines += self.pending_members.values()
        deadlines += [at for at in (self.join_deadline_ms, self.sync_deadline_ms) if at is not None]
        return min(deadlines, default=None)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest of the members' timeouts, at least 1: time has to pass between two deadlines."""
        return max(1, max((member.rebalance_timeout_ms for member in self.members.values()), default=0))

    @property
    def all_joined(self) -> bool:
        """True if no member is missing from the next generation, pending members included."""
        return not self.pending_members and all(
            member.awaiting_join is not None for member in self.members.values()
        )

    @property
    def awaiting_join_count(self) -> int:
        """The number of members that have joined the next generation."""
        return sum(member.awaiting_join is not None for member in self.members.values())

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """True if a member with these protocols could share a generation with the present members."""
        if self.state is GroupState.EMPTY:
            return protocol_type != "" and any(True for _ in protocols)
        count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._protocol_counts[one.name] == count for one in protocols
        )

    def select_protocol(self) -> str:
        """The protocol that most members prefer, of those that all support; there must be a member."""
        candidates = {name for name, count in self._protocol_counts.items() if count == len(self.members)}
        votes = Counter(
            next(one.name for one in member.protocols if one.name in candidates)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    def members_for_leader(self) -> tuple[JoinedMember, ...]:
        """The members and their metadata, from which the leader computes the assignment."""
        return tuple(
            JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in self.members.values()
        )

    def waiting_replies(self) -> Iterator[int]:
        """Every request that waits for an answer."""
        for member in self.members.values():
            if member.awaiting_join is not None:
                yield member.awaiting_join
            if member.awaiting_sync is not None:
                yield member.awaiting_sync
        for reply_id, _ in self.leaves_to_store.values():
            yield reply_id

    # Changes, for the actions

    def add(self, member: Member) -> None:
        """Add the member; the first one becomes the leader."""
        if self.leader is None:
            self.leader = member.member_id
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        self.members[member.member_id] = member
        self.remove_pending(member.member_id)
        self._count(member, 1)

    def remove(self, member_id: str) -> Member:
        """Remove the member, which must be in the group; if it was the leader, another one becomes it."""
        member = self.members.pop(member_id)
        if member.group_instance_id is not None:
            del self.static_members[member.group_instance_id]
        self.pending_syncs.discard(member_id)
        self._count(member, -1)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace(self, old_member_id: str, new_member_id: str) -> Member:
        """Give a static member a new id; it keeps its place, its assignment and its leadership."""
        member = self.members.pop(old_member_id)
        member.member_id = new_member_id
        self.members[new_member_id] = member
        assert member.group_instance_id is not None
        self.static_members[member.group_instance_id] = new_member_id
        self.pending_syncs.discard(old_member_id)
        if self.leader == old_member_id:
            self.leader = new_member_id
        return member

    def set_protocol_type(self, protocol_type: str | None) -> None:
        """Replace the protocol type; it stays when the last member has left."""
        self.memory_bytes += long_text_bytes(protocol_type) - long_text_bytes(self.protocol_type)
        self.protocol_type = protocol_type

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        """Replace the member's protocols and their metadata."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def set_assignment(self, member: Member, assignment: bytes) -> None:
        """Replace the member's assignment."""
        growth = len(assignment) - len(member.assignment)
        member.assignment = assignment
        member.counted_bytes += growth
        self.memory_bytes += growth

    def add_pending(self, member_id: str, expires_at_ms: int) -> None:
        """Expect a join from a member that has just received its id."""
        self.pending_members[member_id] = expires_at_ms
        self.memory_bytes += _PENDING_MEMORY_BYTES + long_text_bytes(member_id)

    def remove_pending(self, member_id: str) -> None:
        """Remove the pending member, if there is one of this id."""
        if self.pending_members.pop(member_id, None) is not None:
            self.memory_bytes -= _PENDING_MEMORY_BYTES + long_text_bytes(member_id)

    def remove_all_pending(self) -> None:
        """Remove all pending members."""
        for member_id in list(self.pending_members):
            self.remove_pending(member_id)

    def next_store_id(self) -> int:
        """The id of the next `Store`."""
        self._store_id += 1
        return self._store_id

    def _count(self, member: Member, sign: int) -> None:
        self.memory_bytes -= member.counted_bytes
        member.counted_bytes = member.memory_bytes if sign > 0 else 0
        self.memory_bytes += member.counted_bytes
        for name in {one.name for one in member.protocols}:
            self._protocol_counts[name] += sign
            if not self._protocol_counts[name]:
                del self._protocol_counts[name]
