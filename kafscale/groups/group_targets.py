"""The targets of groups whose partitions are assigned here, and the starts that share groups' partitions need."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from kafscale.errors import StoreError
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.target_computation import compute_target
from kafscale.groups.modern.assignment import Assignment, count
from kafscale.groups.modern.events import Assigned
from kafscale.groups.modern.topics import RETRY_SEC, KnownTopic, TopicsOfGroups
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.share.events import StartsInitialized
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.share.starts import StoredStarts, Write
from kafscale.groups.share.target_computation import compute_share_target
from kafscale.metadata.store import MetadataStore
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)


Flush = Callable[[], Awaitable[None]]


class GroupTargets:
    """Of one broker. `topics`: as the store has them. `starts`: None if this broker serves no share groups."""

    def __init__(
        self,
        store: MetadataStore,
        known: KnownTopic,
        starts: StoredStarts | None,
        metrics: GroupMetrics,
        now_ms: Callable[[], int],
    ) -> None:
        self.topics = TopicsOfGroups(store, known)
        self._starts = starts
        self._metrics = metrics
        self._now_ms = now_ms

    async def compute(self, group: ConsumerGroup | ShareGroup) -> Assigned:
        """The target of the group's epoch of now. Waits for the store, however long it takes."""
        began = time.perf_counter()
        if isinstance(group, ShareGroup):
            assigned = await compute_share_target(self.topics, group, self._now_ms)
        else:
            assigned = await compute_target(self.topics, group, self._now_ms)
        self._metrics.assignment_duration.observe(time.perf_counter() - began)
        return assigned

    async def initialize_starts(
        self,
        running: RunningGroup,
        partitions: Assignment,
        flush: Flush,
        write: Write,
        account: Callable[[int], int],
    ) -> StartsInitialized:
        """Set the start of each of these partitions that has none, however long it takes.

        `flush` waits for the earlier writes of the group's shard; `account`: see `StoredStarts`. Raises `KafkaError`
        as `flush` and `write` do.
        """
        while True:
            try:
                async with running.starts_lock:
                    await flush()  # What is deleted, say, is not found any more then.
                    group_id = running.group.group_id
                    refused = await self._shared_here().initialize(group_id, partitions, write, account)
            except StoreError as problem:
                logger.info("a start waits for the metadata store", extra={"problem": str(problem)})
                await asyncio.sleep(RETRY_SEC)
                continue
            self._metrics.share_partitions_refused += count(refused)
            return StartsInitialized(now_ms=self._now_ms(), partitions=partitions, refused=refused)

    async def delete_starts(self, running: RunningGroup, flush: Flush, write: Write) -> None:
        """Delete all starts and states of the group. Raises `KafkaError`."""
        try:
            async with running.starts_lock:
                await flush()  # What others wrote under the lock.
                await self._shared_here().delete(running.group.group_id, write)
        except StoreError as problem:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, quoted(str(problem), 500)) from problem

    def _shared_here(self) -> StoredStarts:
        if self._starts is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this broker serves no share groups")
        return self._starts
