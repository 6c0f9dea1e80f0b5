"""What was seen of an etcd cluster at one look. Pure."""

from dataclasses import dataclass
from typing import Final

NO_SPACE: Final = "NOSPACE"
CORRUPT: Final = "CORRUPT"

MAX_LAG_ENTRIES: Final = 5_000
"""A member that is so many log entries behind another is still catching up. Members are asked one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """What a member says of itself. Ids are etcd's; `leader_id` is 0 where it knows of none.

    `size_bytes`: of its file, of which `in_use_bytes` are in use. `revision`: up to which it has applied.
    """

    member_id: int
    cluster_id: int
    leader_id: int
    is_learner: bool
    size_bytes: int
    in_use_bytes: int
    applied_index: int
    revision: int
    version: str

    @property
    def free_bytes(self) -> int:
        """What defragmentation gives back."""
        return max(0, self.size_bytes - self.in_use_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """A member that there is to be; `status` is None where it did not answer, and `problem` says why."""

    name: str
    status: MemberStatus | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A member that the cluster counts with. One that was added and never started has no name yet."""

    member_id: int
    name: str
    peer_urls: tuple[str, ...]

    @property
    def has_started(self) -> bool:
        """Whether it has ever been part of the cluster."""
        return self.name != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What a member raised, and what stands until somebody takes it back."""

    member_id: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSeen:
    """The look. `listed` and `alarms` take a majority to tell: None where there is none."""

    members: tuple[MemberSeen, ...]
    listed: tuple[Listed, ...] | None
    alarms: tuple[Alarm, ...] | None

    @property
    def answering(self) -> tuple[MemberSeen, ...]:
        """Those that did."""
        return tuple(each for each in self.members if each.status is not None)

    @property
    def statuses(self) -> tuple[MemberStatus, ...]:
        """What they said."""
        return tuple(each.status for each in self.members if each.status is not None)

    @property
    def silent(self) -> tuple[MemberSeen, ...]:
        """Those that did not answer."""
        return tuple(each for each in self.members if each.status is None)

    @property
    def has_majority(self) -> bool:
        """Whether the cluster takes requests."""
        return self.listed is not None and self.alarms is not None

    def name_of(self, member_id: int) -> str:
        """A member's name, or its id where nobody has told it."""
        found = [each.name for each in self.members if each.status and each.status.member_id == member_id]
        found += [each.name for each in self.listed or () if each.member_id == member_id and each.name]
        return found[0] if found else f"{member_id:x}"


def is_raised(seen: EtcdSeen, kind: str) -> bool:
    """Whether some member raised that alarm."""
    return any(alarm.kind == kind for alarm in seen.alarms or ())


def unhealthy_reason(seen: EtcdSeen) -> str | None:
    """Why one more member may not be taken away, not even for a moment; None: it may."""
    if seen.silent:
        first = seen.silent[0]
        return f"{first.name} does not answer ({first.problem})"
    if not seen.members or seen.listed is None or seen.alarms is None:
        return "no majority answers"
    statuses = seen.statuses
    if len({each.cluster_id for each in statuses}) > 1:
        return "its members are of different clusters"
    leaders = {each.leader_id for each in statuses}
    if leaders == {0} or len(leaders) > 1:
        return "its members do not agree on a leader"
    if {each.member_id for each in seen.listed} != {each.member_id for each in statuses}:
        return "it counts with other members than those that there are to be"
    if any(each.is_learner for each in statuses):
        return "one of its members is learning still"
    behind = max(each.applied_index for each in statuses) - min(each.applied_index for each in statuses)
    if behind > MAX_LAG_ENTRIES:
        return f"one of its members is {behind} log entries behind"
    return None
