"""Reads the committed offsets of loaded groups, so that their lag is known before they commit again."""

import asyncio
from collections import Counter
from collections.abc import Iterable

from kafscale.groups.lag import ConsumerLag
from kafscale.groups.offsets import read_offsets
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.states import GroupState
from kafscale.metadata.store import MetadataStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.tasks.item_queue import ItemQueue

_RETRY_DELAY_SEC = 1.0

_Loaded = tuple[GroupShard, RunningGroup]


class LagSeeding:
    """Reads one group after the other in the background, those with members first, until the table is full."""

    def __init__(
        self,
        lag: ConsumerLag,
        store: MetadataStore,
        retry_delay_sec: float = _RETRY_DELAY_SEC,
        failures: Counter[str] | None = None,
    ) -> None:
        self._lag = lag
        self._store = store
        self._retry_delay_sec = retry_delay_sec
        self._failures = ItemFailures(BackgroundWork.CONSUMER_LAG, failures)
        self._queue: ItemQueue[_Loaded] = ItemQueue("consumer lag", self._read, self._report)

    def add(self, shards: Iterable[GroupShard]) -> None:
        """Queue the groups of these shards; returns at once."""
        loaded = [(shard, running) for shard in shards for running in shard.groups.values()]
        self._queue.add(sorted(loaded, key=lambda one: one[1].group.state is GroupState.EMPTY))

    async def settled(self) -> None:
        """Wait until the queue is empty."""
        await self._queue.settled()

    async def close(self) -> None:
        """Stop reading."""
        await self._queue.close()

    async def _read(self, loaded: _Loaded) -> None:
        """Read until nothing is removed meanwhile: what was read may be older than the removal."""
        shard, running = loaded
        group_id = running.group.group_id
        while shard.groups.get(group_id) is running and not self._lag.is_full:
            removals = self._lag.removals
            try:
                offsets = await read_offsets(self._store, group_id)
            except KafkaError as problem:
                if problem.code is not ErrorCode.COORDINATOR_NOT_AVAILABLE:
                    return  # Such bytes stay as they are.
                await asyncio.sleep(self._retry_delay_sec)
                continue
            if self._lag.removals == removals:
                self._lag.seed(group_id, offsets)
                return

    def _report(self, loaded: _Loaded, problem: Exception) -> None:
        self._failures.report(quoted(loaded[1].group.group_id), problem)
