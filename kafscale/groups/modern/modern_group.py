"""The data that consumer groups and share groups have in common; their machines change it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.formats.share_group_record import ShareGroupRecord
from kafscale.formats.share_member_record import ShareMember
from kafscale.groups.effects import Answer
from kafscale.groups.group import GROUP_MEMORY_BYTES, long_text_bytes
from kafscale.groups.modern.assignment import NO_PARTITIONS, Assignment
from kafscale.groups.modern.events import Topics

MEMBER_MEMORY_BYTES: Final = 2048
TOPIC_MEMORY_BYTES: Final = 256
PARTITION_MEMORY_BYTES: Final = 128

MemberType = TypeVar("MemberType", ConsumerMember, ShareMember)
RecordType = TypeVar("RecordType", ConsumerGroupRecord, ShareGroupRecord)


@dataclass(slots=True)
class Changes:
    """The changes of the event that is being applied, for the store."""

    members: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    group: bool = False


class ModernGroup(Generic[MemberType, RecordType]):
    """A group whose coordinator assigns the partitions.

    `target`: of the members, by id, for `assignment_epoch`. `topics`: those that it was computed with; None in a
    group that was loaded and not yet compared with the topics of now. `newer_topics`: those that the broker's view
    showed while a target was computed. `sessions`: when each member's ends, Unix milliseconds.
    """

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.group_id = group_id
        self.is_dead = False
        self.state_since_ms = now_ms
        self.group_epoch = 0
        self.assignment_epoch = 0
        self.is_assigning = False
        self.newer_topics: Topics | None = None
        self.target: Mapping[str, Assignment] = {}
        self.topics: Topics | None = None
        self.members: dict[str, MemberType] = {}
        self.sessions: dict[str, int] = {}
        self.changes = Changes()
        self.unstored_answers: dict[int, list[Answer]] = {}
        self.last_store_id = 0
        self._earliest_deadline_ms: int | None = None
        self._members_memory_bytes = 0

    @property
    def pending_members(self) -> Mapping[str, int]:
        """Members of classic groups that have an id and have not joined: here are none."""
        return {}

    @property
    def memory_bytes(self) -> int:
        """The group's memory, roughly."""
        return GROUP_MEMORY_BYTES + long_text_bytes(self.group_id) + self._members_memory_bytes

    def record(self) -> RecordType:
        """The record to store."""
        raise NotImplementedError

    def target_of(self, member_id: str) -> Assignment:
        """The member's part of the target assignment."""
        return self.target.get(member_id, NO_PARTITIONS)

    def next_deadline_ms(self) -> int | None:
        """When `TimePassed` is due; it may be earlier than any member's deadline."""
        return None if self.is_dead else self._earliest_deadline_ms

    def set_session(self, member_id: str, at_ms: int) -> None:
        """The member is removed at that time, unless it is heard of before."""
        self.sessions[member_id] = at_ms
        self._note_deadline(at_ms)

    def _note_deadline(self, at_ms: int) -> None:
        if self._earliest_deadline_ms is None or at_ms < self._earliest_deadline_ms:
            self._earliest_deadline_ms = at_ms

    def find_deadline(self) -> None:
        """Find the earliest deadline of now: those that were noted may have been postponed."""
        self._earliest_deadline_ms = min(self.sessions.values(), default=None)
