"""Which group shards this broker should coordinate and does: what the keeper compares, and the moves."""

import logging
from collections.abc import Iterable, Iterator
from typing import Final

from kafscale.cluster.keeper import Wanted
from kafscale.cluster.preferred import preferred_brokers
from kafscale.cluster.view import ClusterView
from kafscale.groups.shards import GroupShards
from kafscale.metadata import keys

logger = logging.getLogger(__name__)

# Part of what brokers of different versions must agree on while they run side by side.
_NAME: Final = "group-shards"


class ShardHoldings:
    """See `Holdings`. An item is a shard's number."""

    def __init__(self, view: ClusterView, shards: GroupShards, broker_id: int) -> None:
        self._view = view
        self._shards = shards
        self._broker_id = broker_id
        self._changed: set[int] = set()

    def reconsider(self, items: Iterable[int]) -> None:
        """Name these shards at the next `changed`."""
        self._changed.update(items)

    def reconsider_all(self) -> None:
        """Name every shard at the next `changed`."""
        self._changed.update(range(keys.GROUP_SHARD_COUNT))

    def changed(self) -> Iterator[Wanted[int]]:
        """Every shard of which anything changed."""
        brokers = self._view.brokers_to_prefer(self._broker_id)
        preferred = preferred_brokers(_NAME, keys.GROUP_SHARD_COUNT, brokers)
        changed, self._changed = self._changed, set()
        for shard in sorted(changed):
            yield Wanted(shard, preferred[shard] if preferred else None, self._view.coordinator(shard))

    def has_more(self) -> bool:
        """Never: there are few shards."""
        return False

    def holds(self, item: int) -> bool:
        """Whether this broker coordinates the shard."""
        return self._shards.coordinates(item)

    async def gain(self, items: set[int]) -> None:
        """Coordinate those that nobody does, with their groups loaded. Raises `LeaseEndedError`."""
        await self._shards.claim(items)
        logger.info("coordinates more group shards", extra={"shards": self._shards.shard_count})

    async def let_go(self, items: set[int]) -> None:
        """Let others coordinate them."""
        await self._shards.let_go(items)
        logger.info("handed over group shards", extra={"shards": self._shards.shard_count})

    async def let_go_strays(self, items: set[int]) -> None:
        """Let others coordinate what the store says that this broker coordinates, although it does not."""
        await self._shards.let_go_strays(items)
