"""One watch on the markers of all groups, which tells each shard of its own."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final

from kafscale.errors import StoreError
from kafscale.metadata import keys
from kafscale.metadata.store import Changes, Delete, KeyValue, MetadataStore, Snapshot
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_RETRY_DELAY_SEC: Final = 0.5

MarkersPut = Callable[[int, Sequence[KeyValue], int], Awaitable[None]]
"""Shard, its markers, and the store's revision with them."""


class MarkerWatch:
    """A watch that fails is begun again, with a snapshot."""

    def __init__(
        self, store: MetadataStore, markers_put: MarkersPut, retry_delay_sec: float = _RETRY_DELAY_SEC
    ) -> None:
        self._store = store
        self._markers_put = markers_put
        self._retry_delay_sec = retry_delay_sec
        self._tasks = TaskOwner()

    def start(self) -> None:
        """Begin the watch."""
        self._tasks.spawn(self._run(), "group markers")

    async def close(self) -> None:
        """End the watch."""
        await self._tasks.close()

    async def _run(self) -> None:
        while True:
            try:
                await self._follow()
            except StoreError as problem:
                logger.warning(
                    "watch of the groups' markers broke, beginning it again", extra={"problem": str(problem)}
                )
            await asyncio.sleep(self._retry_delay_sec)

    async def _follow(self) -> None:
        async with aclosing(self._store.watch(keys.GROUP_MARKERS)) as events:
            async for event in events:
                await self._tell(event)

    async def _tell(self, event: Snapshot | Changes) -> None:
        items = event.items if isinstance(event, Snapshot) else event.puts_and_deletes
        by_shard: defaultdict[int, list[KeyValue]] = defaultdict(list)
        for item in items:
            shard = keys.marked_shard(item.key)
            if shard is None:
                continue
            of_shard = by_shard[shard]
            # Only a shard's coordinator deletes its markers: it knows.
            if not isinstance(item, Delete):
                of_shard.append(item)
        for shard, markers in by_shard.items():
            await self._markers_put(shard, markers, event.revision)
