"""The states of a consumer group, under the names that Kafka's tools print."""

from enum import StrEnum


class GroupState(StrEnum):
    """Where a group stands between two rebalances."""

    EMPTY = "Empty"
    """No members. It may still have committed offsets."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waits for its members to join the next generation."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has its members; waits for the leader's assignment, and for the store to have it."""

    STABLE = "Stable"
    """Every member has, or can ask for, its assignment of this generation."""

    DEAD = "Dead"
    """Deleted, or given up by this coordinator."""
