"""A consumer group's data and queries on it (KIP-848); machine.py has the events that change it."""

import uuid
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember, MemberState
from kafscale.formats.stored_assignment import Assignment
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived
from kafscale.groups.events import Join
from kafscale.groups.group import Group, GroupPolicy, long_text_bytes
from kafscale.groups.modern.assignment import TopicIdPartition, partitions_of, union
from kafscale.groups.modern.awaited_targets import AwaitedTargets
from kafscale.groups.modern.events import Topics
from kafscale.groups.modern.modern_group import (
    MEMBER_MEMORY_BYTES,
    PARTITION_MEMORY_BYTES,
    TOPIC_MEMORY_BYTES,
    Changes,
    ModernGroup,
)
from kafscale.groups.states import GroupState
from kafscale.settings.groups import MigrationPolicy

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

Counted = TypeVar("Counted", str, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPolicy:
    """The broker's settings for consumer groups. `assignors`: names; the first is the default.

    `migration`: which groups with members may change their type; `classic`: the settings of what they become.
    """

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int
    assignors: tuple[str, ...]
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    classic: GroupPolicy = GroupPolicy(initial_rebalance_delay_ms=3000, max_size=2**31 - 1)  # noqa: RUF009


@dataclass(frozen=True, slots=True)
class AwaitedTarget:
    """A heartbeat, or a JoinGroup, that waits for the target assignment of `epoch`.

    `told`: the assignment that the member knows.
    """

    epoch: int
    event: ConsumerHeartbeatReceived | Join
    member_id: str
    told: Assignment


class ConsumerGroup(ModernGroup[ConsumerMember, ConsumerGroupRecord]):
    """One group of the consumer protocol. Only the actions behind machine.py change it; all other code reads it.

    `resolved`: the topics of each regular expression. `topic_names`: by id, those
    of `topics` and of all partitions that members have. `successor`: the classic group that it is about to become.
    """

    def __init__(self, group_id: str, policy: ConsumerPolicy, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self.policy = policy
        self.topic_names: dict[uuid.UUID, str] = {}
        self.resolved: dict[str, frozenset[str]] = {}
        self.static_members: dict[str, str] = {}
        self.rebalance_deadlines: dict[str, int] = {}
        self.awaited_targets: AwaitedTargets[AwaitedTarget] = AwaitedTargets()
        self.rebalance_since_ms: int | None = None
        self.successor: Group | None = None
        self._owners: Counter[TopicIdPartition] = Counter()
        self._names: Counter[str] = Counter()
        self._regexes: Counter[str] = Counter()
        self.topics_version = 0
        self._fresh: set[str] = set()
        self._assignors: Counter[str] = Counter()
        self._stable_at: Counter[int] = Counter()
        self._classic_protocols: Counter[str] = Counter()
        self._classic_members = 0

    @classmethod
    def of(
        cls,
        group_id: str,
        policy: ConsumerPolicy,
        record: ConsumerGroupRecord,
        members: Iterable[ConsumerMember],
        now_ms: int,
    ) -> "ConsumerGroup":
        """The group as the previous coordinator stored it. Its members' sessions start now.

        Its record is to be stored again where only a member's has the epoch: a static member that leaves loses it.
        """
        group = cls(group_id, policy, now_ms)
        group.state_since_ms = record.state_since_ms
        for member in members:
            group.put(member)
            group.set_session(member.member_id, now_ms + group.session_timeout_ms(member))
        group.group_epoch = max(
            [record.group_epoch, *(member.member_epoch for member in group.members.values())]
        )
        group.assignment_epoch = group.group_epoch
        group.target = {member.member_id: member.assigned for member in group.members.values()}
        group.changes = Changes(group=group.group_epoch > record.group_epoch)
        return group

    # Queries

    GROUP_TYPE: Final = "consumer"
    """As ListGroups names it."""

    @property
    def state(self) -> GroupState:
        """As Kafka derives it."""
        if self.is_dead:
            return GroupState.DEAD
        if not self.members:
            return GroupState.EMPTY
        if self.group_epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        # Counted, because it is asked for at each heartbeat.
        is_stable = self._stable_at[self.assignment_epoch] == len(self.members)
        return GroupState.STABLE if is_stable else GroupState.RECONCILING

    @property
    def protocol_type(self) -> str:
        """As Kafka's tools print it."""
        return CONSUMER_PROTOCOL_TYPE

    def memory_bytes_of(self, member_id: str) -> int:
        """The part of the member, of this id, in `memory_bytes`; less than nothing for one that is to be added."""
        member = self.members.get(member_id)
        return -MEMBER_MEMORY_BYTES if member is None else _memory_bytes(member)

    def record(self) -> ConsumerGroupRecord:
        """The record to store."""
        return ConsumerGroupRecord(self.group_epoch, self.state_since_ms)

    def subscribed_topics(self) -> frozenset[str]:
        """The topics of all members, by name or by a regular expression."""
        by_regex = (self.resolved.get(regex, frozenset()) for regex in self._regexes)
        return frozenset(self._names).union(*by_regex)

    def topics_of(self, member: ConsumerMember) -> frozenset[str]:
        """The topics of one member."""
        regex = member.subscribed_topic_regex
        if regex is None:
            return member.subscribed_topic_names
        return member.subscribed_topic_names | self.resolved.get(regex, frozenset())

    def unresolved(self) -> list[str]:
        """The regular expressions whose topics are not known: those of a group that was loaded."""
        return [regex for regex in self._regexes if regex not in self.resolved]

    def stale_regexes(self) -> list[str]:
        """Those whose topics are not known, or may be others by now; a heartbeat has them found again."""
        stale = [regex for regex in self._regexes if regex not in self._fresh]
        self._fresh.update(stale)
        return stale

    def regexes_are_stale(self) -> None:
        """Topics were created or deleted."""
        self.topics_version += 1
        self.resolve_again()

    def resolve_again(self) -> None:
        """No regular expression is known to be resolved by the topics of now."""
        self._fresh.clear()

    def uses_regex(self, regex: str) -> bool:
        """True if a member subscribes to it."""
        return regex in self._regexes

    def is_owned(self, partition: TopicIdPartition) -> bool:
        """True if a member has the partition, or has not given it up yet."""
        return partition in self._owners

    @property
    def has_only_classic_members(self) -> bool:
        """True if no member uses the consumer protocol."""
        return self._classic_members == len(self.members)

    def supports_classic(self, protocol_type: str, protocols: Iterable[str]) -> bool:
        """True if a classic member with one of these protocols could share a generation with the present ones."""
        return protocol_type == CONSUMER_PROTOCOL_TYPE and any(
            self._classic_protocols[name] == self._classic_members for name in protocols
        )

    def is_waiting(self, member_id: str) -> bool:
        """True if a request of the member waits for a target assignment."""
        return member_id in self.awaited_targets

    @property
    def assignor(self) -> str:
        """The assignor that most members prefer, as in Kafka."""
        known = [(count, name) for name, count in self._assignors.items() if name in self.policy.assignors]
        return max(known, key=lambda one: one[0])[1] if known else self.policy.assignors[0]

    def session_timeout_ms(self, member: ConsumerMember) -> int:
        """How long the member may be silent."""
        return self.policy.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms

    # Changes, for the actions

    def set_topics(self, topics: Topics) -> None:
        """These are the topics of the target assignment."""
        had = {topic_id for topic_id, _ in self._owners}
        self.topic_names = {topic_id: name for topic_id, name in self.topic_names.items() if topic_id in had}
        self.topic_names.update((topic.topic_id, name) for name, topic in topics.items())
        self.topics = topics

    def set_resolved(self, regex: str, topic_names: frozenset[str]) -> None:
        """These are the topics of the regular expression, by a look at all topics that began a while ago."""
        self.resolved[regex] = topic_names

    def put(self, member: ConsumerMember) -> None:
        """Add the member, or replace it."""
        before = self.members.get(member.member_id)
        if before is member or before == member:
            return
        # In this order: what both subscribe to is not forgotten in between.
        self._count(member, 1)
        if before is not None:
            self._count(before, -1)
            self._forget_instance(before)
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.changes.members.add(member.member_id)
        self.changes.removed.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove the member with all that is known of it."""
        member = self.members.pop(member_id)
        self._count(member, -1)
        self._forget_instance(member)
        self.sessions.pop(member_id, None)
        self.rebalance_deadlines.pop(member_id, None)
        self.target = {one: target for one, target in self.target.items() if one != member_id}
        self.changes.members.discard(member_id)
        self.changes.removed.add(member_id)

    def _forget_instance(self, member: ConsumerMember) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _count(self, member: ConsumerMember, change: int) -> None:
        for partition in partitions_of(union(member.assigned, member.pending_revocation)):
            self._owners[partition] += change
            if not self._owners[partition]:
                del self._owners[partition]
        if member.state is MemberState.STABLE:
            _add(self._stable_at, [member.member_epoch], change)
        _add(self._names, member.subscribed_topic_names, change)
        if member.subscribed_topic_regex is not None:
            _add(self._regexes, [member.subscribed_topic_regex], change)
            if member.subscribed_topic_regex not in self._regexes:
                self.resolved.pop(member.subscribed_topic_regex, None)
                self._fresh.discard(member.subscribed_topic_regex)
        if member.server_assignor is not None:
            _add(self._assignors, [member.server_assignor], change)
        if member.classic is not None:
            self._classic_members += change
            _add(self._classic_protocols, {name for name, _ in member.classic.protocols}, change)
        self._members_memory_bytes += change * _memory_bytes(member)

    def set_rebalance_deadline(self, member_id: str, at_ms: int | None) -> None:
        """The member is removed at that time, unless it has given up by then what it was asked to."""
        if at_ms is None:
            self.rebalance_deadlines.pop(member_id, None)
        else:
            self.rebalance_deadlines[member_id] = at_ms
            self._note_deadline(at_ms)

    def find_deadline(self) -> None:
        """Find the earliest deadline of now: those that were noted may have been postponed."""
        deadlines = [*self.sessions.values(), *self.rebalance_deadlines.values()]
        self._earliest_deadline_ms = min(deadlines, default=None)


def _add(counts: Counter[Counted], names: Iterable[Counted], change: int) -> None:
    for name in names:
        counts[name] += change
        if not counts[name]:
            del counts[name]


def _memory_bytes(member: ConsumerMember) -> int:
    texts = (member.member_id, member.instance_id, member.client_id, member.subscribed_topic_regex)
    names = sum(TOPIC_MEMORY_BYTES + len(name) for name in member.subscribed_topic_names)
    partitions = sum(len(one) for one in (*member.assigned.values(), *member.pending_revocation.values()))
    protocols = 0 if member.classic is None else sum(len(data) + 256 for _, data in member.classic.protocols)
    return (
        MEMBER_MEMORY_BYTES
        + long_text_bytes(*texts)
        + names
        + partitions * PARTITION_MEMORY_BYTES
        + protocols
    )
