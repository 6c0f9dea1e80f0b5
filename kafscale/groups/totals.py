"""The totals of all groups of this broker, kept up to date as they change."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.group import Member
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.groups.stored_bytes import StoredTotals

GROUP_TYPES: Final = ("classic", "consumer", "share")
"""As ListGroups names them."""

_REBALANCING: Final = frozenset(
    {
        GroupState.PREPARING_REBALANCE,
        GroupState.COMPLETING_REBALANCE,
        GroupState.ASSIGNING,
        GroupState.RECONCILING,
    }
)
_TIMEOUTS_OF_A_REBALANCE: Final = 2
"""A classic group may wait so long for joins, and as long for the assignment. A consumer group needs one of them,
and its members some heartbeats."""


class Counted(NamedTuple):
    """One group's part of the totals."""

    group: AnyGroup | None
    state: GroupState | None
    members: int
    memory_bytes: int


NOT_COUNTED: Final = Counted(None, None, 0, 0)


class GroupTotals:
    """Plain numbers, which another thread may read. `stored`: the groups' bytes in the metadata store."""

    def __init__(self) -> None:
        self.by_state: Counter[GroupState] = Counter()
        self.by_type: Counter[str] = Counter()
        self.members = 0
        self.memory_bytes = 0
        self.stored = StoredTotals()
        self._rebalancing: dict[str, AnyGroup] = {}

    def replace(self, before: Counted, after: Counted) -> Counted:
        """Count `after` where `before` was counted; returns `after`."""
        if before.state is not after.state or before.group is not after.group:
            self._remove(before)
            self._add(after)
        self.members += after.members - before.members
        self.memory_bytes += after.memory_bytes - before.memory_bytes
        return after

    def _add(self, counted: Counted) -> None:
        group, state = counted.group, counted.state
        if group is None or state is None:
            return
        self.by_state[state] += 1
        self.by_type[group.GROUP_TYPE] += 1
        if state in _REBALANCING:
            self._rebalancing[group.group_id] = group

    def _remove(self, counted: Counted) -> None:
        group, state = counted.group, counted.state
        if group is None or state is None:
            return
        self.by_state[state] -= 1
        self.by_type[group.GROUP_TYPE] -= 1
        if self._rebalancing.get(group.group_id) is group:
            del self._rebalancing[group.group_id]

    def overdue(self, now_ms: int) -> int:
        """The groups that rebalance for more than twice the longest rebalance timeout of their members.

        For any thread: what is walked is copied first.
        """
        return sum(_is_overdue(group, now_ms) for group in list(self._rebalancing.values()))


def _is_overdue(group: AnyGroup, now_ms: int) -> bool:
    if isinstance(group, ShareGroup):
        return False  # No member waits for what others give up.
    since_ms = group.rebalance_since_ms
    if since_ms is None:
        return False
    members: Sequence[Member | ConsumerMember] = tuple(group.members.values())
    longest_ms = max((member.rebalance_timeout_ms for member in members), default=0)
    return now_ms - since_ms > _TIMEOUTS_OF_A_REBALANCE * longest_ms
