"""The group shards that this broker coordinates: claimed, loaded, lost, resigned; and the group of an id."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial

from kafscale.cluster.coordination import Coordination
from kafscale.cluster.group_configs import GroupConfig, GroupConfigs
from kafscale.errors import StoreError
from kafscale.groups.consumer.consumer_group import ConsumerPolicy
from kafscale.groups.group import GroupPolicy
from kafscale.groups.group_markers import ShardMarkers
from kafscale.groups.group_targets import GroupTargets
from kafscale.groups.lag import ConsumerLag
from kafscale.groups.lag_seeding import LagSeeding
from kafscale.groups.loaded_groups import GroupPolicies
from kafscale.groups.modern.topics import KnownTopic
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.share.share_group import SharePolicy
from kafscale.groups.share.starts import StoredStarts
from kafscale.groups.states import GroupState
from kafscale.groups.stored_bytes import StoredGroup
from kafscale.groups.stored_counting import StoredCounting
from kafscale.groups.stored_limits import StoredLimits
from kafscale.groups.totals import GroupTotals
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

logger = logging.getLogger(__name__)

_LOADS_AT_ONCE = 8
_CACHED_POLICIES = 64
_RETRY_DELAY_SEC = 0.2


def unknown_group(group_id: str) -> KafkaError:
    """The error for a group that does not exist."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group '{quoted(group_id)}'")


def _unknown_topic(name: str) -> None:
    """No view: nothing is known of a topic but what the store has."""


class GroupShards:
    """Shards by number. `now_ms` is a clock of Unix milliseconds that never goes back.

    `lag` receives what is committed and removed, and what was committed before. `on_lost` is called with each
    shard that this broker coordinates no longer, without having resigned. `share_starts`: None if this broker serves
    no share groups. `known_topic`: see `TopicsOfGroups`.
    """

    def __init__(
        self,
        store: MetadataStore,
        coordination: Coordination,
        settings: Settings,
        metrics: GroupMetrics,
        now_ms: Callable[[], int],
        lag: ConsumerLag | None = None,
        on_lost: Callable[[int], None] = lambda shard: None,
        failures: Counter[str] | None = None,
        group_configs: GroupConfigs | None = None,
        share_starts: StoredStarts | None = None,
        known_topic: KnownTopic = _unknown_topic,
    ) -> None:
        self.totals = GroupTotals()
        self.limits = StoredLimits(
            group_offset_bytes=settings.group_offsets_max_bytes, all_bytes=settings.groups_stored_max_bytes
        )
        self._on_lost = on_lost
        self._write_timeout_sec = settings.offsets_commit_timeout_ms / 1000
        self._store = store
        self._coordination = coordination
        classic_policy = GroupPolicy(
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
        )
        self.policies = GroupPolicies(
            classic_policy,
            _consumer_policies(settings, group_configs, classic_policy),
            partial(_share_policy, settings, group_configs),
        )
        self._targets = GroupTargets(store, known_topic, share_starts, metrics, now_ms)
        self._metrics = metrics
        self._now_ms = now_ms
        self._lag = lag
        self._lag_seeding = None if lag is None else LagSeeding(lag, store, failures=failures)
        self._counting = StoredCounting(store, self._lag_is_read, failures=failures)
        self._shards: dict[int, GroupShard] = {}
        self._markers: dict[int, ShardMarkers] = {}
        self._marker_failures = ItemFailures(BackgroundWork.GROUP_MARKERS, failures)
        self._stopped_markers: set[ShardMarkers] = set()
        self._loading: set[int] = set()
        self._resigned_early: set[int] = set()
        self._stopping = False

    async def claim(self, shards: Iterable[int]) -> None:
        """Claim those of the shards that no broker owns, and return once their groups are loaded.

        Retries while the store is unavailable. Groups whose records cannot be read are in quarantine
        (`GroupShard.unreadable`). Raises `LeaseEndedError`.
        """
        wanted = set(shards)
        self._loading |= wanted
        try:
            await self._claim(wanted)
        finally:
            self._loading -= wanted
            self._resigned_early -= wanted

    async def _claim(self, wanted: set[int]) -> None:
        at_once = asyncio.Semaphore(_LOADS_AT_ONCE)

        async def load(shard: GroupShard) -> None:
            async with at_once:
                await self._load(shard)
            if shard.shard in self._resigned_early:
                self._unload(shard)
                await self._markers_stopped()
                await shard.close()
                return
            self._shards[shard.shard] = shard
            self._loading.discard(shard.shard)

        claimed = await self._coordination.claim(wanted)
        self._loading -= wanted - {one.shard for one in claimed}
        loaded = [
            GroupShard(
                self._store,
                one,
                self.policies,
                self._write_timeout_sec,
                self._now_ms,
                self._lose,
                self.totals,
                self._metrics,
                self._lag,
                self._check_record,
                self._targets,
                self.share_room,
            )
            for one in claimed
        ]
        for shard in loaded:
            # Before its markers are read: none that is put from then on is missed.
            self._markers[shard.shard] = ShardMarkers(shard, self._store, self._marker_failures)
        await asyncio.gather(*(load(shard) for shard in loaded))
        kept = [shard for shard in loaded if self._shards.get(shard.shard) is shard]
        if self._lag_seeding is not None:
            self._lag_seeding.add(kept)
        self._counting.add(kept)

    async def _lag_is_read(self) -> None:
        if self._lag_seeding is not None:
            await self._lag_seeding.settled()

    def _check_record(self, growth: int) -> None:
        self.limits.check_record(self.totals.stored, self.shard_count, growth)

    def share_room(self, group: StoredGroup) -> int:
        """How many bytes more a share group may have of its partitions."""
        return self.limits.share_room(group, self.totals.stored, self.shard_count)

    async def _load(self, shard: GroupShard) -> None:
        for load in (shard.load, self._markers[shard.shard].load):
            while True:
                try:
                    await load()
                    break
                except StoreError as problem:
                    logger.warning("could not load groups, trying again", extra={"problem": str(problem)})
                await asyncio.sleep(_RETRY_DELAY_SEC)

    async def markers_put(self, shard: int, markers: Sequence[KeyValue], revision: int) -> None:
        """Markers of a shard's groups that the store has at this revision, or that were put up to it."""
        if shard in self._markers:
            await self._markers[shard].put(markers, revision)

    async def markers_settled(self) -> None:
        """Wait until the markers of now are applied."""
        await asyncio.gather(*(markers.settled() for markers in tuple(self._markers.values())))

    def _stop_markers(self, shard: GroupShard) -> None:
        """Before the shard is unloaded: from then on its groups are another broker's."""
        markers = self._markers.get(shard.shard)
        if markers is not None and markers.shard is shard:
            del self._markers[shard.shard]
            markers.stop()
            self._stopped_markers = {one for one in self._stopped_markers if one.is_busy} | {markers}

    async def _markers_stopped(self) -> None:
        await asyncio.gather(*(markers.close() for markers in self._stopped_markers))

    def _unload(self, shard: GroupShard) -> None:
        self._stop_markers(shard)
        shard.unload()

    def _lose(self, shard: GroupShard) -> None:
        held = self._shards.get(shard.shard) is shard
        if held:
            del self._shards[shard.shard]
        self._unload(shard)
        if held:
            self._on_lost(shard.shard)

    @property
    def shard_count(self) -> int:
        """The number of shards that this broker coordinates."""
        return len(self._shards)

    def coordinates(self, number: int) -> bool:
        """True if this broker coordinates the shard."""
        return number in self._shards

    async def resign(self, numbers: Iterable[int]) -> None:
        """Resign these shards; returns once another broker can claim them.

        Waiting and later requests get NOT_COORDINATOR. Writes in flight are finished, within their time limit. A
        shard that is being claimed or loaded is resigned as soon as that is done.
        """
        numbers = tuple(numbers)
        self._resigned_early.update(self._loading.intersection(numbers))
        leaving = [self._shards.pop(number) for number in numbers if number in self._shards]
        for shard in leaving:
            self._unload(shard)
        await self._markers_stopped()
        await asyncio.gather(*(shard.flush() for shard in leaving), return_exceptions=True)
        await asyncio.gather(*(shard.close() for shard in leaving))
        await self._coordination.release({shard.shard: shard.claimed_revision for shard in leaving})

    async def release_stale(self, numbers: Iterable[int]) -> None:
        """Release shards whose coordinator key is under this broker's lease although it does not coordinate them."""
        await self._coordination.release_stale(numbers)

    def refuse_requests(self) -> None:
        """Answer waiting and later requests with NOT_COORDINATOR: clients look for the coordinator again."""
        self._stopping = True
        for shard in self._shards.values():
            self._unload(shard)

    async def close(self) -> None:
        """Finish the writes in flight, within their time limit, then give all resources back."""
        self.refuse_requests()
        await self._counting.close()
        if self._lag_seeding is not None:
            await self._lag_seeding.close()
        await self._markers_stopped()
        shards = tuple(self._shards.values())
        flushes = (shard.flush() for shard in shards)
        await asyncio.gather(*flushes, return_exceptions=True)
        await asyncio.gather(*(shard.close() for shard in shards))
        self._shards.clear()

    def shard(self, group_id: str) -> GroupShard:
        """The shard of the group.

        Raises `KafkaError` NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, and COORDINATOR_NOT_AVAILABLE for a
        group whose record cannot be read.
        """
        number = keys.shard_of(group_id)
        shard = self._shards.get(number)
        if shard is not None and not self._stopping:
            if group_id in shard.unreadable:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"the record of group '{quoted(group_id)}' cannot be read",
                )
            return shard
        if number in self._loading and not self._stopping:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being loaded")
        raise KafkaError(ErrorCode.NOT_COORDINATOR, "another broker coordinates this group")

    def group(self, group_id: str) -> RunningGroup | None:
        """The group, or None. Raises as `shard` does."""
        return self.shard(group_id).groups.get(group_id)

    def existing(self, group_id: str) -> RunningGroup:
        """The group. Raises as `shard` does, and GROUP_ID_NOT_FOUND."""
        running = self.group(group_id)
        if running is None or running.group.state is GroupState.DEAD:
            raise unknown_group(group_id)
        return running

    def loaded(self) -> list[GroupShard]:
        """The shards of which the groups are known."""
        return list(self._shards.values())

    def group_ids(self) -> list[str]:
        """The ids of all groups, in no order. For any thread: each dictionary is copied before it is walked."""
        return [group_id for shard in list(self._shards.values()) for group_id in list(shard.groups)]

    def all_groups(self) -> Iterator[tuple[GroupShard, RunningGroup]]:
        """Every group, with its shard. Raises `KafkaError` COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR."""
        if self._stopping:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, "this broker is stopping")
        if self._loading:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the groups are being loaded")
        for shard in tuple(self._shards.values()):
            for running in tuple(shard.groups.values()):
                yield shard, running


def _consumer_policies(
    settings: Settings, configs: GroupConfigs | None, classic: GroupPolicy
) -> Callable[[str], ConsumerPolicy]:
    """Settings, and a group's own configs where there are such."""

    @lru_cache(_CACHED_POLICIES)
    def policy(own: GroupConfig | None) -> ConsumerPolicy:
        return ConsumerPolicy(
            session_timeout_ms=own.session_timeout_ms if own else settings.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=own.heartbeat_interval_ms
            if own
            else settings.group_consumer_heartbeat_interval_ms,
            max_size=settings.group_consumer_max_size,
            assignors=tuple(str(one) for one in settings.group_consumer_assignors),
            migration=settings.group_consumer_migration_policy,
            classic=classic,
        )

    return lambda group_id: policy(None if configs is None else configs.get(group_id))


def _share_policy(settings: Settings, configs: GroupConfigs | None, group_id: str) -> SharePolicy:
    """As `_consumer_policies`."""
    own = None if configs is None else configs.share(group_id)
    return SharePolicy(
        session_timeout_ms=own.session_timeout_ms if own else settings.group_share_session_timeout_ms,
        heartbeat_interval_ms=own.heartbeat_interval_ms
        if own
        else settings.group_share_heartbeat_interval_ms,
        max_size=settings.group_share_max_size,
    )
