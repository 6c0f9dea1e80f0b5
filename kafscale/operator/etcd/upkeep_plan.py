"""What is to be done next to keep an etcd cluster in good order. Pure: one step at a time, from one look.

Defragmentation takes a member away for its time: it happens one by one, followers first, only while all others are
well, and not twice in vain. A quota that was used up is dealt with at once: history is given up, files are
defragmented, and the alarm is taken back when there is room again; else it stays, since etcd would only
raise it again.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from kafscale.operator.etcd.seen import (
    NO_SPACE,
    Alarm,
    EtcdSeen,
    MemberSeen,
    MemberStatus,
    is_raised,
    unhealthy_reason,
)

WINDOW: Final = timedelta(hours=1)
"""For so long after its scheduled time a defragmentation may still begin: an operator that starts anew goes on."""

ROOM_SHARE: Final = 0.9
"""An alarm is taken back when every member's file is below this part of the quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentRules:
    """When it is worth it: so much is free, and such a part of the file."""

    min_free_bytes: int = 32 * 2**20
    min_free_share: float = 0.2

    def are_met(self, status: MemberStatus) -> bool:
        """Whether the member's file is fragmented so far."""
        share = status.free_bytes / max(1, status.size_bytes)
        return status.free_bytes >= self.min_free_bytes and share >= self.min_free_share


DEFAULT_RULES: Final = DefragmentRules()
ALWAYS: Final = DefragmentRules(min_free_bytes=0, min_free_share=0.0)
"""Where nothing can be written etcd does not tell what is free: it counts that when it writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defragment:
    """Defragment the member."""

    member: MemberSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeader:
    """Let another member lead first, so that writes go on while this one is defragmented."""

    leader: MemberSeen
    successor: MemberSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Forget what was before the revision."""

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disarm:
    """Take the alarm back."""

    alarm: Alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Something is to be done and may not be done now."""

    why: str


Step = Defragment | MoveLeader | Compact | Disarm | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done in this round: ids of members that were defragmented; history before `compacted` was given up."""

    members: frozenset[int] = frozenset()
    compacted: int = 0


def next_step(
    seen: EtcdSeen,
    *,
    done: Done,
    quota_bytes: int,
    is_due: bool,
    settled_revision: int,
    rules: DefragmentRules = DEFAULT_RULES,
) -> Step | None:
    """`is_due`: by schedule. `settled_revision`: one that readers have had time to go past; 0: none is known."""
    if is_raised(seen, NO_SPACE):
        return _make_room(seen, done, quota_bytes, settled_revision)
    return next_to_defragment(seen, done.members, rules) if is_due else None


def _make_room(seen: EtcdSeen, done: Done, quota_bytes: int, settled_revision: int) -> Step | None:
    if settled_revision > done.compacted:
        return Compact(revision=settled_revision)
    if not done.compacted:
        return Wait(why="nobody has looked long enough to know which history is not read any more")
    step = next_to_defragment(seen, done.members, ALWAYS)
    if step is not None:
        return step
    if seen.silent or any(each.size_bytes >= ROOM_SHARE * quota_bytes for each in seen.statuses):
        return None
    return Disarm(alarm=next(each for each in seen.alarms or () if each.kind == NO_SPACE))


def next_to_defragment(seen: EtcdSeen, done: frozenset[int], rules: DefragmentRules) -> Step | None:
    """The follower with most to give back, the leader last and no longer as leader; None when none needs it."""
    wanting = [
        each
        for each in seen.members
        if each.status and each.status.member_id not in done and rules.are_met(each.status)
    ]
    if not wanting:
        return None
    why = unhealthy_reason(seen)
    if why is not None:
        return Wait(why=why)
    chosen = max(wanting, key=lambda each: (not _leads(each), _free_bytes(each)))
    others = [each for each in seen.members if each is not chosen]
    if _leads(chosen) and others:
        return MoveLeader(leader=chosen, successor=min(others, key=_free_bytes))
    return Defragment(member=chosen)


def is_due(scheduled: datetime, now: datetime) -> bool:
    """Whether the newest scheduled time is one to act on still."""
    return scheduled <= now < scheduled + WINDOW


def _leads(member: MemberSeen) -> bool:
    return member.status is not None and member.status.member_id == member.status.leader_id


def _free_bytes(member: MemberSeen) -> int:
    return 0 if member.status is None else member.status.free_bytes
