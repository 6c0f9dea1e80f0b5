"""Observed state of an etcd cluster. Pure."""

from dataclasses import dataclass
from typing import Final

NO_SPACE: Final = "NOSPACE"
CORRUPT: Final = "CORRUPT"

MAX_LAG_ENTRIES: Final = 5_000
"""Lag at which a member counts as catching up; not 0, since members are asked one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    """A member's own status. Ids are etcd's; `leader_id` is 0 if it has no leader.

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
        """Bytes that defragmentation frees."""
        return max(0, self.size_bytes - self.in_use_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSeen:
    """A desired member; `status` is None if it did not answer, and `problem` says why."""

    name: str
    status: MemberStatus | None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """An entry of etcd's member list. An added member has no name until it starts."""

    member_id: int
    name: str
    peer_urls: tuple[str, ...]

    @property
    def has_started(self) -> bool:
        """True if it has ever started."""
        return self.name != ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """An alarm of a member; it stands until disarmed."""

    member_id: int
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSeen:
    """One look. `listed` and `alarms` need a majority: None without one."""

    members: tuple[MemberSeen, ...]
    listed: tuple[Listed, ...] | None
    alarms: tuple[Alarm, ...] | None

    @property
    def answering(self) -> tuple[MemberSeen, ...]:
        """Members that answered."""
        return tuple(each for each in self.members if each.status is not None)

    @property
    def statuses(self) -> tuple[MemberStatus, ...]:
        """The answering members' status."""
        return tuple(each.status for each in self.members if each.status is not None)

    @property
    def silent(self) -> tuple[MemberSeen, ...]:
        """Members that did not answer."""
        return tuple(each for each in self.members if each.status is None)

    @property
    def has_majority(self) -> bool:
        """True if the cluster accepts requests."""
        return self.listed is not None and self.alarms is not None

    def name_of(self, member_id: int) -> str:
        """A member's name, or its id if unknown."""
        found = [each.name for each in self.members if each.status and each.status.member_id == member_id]
        found += [each.name for each in self.listed or () if each.member_id == member_id and each.name]
        return found[0] if found else f"{member_id:x}"


def is_raised(seen: EtcdSeen, kind: str) -> bool:
    """True if any member has raised the alarm."""
    return any(alarm.kind == kind for alarm in seen.alarms or ())


def unhealthy_reason(seen: EtcdSeen) -> str | None:
    """Why no further member may become unavailable, not even for a moment; None: one may."""
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
        return "its member list differs from the desired members"
    if any(each.is_learner for each in statuses):
        return "one of its members is still a learner"
    behind = max(each.applied_index for each in statuses) - min(each.applied_index for each in statuses)
    if behind > MAX_LAG_ENTRIES:
        return f"one of its members is {behind} log entries behind"
    return None
