"""The starts of share partitions in the metadata store, as a group's coordinator needs them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from kafscale.groups.modern.assignment import Assignment
from kafscale.metadata.store import Operation

Write = Callable[[Sequence[Operation]], Awaitable[object]]
"""Makes operations durable, under compare of the shard's owner, in the order of the calls. Raises `KafkaError`."""


Account = Callable[[int], int]
"""Counts this as what the group has of its partitions in the store; returns how many bytes more it may have."""


class StoredStarts(Protocol):
    """Reads the store itself, not a view of it: all earlier writes of the group are durable when it is called."""

    async def initialize(
        self, group_id: str, partitions: Assignment, write: Write, account: Account
    ) -> Assignment:
        """Set the start of each of these partitions that has none; returns those for which there is no room.

        Raises `StoreError`, and what `write` raises.
        """

    async def delete(self, group_id: str, write: Write) -> None:
        """Delete all starts and states of the group. Raises `StoreError`, and what `write` raises."""
