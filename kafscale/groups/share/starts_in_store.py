"""The starts of share partitions, in the metadata store."""

from collections.abc import Callable

from kafscale.groups.modern.assignment import Assignment, partitions_of
from kafscale.groups.share.starts import Write
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

    async def initialize(self, group_id: str, partitions: Assignment, write: Write) -> None:
        """Set the start of each of these partitions that has none. Raises `StoreError`, and what `write` raises.

        One that is there and cannot be read stays as it is.
        """
        stored = await read_share_group(self._store, group_id)
        unreadable = set(stored.unreadable)
        wanted = [
            place
            for place in (SharePartitionId(group_id, *one) for one in partitions_of(partitions))
            if keys.share_start(place) not in unreadable and keys.share_state(place) not in unreadable
        ]
        changes = initialize(wanted, stored.starts, Change(self._now_ms()))
        if changes.operations:
            await write(changes.operations)

    async def delete(self, group_id: str, write: Write) -> None:
        """Delete all starts and states of the group. Raises `StoreError`, and what `write` raises."""
        stored = await read_share_group(self._store, group_id)
        for operations in delete_all(stored.start_keys, stored.state_keys):
            await write(operations)
