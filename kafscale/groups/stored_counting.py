"""Counts the stored bytes of loaded groups' offsets, in the background: no start waits for it."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable

from kafscale.errors import StoreError
from kafscale.groups.shard import GroupShard
from kafscale.groups.stored_bytes import TopicPartition, stored_size
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore, Snapshot
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

_RETRY_DELAY_SEC = 1.0
_OFFSETS_PER_TURN = 256


class StoredCounting:
    """Reads the offsets of one shard after the other. Until then its groups count only new commits.

    `wait_before`: returns once reads that matter more are done.
    """

    def __init__(
        self,
        store: MetadataStore,
        wait_before: Callable[[], Awaitable[None]],
        retry_delay_sec: float = _RETRY_DELAY_SEC,
    ) -> None:
        self._store = store
        self._wait_before = wait_before
        self._retry_delay_sec = retry_delay_sec
        self._waiting: deque[GroupShard] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, shards: Iterable[GroupShard]) -> None:
        """Count the offsets of these, if they have groups; returns at once."""
        self._waiting += (shard for shard in shards if shard.groups)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run(), name="stored bytes of groups")

    async def close(self) -> None:
        """Count no more."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            # After a claim the clients come first: they look for what they had committed.
            await asyncio.sleep(self._retry_delay_sec)
            await self._wait_before()
            while self._waiting:
                await self._count(self._waiting.popleft())
        finally:
            self._waiting.clear()
            self._task = None

    async def _count(self, shard: GroupShard) -> None:
        while any(not running.stored.is_complete for running in shard.groups.values()):
            try:
                offsets = await self._store.range(keys.shard_offsets(shard.shard))
            except StoreError as problem:
                fields = {"shard": shard.shard, "problem": str(problem)}
                logger.info("counting what groups have stored later", extra=fields)
                await asyncio.sleep(self._retry_delay_sec)
                continue
            sizes = await _sizes(offsets)
            for group_id, running in shard.groups.items():
                running.stored.complete(sizes.get(group_id, {}))


async def _sizes(offsets: Snapshot) -> dict[str, dict[TopicPartition, int]]:
    """The size of each offset, by group."""
    groups: dict[str, dict[TopicPartition, int]] = {}
    for number, item in enumerate(offsets.items, 1):
        try:
            group_id, place = keys.offset_group_id(item.key), keys.offset_topic_and_partition(item.key)
        except (ValueError, IndexError):
            # No broker writes such a key; it is no reason to leave the others uncounted.
            logger.warning("a key is that of no committed offset", extra={"key": quoted(item.key)})
            continue
        groups.setdefault(group_id, {})[place] = stored_size(item.key, item.value)
        if number % _OFFSETS_PER_TURN == 0:
            await asyncio.sleep(0)
    return groups
