"""Counts the stored bytes of loaded groups' offsets and shares, in the background: no start waits for it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from kafscale.errors import StoreError
from kafscale.groups.offsets import offset_place
from kafscale.groups.shard import GroupShard
from kafscale.groups.share.stored_size import start_size
from kafscale.groups.stored_bytes import TopicPartition, stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, Snapshot
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.tasks.in_turns import in_turns
from kafscale.tasks.item_queue import ItemQueue

logger = logging.getLogger(__name__)

_RETRY_DELAY_SEC = 1.0
_OFFSETS_PER_TURN = 256


class StoredCounting:
    """Reads the offsets and the share starts of one shard after the other. Until then its groups count what is new.

    `wait_before`: returns once reads that matter more are done.
    """

    def __init__(
        self,
        store: MetadataStore,
        wait_before: Callable[[], Awaitable[None]],
        retry_delay_sec: float = _RETRY_DELAY_SEC,
        failures: Counter[str] | None = None,
    ) -> None:
        self._store = store
        self._wait_before = wait_before
        self._retry_delay_sec = retry_delay_sec
        self._failures = ItemFailures(BackgroundWork.STORED_BYTES, failures)
        self._queue: ItemQueue[GroupShard] = ItemQueue(
            "stored bytes of groups", self._count, self._report, before=self._let_clients_go_first
        )

    def add(self, shards: Iterable[GroupShard]) -> None:
        """Count the offsets of these, if they have groups; returns at once."""
        self._queue.add(shard for shard in shards if shard.groups)

    async def close(self) -> None:
        """Stop counting."""
        await self._queue.close()

    async def _let_clients_go_first(self) -> None:
        """After a claim they look for what they had committed."""
        await asyncio.sleep(self._retry_delay_sec)
        await self._wait_before()

    def _report(self, shard: GroupShard, problem: Exception) -> None:
        self._failures.report(f"group shard {shard.shard}", problem)

    async def _count(self, shard: GroupShard) -> None:
        while any(not running.stored.is_complete for running in shard.groups.values()):
            try:
                offsets = await self._store.range(keys.shard_offsets(shard.shard))
                await self._count_shares(shard)
            except StoreError as problem:
                fields = {"shard": shard.shard, "problem": str(problem)}
                logger.info("counting what groups have stored later", extra=fields)
                await asyncio.sleep(self._retry_delay_sec)
                continue
            sizes = await _sizes(offsets)
            for group_id, running in shard.groups.items():
                running.stored.complete(sizes.get(group_id, {}))

    async def _count_shares(self, shard: GroupShard) -> None:
        """Raises `StoreError`."""
        if all(running.stored.has_shares for running in shard.groups.values()):
            return
        starts = await self._store.range(keys.shard_share_starts(shard.shard))
        sizes: Counter[str] = Counter()
        async for item in in_turns(starts.items, _OFFSETS_PER_TURN):
            sizes[keys.offset_group_id(item.key)] += start_size(item.key, item.value)
        for group_id, running in shard.groups.items():
            # What a coordinator has set meanwhile is counted already, and newer.
            if not running.stored.has_shares:
                running.stored.set_shares(sizes[group_id])


async def _sizes(offsets: Snapshot) -> dict[str, dict[TopicPartition, int]]:
    """The size of each offset, by group."""
    groups: dict[str, dict[TopicPartition, int]] = {}
    for number, item in enumerate(offsets.items, 1):
        place = offset_place(item.key)
        if place is not None:
            of_group = groups.setdefault(keys.offset_group_id(item.key), {})
            of_group[place] = stored_size(item.key, item.value)
        if number % _OFFSETS_PER_TURN == 0:
            await asyncio.sleep(0)
    return groups
