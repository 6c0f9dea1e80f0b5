"""The expiry of committed offsets: of groups that are unused for long (KIP-211), and of deleted topics."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from kafscale.cluster.stored_topics import stored_topics
from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.events import Remove
from kafscale.groups.offsets import TopicPartition, expires_at_ms, read_offsets, readable_topics
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.cleaning import delete_of_gone_topics
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.groups.subscription import subscribed_topics
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings
from kafscale.tasks.owner import TaskOwner

logger = logging.getLogger(__name__)

_MS_PER_MINUTE = 60_000


class OffsetExpiry:
    """Checks the groups periodically, and reads only those in which an offset may have expired."""

    def __init__(
        self,
        shards: GroupShards,
        store: MetadataStore,
        view: ClusterView,
        settings: Settings,
        now_ms: Callable[[], int],
        failures: Counter[str] | None = None,
    ) -> None:
        self._shards = shards
        self._store = store
        self._retention_ms = settings.offsets_retention_minutes * _MS_PER_MINUTE
        self._interval_sec = settings.offsets_retention_check_interval_ms / 1000
        self._now_ms = now_ms
        self._failures = ItemFailures(BackgroundWork.OFFSET_EXPIRY, failures)
        self._topics_went = False
        self._view = view
        self._unsubscribe = view.subscribe(self._topic_changed)
        self._tasks = TaskOwner()

    def start(self) -> None:
        """Start the periodic checks."""
        self._tasks.spawn(self._run(), "offset expiry")

    async def close(self) -> None:
        """Stop the checks."""
        self._unsubscribe()
        await self._tasks.close()

    def _topic_changed(self, before: object, after: object) -> None:
        self._topics_went = self._topics_went or after is None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_sec)
            try:
                await self.check()
            except KafkaError as problem:
                logger.info("looking for expired offsets later", extra={"problem": str(problem)})
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report("all groups", problem)

    async def check(self) -> None:
        """Delete the offsets that have expired, and groups that have none left."""
        groups = list(self._shards.all_groups())
        if self._topics_went:
            self._topics_went = False
            for _, running in groups:
                running.expiry_check_at_ms = 0
        await self._check_share_groups(groups)
        for shard, running in groups:
            if isinstance(running.group, ShareGroup):
                continue  # It has no offsets, and stays until it is deleted, as in Kafka.
            if running.expiry_check_at_ms <= self._now_ms() and shard.has(running):
                try:
                    await self._check_group(shard, running)
                except (KafkaError, StoreError, CorruptDataError) as problem:
                    running.expiry_check_at_ms = 0
                    fields = {
                        "group": quoted(running.group.group_id),
                        "problem": quoted(str(problem), 500),
                    }
                    logger.warning("could not look for expired offsets", extra=fields)
                except Exception as problem:  # noqa: BLE001 - reported
                    running.expiry_check_at_ms = 0
                    self._failures.report(quoted(running.group.group_id), problem)

    async def _check_share_groups(self, groups: Iterable[tuple[GroupShard, RunningGroup]]) -> None:
        """Delete what share groups have of deleted topics."""
        now_ms = self._now_ms()
        due = [
            (shard, running)
            for shard, running in groups
            if isinstance(running.group, ShareGroup) and running.expiry_check_at_ms <= now_ms
        ]
        for _, running in due:
            running.expiry_check_at_ms = now_ms + self._retention_ms
        try:
            await delete_of_gone_topics(self._store, self._view, due)
        except (KafkaError, StoreError) as problem:
            for _, running in due:
                running.expiry_check_at_ms = 0
            fields = {"problem": quoted(str(problem), 500)}
            logger.warning("could not look for share groups' offsets of deleted topics", extra=fields)
        except Exception as problem:  # noqa: BLE001 - reported
            for _, running in due:
                running.expiry_check_at_ms = 0
            self._failures.report("share groups", problem)

    async def _check_group(self, shard: GroupShard, running: RunningGroup) -> None:
        running.touched = set()
        # An offset that cannot expire now cannot before the group has been empty for the whole retention.
        # A commit from here on that can expire sooner lowers this time.
        running.expiry_check_at_ms = self._now_ms() + self._retention_ms
        try:
            await shard.flush()
            offsets = await read_offsets(self._store, running.group.group_id)
            gone = await self._of_gone_topics(offsets)
            # Nothing is awaited between here and the writer's queue: no commit can come in between. One that
            # came before is in `touched`, unless the group was removed and another has its id now.
            if shard.has(running):
                await self._remove_expired(shard, running, offsets, gone)
        finally:
            running.touched = None

    async def _remove_expired(
        self,
        shard: GroupShard,
        running: RunningGroup,
        offsets: Mapping[TopicPartition, CommittedOffset],
        gone: Iterable[TopicPartition],
    ) -> None:
        group, now_ms = running.group, self._now_ms()
        expirations = self._expirations(group, offsets) | dict.fromkeys(gone, now_ms)
        expired = {
            keys.group_offset(group.group_id, topic, index)
            for (topic, index), at_ms in expirations.items()
            # As in Kafka, an offset stays while another is pending for its partition.
            if at_ms is not None and at_ms <= now_ms and not shard.pending.has(group.group_id, (topic, index))
        } - (running.touched or set())
        has_pending = bool(shard.pending.transactions_of(group.group_id))
        if len(expired) == len(offsets) and _may_go(running) and not has_pending:
            reply_id = running.next_reply_id()
            running.decide(Remove(now_ms=now_ms, reply_id=reply_id), reply_id)
            await shard.delete_group(running)
            logger.info("deleted an unused group", extra={"group": quoted(group.group_id)})
            return
        later = [at_ms for at_ms in expirations.values() if at_ms is not None and at_ms > now_ms]
        running.expiry_check_at_ms = min([running.expiry_check_at_ms, *later])
        if expired:
            await shard.delete_offsets(running, map(keys.offset_topic_and_partition, expired))

    def _expirations(
        self, group: AnyGroup, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, int | None]:
        subscribed = subscribed_topics(group) if group.state is GroupState.STABLE else None
        return {
            (topic, index): expires_at_ms(group, topic, committed, self._retention_ms, subscribed)
            for (topic, index), committed in offsets.items()
        }

    async def _of_gone_topics(
        self, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> list[TopicPartition]:
        """Offsets of deleted topics, by the store itself: a stale view must not cost an offset."""
        found = await stored_topics(self._store, (topic for topic, _ in offsets))
        topics = readable_topics(found)
        damaged = found.keys() - topics.keys()
        ids = {name: record.topic_id for name, record in topics.items()}
        return [
            (topic, index)
            for (topic, index), committed in offsets.items()
            if topic not in damaged and committed.topic_id != ids.get(topic)
        ]


def _may_go(running: RunningGroup) -> bool:
    group = running.group
    return (
        group.state is GroupState.EMPTY
        and not group.pending_members
        and not running.touched
        and not running.commits_in_flight
    )
