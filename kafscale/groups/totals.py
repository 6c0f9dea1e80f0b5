"""The totals of all groups of this broker, kept up to date as they change."""

from collections import Counter
from typing import Final, NamedTuple

from kafscale.groups.states import GroupState
from kafscale.groups.stored_bytes import StoredTotals


class Counted(NamedTuple):
    """One group's part of the totals."""

    state: GroupState | None
    members: int
    memory_bytes: int


NOT_COUNTED: Final = Counted(None, 0, 0)


class GroupTotals:
    """Plain numbers, which another thread may read. `stored`: the groups' bytes in the metadata store."""

    def __init__(self) -> None:
        self.by_state: Counter[GroupState] = Counter()
        self.members = 0
        self.memory_bytes = 0
        self.stored = StoredTotals()

    def replace(self, before: Counted, after: Counted) -> Counted:
        """Count `after` where `before` was counted; returns `after`."""
        if before.state is not after.state:
            if before.state is not None:
                self.by_state[before.state] -= 1
            if after.state is not None:
                self.by_state[after.state] += 1
        self.members += after.members - before.members
        self.memory_bytes += after.memory_bytes - before.memory_bytes
        return after
