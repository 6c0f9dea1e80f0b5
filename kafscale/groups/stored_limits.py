"""Limits of what groups store: a commit, a new group, a group's record, the partitions of a share group."""

from dataclasses import dataclass
from typing import Final

from kafscale.groups.stored_bytes import StoredGroup, StoredTotals
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode, KafkaError

MAX_COMMIT_BYTES: Final = 4 * 1024 * 1024
"""The limit of one commit. Kafka allows one batch of its offsets topic: 1 MiB, in smaller records."""

# The rest is for the records of existing groups: a client that fills the store with offsets, or with groups, does
# not keep others from rebalancing.
_OFFSETS_AND_NEW_GROUPS_PERCENT: Final = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLimits:
    """`group_offset_bytes`: the offsets of one group, or what a share group has of its partitions. `all_bytes`: all
    that the cluster's groups have.

    A broker may use a part of the latter in proportion to its group shards: together the brokers keep the limit
    without asking each other.
    """

    group_offset_bytes: int
    all_bytes: int

    def broker_bytes(self, shard_count: int) -> int:
        """The limit of a broker that coordinates so many shards."""
        return self.all_bytes * shard_count // keys.GROUP_SHARD_COUNT

    def check_commit(self, group: StoredGroup, totals: StoredTotals, shard_count: int, growth: int) -> None:
        """Raises `KafkaError` INVALID_COMMIT_OFFSET_SIZE; a commit that needs no more room is always accepted."""
        if growth <= 0:
            return
        if group.offset_bytes + growth > self.group_offset_bytes:
            raise refuse_commit(
                f"the group's offsets would take {group.offset_bytes + growth} bytes, at most "
                f"{self.group_offset_bytes} are allowed by KAFSCALE_GROUP_OFFSETS_MAX_BYTES"
            )
        if not self._has_room(totals, shard_count, growth):
            raise refuse_commit(
                "all groups together have what KAFSCALE_GROUPS_STORED_MAX_BYTES leaves for offsets"
            )

    def check_new_group(self, totals: StoredTotals, shard_count: int) -> None:
        """Raises `KafkaError` GROUP_MAX_SIZE_REACHED if no group may be added."""
        if not self._has_room(totals, shard_count, 0):
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                "all groups together have what KAFSCALE_GROUPS_STORED_MAX_BYTES leaves for new ones",
            )

    def check_record(self, totals: StoredTotals, shard_count: int, growth: int) -> None:
        """Raises `KafkaError` COORDINATOR_NOT_AVAILABLE, on which members retry later."""
        if growth > 0 and totals.all_bytes + growth > self.broker_bytes(shard_count):
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                "all groups together have all that KAFSCALE_GROUPS_STORED_MAX_BYTES allows",
            )

    def share_room(self, group: StoredGroup, totals: StoredTotals, shard_count: int) -> int:
        """How many bytes more a share group may have of its partitions."""
        room = min(self.group_offset_bytes - group.share_bytes, self._room(totals, shard_count))
        return max(room, 0)

    def _has_room(self, totals: StoredTotals, shard_count: int, growth: int) -> bool:
        return growth <= self._room(totals, shard_count)

    def _room(self, totals: StoredTotals, shard_count: int) -> int:
        return self.broker_bytes(shard_count) * _OFFSETS_AND_NEW_GROUPS_PERCENT // 100 - totals.all_bytes


def check_commit_bytes(commit_bytes: int) -> None:
    """Raises `KafkaError` INVALID_COMMIT_OFFSET_SIZE for more than one commit may store."""
    if commit_bytes > MAX_COMMIT_BYTES:
        raise refuse_commit(f"a commit stores at most {MAX_COMMIT_BYTES} bytes")


def refuse_commit(problem: str) -> KafkaError:
    """The error for a commit that is too large."""
    return KafkaError(ErrorCode.INVALID_COMMIT_OFFSET_SIZE, problem)
