"""The starts of share partitions, in the metadata store."""

import uuid
from collections.abc import Callable, Iterable

from kafscale.groups.modern.assignment import Assignment, partitions_of
from kafscale.groups.share.starts import Account, Write
from kafscale.groups.share.stored_size import fitting, group_size
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import MetadataStore
from kafscale.share.state.operations import Change, delete_all, initialize
from kafscale.share.state.stored_group import read_share_group


class StartsInStore:
    """`now_ms`: Unix milliseconds."""

    def __init__(self, store: MetadataStore, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms

    async def initialize(
        self, group_id: str, partitions: Assignment, write: Write, account: Account
    ) -> Assignment:
        """Set the start of each of these partitions that has none; returns those for which there is no room.

        One that is there and cannot be read stays as it is. Raises `StoreError`, and what `write` raises.
        """
        stored = await read_share_group(self._store, group_id)
        unreadable = set(stored.unreadable)
        wanted = [
            place
            for place in (SharePartitionId(group_id, *one) for one in partitions_of(partitions))
            if keys.share_start(place) not in unreadable and keys.share_state(place) not in unreadable
        ]
        change = Change(self._now_ms())
        changes = initialize(wanted, stored.starts, change)
        starts = changes.starts
        size = group_size(stored)
        # Nothing is awaited from here to the writer's queue: what is counted is what other groups find.
        fit, growth = fitting(starts, stored.starts, account(size))
        account(size + growth)
        if len(fit) < len(starts):
            changes = initialize(fit, stored.starts, change)
        if changes.operations:
            await write(changes.operations)
        return _assignment(starts.keys() - set(fit))

    async def delete(self, group_id: str, write: Write) -> None:
        """Delete all starts and states of the group. Raises `StoreError`, and what `write` raises."""
        stored = await read_share_group(self._store, group_id)
        for operations in delete_all(stored.start_keys, stored.state_keys):
            await write(operations)


def _assignment(places: Iterable[SharePartitionId]) -> Assignment:
    found: dict[uuid.UUID, set[int]] = {}
    for place in places:
        found.setdefault(place.topic_id, set()).add(place.partition)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}
