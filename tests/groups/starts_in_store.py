"""The starts of share partitions, as simply as a store can have them."""

from collections.abc import Sequence

from kafscale.groups.modern.assignment import Assignment, partitions_of
from kafscale.groups.share.starts import Write
from kafscale.metadata.store import Delete, MetadataStore, Operation, Put

STARTS = "starts-of-shares/"


class StartsInStore:
    """Starts under keys of their own; see `StoredStarts`."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def initialize(self, group_id: str, partitions: Assignment, write: Write) -> None:
        """See `StoredStarts`."""
        there = {item.key for item in (await self._store.range(f"{STARTS}{group_id}/")).items}
        wanted = {f"{STARTS}{group_id}/{topic_id}/{index}" for topic_id, index in partitions_of(partitions)}
        await write([Put(key, b"start") for key in sorted(wanted - there)])

    async def delete(self, group_id: str, write: Write) -> None:
        """See `StoredStarts`."""
        items = (await self._store.range(f"{STARTS}{group_id}/")).items
        deletions: Sequence[Operation] = [Delete(item.key) for item in items]
        await write(deletions)
