"""Transactions from a broker's start to its stop, behind one class for the composition root."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import StoreError
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import MetadataStore
from kafscale.ops import metric_families
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner
from kafscale.transactions.awaited_ends import AwaitedEnds
from kafscale.transactions.awaited_markers import PREFIXES, AwaitedMarkers
from kafscale.transactions.completer import Completer
from kafscale.transactions.coordinated_shard import CoordinatedShard
from kafscale.transactions.coordinator import TransactionCoordinator
from kafscale.transactions.participation import Participation
from kafscale.transactions.record_driver import NewProducerIds, RecordDriver
from kafscale.transactions.shards import TransactionShards
from kafscale.transactions.upkeep import Upkeep

logger = logging.getLogger(__name__)

_RETRY_SEC: Final = 0.5


class TransactionService:
    """The coordinator, its shards, the completion of decisions; and this broker's part in transactions.

    `now_ms`: Unix milliseconds, a clock that never goes back.
    """

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        producer_ids: NewProducerIds,
        settings: Settings,
        metrics: Metrics,
        now_ms: Callable[[], int],
    ) -> None:
        failures = ItemFailures(BackgroundWork.TRANSACTIONS, metrics.background_failures)
        self._now_ms = now_ms
        self._writes = SharedWrites(store, name="shared transaction writes")
        self._driver = RecordDriver(store, self._writes, producer_ids)
        self._awaited = AwaitedMarkers()
        self._shards = TransactionShards(
            store,
            view,
            settings.broker_id,
            self._record_changed,
            self._shard_loaded,
            failures,
            now_ms,
        )
        ends = self._ends = AwaitedEnds(self._shards.known)
        self._completer = Completer(
            store,
            self._writes,
            self._driver,
            self._shards,
            self._awaited,
            metrics.transactions,
            failures,
            now_ms,
        )
        self._upkeep = Upkeep(
            store,
            view,
            self._driver,
            self._shards,
            self._completer,
            self._awaited,
            settings,
            metrics.transactions,
            failures,
            now_ms,
        )
        self._tasks = TaskOwner()
        self.participation = Participation(
            self._driver, view, now_ms, ends, self._shards.known, self._shards.remember
        )
        self.coordinator = TransactionCoordinator(
            self._shards, self._driver, view, settings, metrics.transactions, now_ms, ends
        )
        self._register_gauges(metrics)

    async def start(self) -> None:
        """Read what this broker coordinates, and begin to carry out decisions; returns once it is loaded."""
        for prefix in PREFIXES:
            self._tasks.spawn(self._follow(prefix), f"watch of {prefix}")
        self._shards.start()
        self._upkeep.start()
        await self._shards.loaded()

    def _record_changed(self, shard: CoordinatedShard, transactional_id: str) -> None:
        self._completer.record_changed(shard, transactional_id)
        self._ends.record_changed(transactional_id)

    async def _follow(self, prefix: str) -> None:
        while True:
            try:
                await self._completer.follow(prefix)
            except StoreError as problem:
                logger.warning("the watch of %s broke, beginning it again: %s", prefix, problem)
            await asyncio.sleep(_RETRY_SEC)

    def _shard_loaded(self, shard: CoordinatedShard) -> None:
        """A coordinator was replaced, or a watch broke: no watch shows which markers were written meanwhile."""
        self._tasks.spawn(self._recheck(shard), f"markers of shard {shard.number}")

    async def _recheck(self, shard: CoordinatedShard) -> None:
        try:
            await self._completer.recheck(list(shard.ending))
        except StoreError as problem:
            logger.info("looking for markers later: %s", problem)

    def refuse_requests(self) -> None:
        """Answer later requests with NOT_COORDINATOR: clients look for the coordinator again."""
        self._shards.refuse_requests()

    async def close(self) -> None:
        """Give all resources back. Decisions that are not carried out are the next coordinator's."""
        await self._upkeep.close()
        await self._tasks.close()
        await self._shards.close()
        await self._completer.close()
        await self._writes.close()

    def _register_gauges(self, metrics: Metrics) -> None:
        metrics.gauge(metric_families.TRANSACTIONAL_IDS, self._count)
        for state in ("ongoing", "ending"):
            metrics.gauge(metric_families.TRANSACTIONS_OPEN, partial(self._count_open, state), state=state)
            metrics.gauge(metric_families.TRANSACTIONS_OLDEST, partial(self._age_sec, state), state=state)

    def _count(self) -> int:
        return sum(len(shard.records) for shard in self._shards.all())

    def _count_open(self, state: str) -> int:
        return sum(len(shard.ongoing if state == "ongoing" else shard.ending) for shard in self._shards.all())

    def _age_sec(self, state: str) -> float:
        began_ms = self._upkeep.oldest_ms[state]
        return max(0, self._now_ms() - began_ms) / 1000 if began_ms else 0.0
