"""A share group's data and queries on it (KIP-932); machine.py has the events that change it."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafscale.formats.share_group_record import ShareGroupRecord
from kafscale.formats.share_member_record import ShareMember
from kafscale.groups.group import long_text_bytes
from kafscale.groups.modern.assignment import NO_PARTITIONS, Assignment, count
from kafscale.groups.modern.awaited_targets import AwaitedTargets
from kafscale.groups.modern.events import Assigned, Topics
from kafscale.groups.modern.modern_group import (
    MEMBER_MEMORY_BYTES,
    PARTITION_MEMORY_BYTES,
    TOPIC_MEMORY_BYTES,
    Changes,
    ModernGroup,
)
from kafscale.groups.share.events import ShareHeartbeatReceived
from kafscale.groups.states import GroupState

SHARE_PROTOCOL_TYPE: Final = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePolicy:
    """The broker's settings for share groups, and the group's own configs."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_size: int


@dataclass(frozen=True, slots=True)
class AwaitedTarget:
    """A heartbeat that waits for the target assignment of `epoch`.

    `told`: the assignment that the member knows; None if an answer to it was lost.
    """

    epoch: int
    event: ShareHeartbeatReceived
    told: Assignment | None


class ShareGroup(ModernGroup[ShareMember, ShareGroupRecord]):
    """One share group. Only the actions behind machine.py change it; all other code reads it.

    `initialized`: partitions that are known to have a start. `held`: a target that is taken over once all of its
    partitions have one. `asked_starts`: those that it lacks and was not given yet. `ask_starts_again_ms`: when those
    for which there was no room are asked for again, None if there are none.
    """

    def __init__(self, group_id: str, policy: SharePolicy, now_ms: int) -> None:
        super().__init__(group_id, now_ms)
        self.policy = policy
        self.awaited_targets: AwaitedTargets[AwaitedTarget] = AwaitedTargets()
        self.initialized: Assignment = NO_PARTITIONS
        self.asked_starts: Assignment = NO_PARTITIONS
        self.held: Assigned | None = None
        self.ask_starts_again_ms: int | None = None
        self._names: Counter[str] = Counter()

    @classmethod
    def of(
        cls,
        group_id: str,
        policy: SharePolicy,
        record: ShareGroupRecord,
        members: Iterable[ShareMember],
        now_ms: int,
    ) -> "ShareGroup":
        """The group as the previous coordinator stored it. Its members' sessions start now."""
        group = cls(group_id, policy, now_ms)
        group.state_since_ms = record.state_since_ms
        for member in members:
            group.put(member)
            group.set_session(member.member_id, now_ms + policy.session_timeout_ms)
        group.group_epoch = max(
            [record.group_epoch, *(member.member_epoch for member in group.members.values())]
        )
        group.assignment_epoch = group.group_epoch
        group.target = {member.member_id: member.assigned for member in group.members.values()}
        group.changes = Changes()
        return group

    # Queries

    GROUP_TYPE: Final = "share"
    """As ListGroups names it."""

    ASSIGNOR: Final = "simple"
    """As ShareGroupDescribe names it."""

    @property
    def state(self) -> GroupState:
        """As Kafka derives it: a target that is being computed does not show."""
        if self.is_dead:
            return GroupState.DEAD
        return GroupState.STABLE if self.members else GroupState.EMPTY

    @property
    def protocol_type(self) -> str:
        """As Kafka's tools print it."""
        return SHARE_PROTOCOL_TYPE

    def record(self) -> ShareGroupRecord:
        """The record to store."""
        return ShareGroupRecord(self.group_epoch, self.state_since_ms)

    def subscribed_topics(self) -> frozenset[str]:
        """The topics of all members."""
        return frozenset(self._names)

    def is_waiting(self, member_id: str) -> bool:
        """True if a heartbeat of the member waits for a target assignment."""
        return member_id in self.awaited_targets

    # Changes, for the actions

    def set_topics(self, topics: Topics) -> None:
        """These are the topics of the target assignment. The starts of other topics may be deleted from now on."""
        self.topics = topics
        ids = {topic.topic_id for topic in topics.values()}
        self.initialized = {one: indexes for one, indexes in self.initialized.items() if one in ids}

    def forget_starts(self) -> None:
        """Starts may be altered and deleted while the group is empty."""
        self.initialized = self.asked_starts = NO_PARTITIONS
        self.ask_starts_again_ms = None

    def put(self, member: ShareMember) -> None:
        """Add the member, or replace it."""
        before = self.members.get(member.member_id)
        if before == member:
            return
        self._count(member, 1)
        if before is not None:
            self._count(before, -1)
        self.members[member.member_id] = member
        self.changes.members.add(member.member_id)
        self.changes.removed.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove the member with all that is known of it."""
        self._count(self.members.pop(member_id), -1)
        self.sessions.pop(member_id, None)
        self.target = {one: target for one, target in self.target.items() if one != member_id}
        self.changes.members.discard(member_id)
        self.changes.removed.add(member_id)

    def _count(self, member: ShareMember, change: int) -> None:
        for name in member.subscribed_topic_names:
            self._names[name] += change
            if not self._names[name]:
                del self._names[name]
        self._members_memory_bytes += change * _memory_bytes(member)


def _memory_bytes(member: ShareMember) -> int:
    names = sum(TOPIC_MEMORY_BYTES + len(name) for name in member.subscribed_topic_names)
    texts = long_text_bytes(member.member_id, member.client_id)
    return MEMBER_MEMORY_BYTES + texts + names + count(member.assigned) * PARTITION_MEMORY_BYTES
