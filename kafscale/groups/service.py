"""Groups from a broker's start to its stop, behind one class for the composition root."""

import logging
from collections.abc import Callable, Iterable
from functools import partial

from kafscale.cluster.assignment import ShardAssignment
from kafscale.cluster.coordination import Coordination
from kafscale.cluster.group_configs import GroupConfigs
from kafscale.cluster.keeper import Keeper
from kafscale.cluster.view import ClusterView
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.expiry import OffsetExpiry
from kafscale.groups.lag import ConsumerLag, LogEndOffset
from kafscale.groups.log_end_offsets import LogEndOffsets
from kafscale.groups.marker_watch import MarkerWatch
from kafscale.groups.modern.topic_changes import TopicChanges
from kafscale.groups.participation import Participation
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.lag import ShareLag
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.share.starts_in_store import StartsInStore
from kafscale.groups.states import GroupState
from kafscale.groups.totals import GROUP_TYPES
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.ops import metric_families, share_metric_families
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import Settings
from kafscale.share.state.starts import ShareStarts

logger = logging.getLogger(__name__)


class GroupService:
    """The coordinator, its group shards, the expiry of offsets, the lag. `lease` returns the broker's lease.

    `lag`, `share_lag` are None if it is switched off.
    """

    def __init__(
        self,
        store: MetadataStore,
        view: ClusterView,
        lease: Callable[[], int],
        log_end_offset: LogEndOffset,
        settings: Settings,
        metrics: Metrics,
        now_ms: Callable[[], int],
        participation: Participation,
        share_starts: ShareStarts | None = None,
    ) -> None:
        coordination = Coordination(store, settings.broker_id, lease)
        failures = metrics.background_failures
        self._log_end_offsets = LogEndOffsets(
            store, log_end_offset, lambda: lag.partitions() if lag else (), failures=failures
        )
        self.lag = lag = _consumer_lag(
            view, self._log_end_offsets.get, settings.consumer_lag_max_series, metrics
        )
        self._shards = GroupShards(
            store,
            coordination,
            settings,
            metrics.groups,
            now_ms,
            lag,
            self._shard_changed,
            failures,
            GroupConfigs(view, settings),
            StartsInStore(store, now_ms),
            view.topic,
        )
        self.share_lag = None
        if share_starts is not None and settings.consumer_lag_max_series:
            self.share_lag = ShareLag(
                store,
                view,
                share_starts,
                self._share_groups,
                log_end_offset,
                settings.consumer_lag_max_series,
                now_ms,
                failures=failures,
            )
            _register_share_lag(self.share_lag, metrics)
        self._assignment = ShardAssignment(view, settings.broker_id)
        moves = _ShardMoves(self._shards)
        self._keeper = Keeper("group shards", settings.broker_id, self._assignment, moves)
        view.subscribe_coordinators(self._shard_changed)
        view.subscribe_brokers(self.reconsider)
        self._expiry = OffsetExpiry(self._shards, store, view, settings, now_ms, failures)
        self._topic_changes = TopicChanges(
            view, self._all_groups, now_ms, ItemFailures(BackgroundWork.GROUP_TOPICS, failures)
        )
        self._marker_watch = MarkerWatch(store, self._shards.markers_put)
        self.coordinator = GroupCoordinator(
            self._shards, store, view, settings, metrics.groups, now_ms, participation, log_end_offset
        )
        _register_gauges(self._shards, settings, metrics, now_ms)

    def _shard_changed(self, shard: int) -> None:
        self._assignment.reconsider([shard])
        self._keeper.poke()

    def reconsider(self) -> None:
        """Compare this broker's shards with those that it should coordinate, as after a registration."""
        self._assignment.reconsider_all()
        self._keeper.poke()

    async def start(self) -> None:
        """Claim the free shards that this broker should coordinate; returns once their groups are loaded."""
        self._marker_watch.start()
        self.reconsider()
        await self._keeper.settled()
        self._expiry.start()
        self._log_end_offsets.start()
        if self.share_lag is not None:
            self.share_lag.start()

    def _all_groups(self) -> Iterable[RunningGroup]:
        return [running for shard in self._shards.loaded() for running in tuple(shard.groups.values())]

    def _share_groups(self) -> Iterable[ShareGroup]:
        groups = (running.group for running in self._all_groups())
        return [group for group in groups if isinstance(group, ShareGroup)]

    def progress(self) -> str:
        """The progress of the claims, for people."""
        return f"coordinates {self._shards.shard_count} of {keys.GROUP_SHARD_COUNT}"

    async def handed_over(self) -> None:
        """Wait until this broker has handed over every shard that another one should coordinate."""
        await self._keeper.settled()

    async def resign_all(self) -> None:
        """Resign all shards: the lease has ended."""
        await self._shards.resign(range(keys.GROUP_SHARD_COUNT))
        # The keys of shards that were being loaded went with the lease, too: without them no client finds a shard.
        await self._keeper.settled()
        await self._shards.resign(range(keys.GROUP_SHARD_COUNT))

    def refuse_requests(self) -> None:
        """Answer waiting and later requests with NOT_COORDINATOR: clients look for the coordinator again."""
        self._shards.refuse_requests()

    async def close(self) -> None:
        """Finish the commits in flight, then give all resources back."""
        await self._marker_watch.close()
        await self._keeper.close()
        await self._log_end_offsets.close()
        if self.share_lag is not None:
            await self.share_lag.close()
        await self._expiry.close()
        await self._topic_changes.close()
        await self._shards.close()


class _ShardMoves:
    """See `Owner`. An item is a shard's number."""

    def __init__(self, shards: GroupShards) -> None:
        self._shards = shards

    def owns(self, item: int) -> bool:
        """True if this broker coordinates the shard."""
        return self._shards.coordinates(item)

    async def claim(self, items: set[int]) -> None:
        """Claim the free ones of the shards, and load their groups. Raises `LeaseEndedError`."""
        await self._shards.claim(items)
        logger.info("coordinates more group shards", extra={"shards": self._shards.shard_count})

    async def resign(self, items: set[int]) -> None:
        """Hand the shards over to other brokers."""
        await self._shards.resign(items)
        logger.info("handed over group shards", extra={"shards": self._shards.shard_count})

    async def release_stale(self, items: set[int]) -> None:
        """Release shards whose coordinator key is under this broker's lease although it does not coordinate them."""
        await self._shards.release_stale(items)


def _consumer_lag(
    view: ClusterView, log_end_offset: LogEndOffset, max_series: int, metrics: Metrics
) -> ConsumerLag | None:
    """The consumer lag and its metrics; None if it is switched off."""
    if not max_series:
        return None
    lag = ConsumerLag(view, log_end_offset, max_series)
    metrics.gauge_series(metric_families.CONSUMER_GROUP_LAG, lag.samples)
    metrics.gauge(metric_families.CONSUMER_GROUP_LAG_SERIES, lambda: lag.series_count)
    metrics.gauge(metric_families.CONSUMER_GROUP_LAG_SERIES_OMITTED, lambda: lag.omitted_count)
    return lag


def _register_share_lag(lag: ShareLag, metrics: Metrics) -> None:
    metrics.gauge_series(share_metric_families.LAG, lag.samples)
    metrics.gauge(share_metric_families.LAG_SERIES, lambda: len(lag.rows))
    metrics.gauge(share_metric_families.LAG_SERIES_OMITTED, lambda: lag.omitted_count)


def _register_gauges(
    shards: GroupShards, settings: Settings, metrics: Metrics, now_ms: Callable[[], int]
) -> None:
    totals = shards.totals
    metrics.gauge(metric_families.GROUP_SHARDS, lambda: shards.shard_count)
    for state in GroupState:
        metrics.gauge(metric_families.GROUPS, partial(totals.by_state.__getitem__, state), state=state)
    for group_type in GROUP_TYPES:
        metrics.gauge(
            metric_families.GROUPS_BY_TYPE, partial(totals.by_type.__getitem__, group_type), type=group_type
        )
    metrics.gauge(metric_families.GROUPS_OVERDUE, lambda: totals.overdue(now_ms()))
    metrics.gauge(metric_families.GROUP_MEMBERS, lambda: totals.members)
    metrics.gauge(metric_families.GROUP_MEMORY_USED, lambda: totals.memory_bytes)
    metrics.gauge(metric_families.GROUP_MEMORY_LIMIT, lambda: settings.group_memory_bytes)
    stored, limits = totals.stored, shards.limits
    metrics.gauge(metric_families.GROUPS_STORED, lambda: stored.offset_bytes, kind="offsets")
    metrics.gauge(metric_families.GROUPS_STORED, lambda: stored.record_bytes, kind="records")
    metrics.gauge(metric_families.GROUPS_STORED, lambda: stored.share_bytes, kind="shares")
    metrics.gauge(metric_families.GROUPS_STORED_LIMIT, lambda: limits.broker_bytes(shards.shard_count))
