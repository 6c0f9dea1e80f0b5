"""The states of a group, under the names that Kafka's tools print."""

from enum import StrEnum


class GroupState(StrEnum):
    """The state of a group in the course of its rebalances."""

    EMPTY = "Empty"
    """No members. It may still have committed offsets."""

    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for the members to join the next generation."""

    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation has its members; waiting for the leader's assignment to arrive and to be stored."""

    ASSIGNING = "Assigning"
    """Of a consumer group (KIP-848): the target assignment is being computed."""

    RECONCILING = "Reconciling"
    """Of a consumer group: members give partitions up and take others over, until all have the target assignment."""

    STABLE = "Stable"
    """Every member has its assignment of this generation, or can fetch it."""

    DEAD = "Dead"
    """Deleted, or unloaded by this coordinator."""
