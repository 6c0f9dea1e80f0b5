"""Plans the next upkeep step of an etcd cluster: defragmentation, compaction, alarms. Pure.

A member is unavailable while it is defragmented: so members take turns, followers first, only while all others are
healthy, and each once per round. An exhausted quota is handled immediately: history is compacted, files are
defragmented, and the alarm is disarmed once there is room; otherwise it stays, since etcd would raise it again.
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
"""How late a scheduled defragmentation may start: a restarted operator continues."""

ROOM_SHARE: Final = 0.9
"""An alarm is disarmed once every member's file is below this share of the quota."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragmentRules:
    """When defragmentation is worthwhile: minimum free bytes, and their share of the file."""

    min_free_bytes: int = 32 * 2**20
    min_free_share: float = 0.2

    def are_met(self, status: MemberStatus) -> bool:
        """True if the member's file meets both minimums."""
        share = status.free_bytes / max(1, status.size_bytes)
        return status.free_bytes >= self.min_free_bytes and share >= self.min_free_share


DEFAULT_RULES: Final = DefragmentRules()
ALWAYS: Final = DefragmentRules(min_free_bytes=0, min_free_share=0.0)
"""Without writes etcd does not report free space: it is updated on a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defragment:
    """Defragment the member."""

    member: MemberSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeader:
    """Transfer leadership first, so that writes continue while this member is defragmented."""

    leader: MemberSeen
    successor: MemberSeen


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """Compact history before the revision."""

    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Disarm:
    """Disarm the alarm."""

    alarm: Alarm


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A step is due, but has to wait."""

    why: str


Step = Defragment | MoveLeader | Compact | Disarm | Wait


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Done in this round: ids of defragmented members; `compacted`: the compacted revision, 0 for none."""

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
    """`is_due`: by schedule. `settled_revision`: a revision that no reader needs; 0: unknown."""
    if is_raised(seen, NO_SPACE):
        return _make_room(seen, done, quota_bytes, settled_revision)
    return next_to_defragment(seen, done.members, rules) if is_due else None


def _make_room(seen: EtcdSeen, done: Done, quota_bytes: int, settled_revision: int) -> Step | None:
    if settled_revision > done.compacted:
        return Compact(revision=settled_revision)
    if not done.compacted:
        return Wait(why="too few looks so far to know which history is no longer read")
    step = next_to_defragment(seen, done.members, ALWAYS)
    if step is not None:
        return step
    if seen.silent or any(each.size_bytes >= ROOM_SHARE * quota_bytes for each in seen.statuses):
        return None
    return Disarm(alarm=next(each for each in seen.alarms or () if each.kind == NO_SPACE))


def next_to_defragment(seen: EtcdSeen, done: frozenset[int], rules: DefragmentRules) -> Step | None:
    """Chooses the follower with most free bytes, the leader last (after a transfer); None if none is worthwhile."""
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
    """True if the newest scheduled time is recent enough to act on."""
    return scheduled <= now < scheduled + WINDOW


def _leads(member: MemberSeen) -> bool:
    return member.status is not None and member.status.member_id == member.status.leader_id


def _free_bytes(member: MemberSeen) -> int:
    return 0 if member.status is None else member.status.free_bytes
