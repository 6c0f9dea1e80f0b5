"""Reads the committed offsets of loaded groups, so that their lag is known before they commit again."""

import asyncio
from collections import deque
from collections.abc import Iterable

from kafscale.groups.lag import ConsumerLag
from kafscale.groups.offsets import read_offsets
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.states import GroupState
from kafscale.metadata.store import MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError

_RETRY_DELAY_SEC = 1.0


class LagSeeding:
    """Reads one group after the other in the background, those with members first, until the table is full."""

    def __init__(
        self, lag: ConsumerLag, store: MetadataStore, retry_delay_sec: float = _RETRY_DELAY_SEC
    ) -> None:
        self._lag = lag
        self._store = store
        self._retry_delay_sec = retry_delay_sec
        self._waiting: deque[tuple[GroupShard, RunningGroup]] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, shards: Iterable[GroupShard]) -> None:
        """Read what the groups of these shards have committed; returns at once."""
        loaded = [(shard, running) for shard in shards for running in shard.groups.values()]
        self._waiting += sorted(loaded, key=lambda one: one[1].group.state is GroupState.EMPTY)
        if self._waiting and self._task is None:
            self._task = asyncio.create_task(self._run(), name="consumer lag")

    async def settled(self) -> None:
        """Wait until there is nothing to read."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def close(self) -> None:
        """Read no more."""
        task = self._task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._waiting and not self._lag.is_full:
                await self._read(*self._waiting.popleft())
        finally:
            self._waiting.clear()
            self._task = None

    async def _read(self, shard: GroupShard, running: RunningGroup) -> None:
        """Until nothing was removed while the store was read: it may have been read before that."""
        group_id = running.group.group_id
        while shard.groups.get(group_id) is running:
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
