"""The group coordinator: finds the group of a request, lets it decide, and writes what must be durable."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from kafscale.cluster.view import ClusterView
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.classic_groups import ClassicGroups
from kafscale.groups.commits import OffsetCommits
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.coordinator import ConsumerGroups
from kafscale.groups.consumer.members import epoch_error
from kafscale.groups.consumer.requests import ConsumerHeartbeat, DescribedConsumerGroup, HeartbeatAnswer
from kafscale.groups.effects import Decided
from kafscale.groups.events import (
    Remove,
)
from kafscale.groups.group import Group
from kafscale.groups.lag import LogEndOffset
from kafscale.groups.offsets import (
    GroupOffsets,
    TopicPartition,
    of_existing_topics,
    read_offsets,
    read_pending,
)
from kafscale.groups.participation import Participation
from kafscale.groups.request_limits import check_group_id, check_named
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shard import GroupShard
from kafscale.groups.shard_writer import fenced
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.coordinator import ShareGroups
from kafscale.groups.share.offsets import ShareOffsets
from kafscale.groups.share.requests import DescribedShareGroup, ShareHeartbeat, ShareHeartbeatAnswer
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from kafscale.groups.transactional_commits import Committer, TransactionalCommits
from kafscale.metadata.store import MetadataStore
from kafscale.ops.metrics import GroupMetrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings

_COORDINATED_ELSEWHERE = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _led_elsewhere(topic: str, index: int) -> int | None:
    """The log end offset of a partition that this broker does not lead: the store has it."""
    return None


class GroupCoordinator:
    """The groups whose shards this broker coordinates.

    Every method raises `KafkaError` for errors of the request as a whole: NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE (the store is unavailable), INVALID_GROUP_ID.
    `now_ms` is a clock of Unix milliseconds that never goes back. `log_end_offset`: of partitions that this broker
    leads, for the lag of share groups.
    """

    def __init__(
        self,
        shards: GroupShards,
        store: MetadataStore,
        view: ClusterView,
        settings: Settings,
        metrics: GroupMetrics,
        now_ms: Callable[[], int],
        participation: Participation,
        log_end_offset: LogEndOffset = _led_elsewhere,
    ) -> None:
        self._shards = shards
        self._store = store
        self._settings = settings
        self._now_ms = now_ms
        self.classic = ClassicGroups(shards, settings, now_ms)
        self.consumers = ConsumerGroups(shards, view, settings, now_ms)
        self.shares = ShareGroups(shards, view, settings, now_ms)
        self.share_offsets = ShareOffsets(shards, store, view, settings, now_ms, log_end_offset)
        self._commits = OffsetCommits(shards, store, view, metrics, now_ms)
        self._transactional = TransactionalCommits(shards, store, participation, metrics, now_ms)

    # Members

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat: see `ConsumerGroups.heartbeat`."""
        return await self.consumers.heartbeat(request)

    def describe_consumer(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe. Raises GROUP_ID_NOT_FOUND."""
        return self.consumers.describe(group_id)

    async def share_heartbeat(self, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """ShareGroupHeartbeat: see `ShareGroups.heartbeat`."""
        return await self.shares.heartbeat(request)

    def describe_share(self, group_id: str) -> DescribedShareGroup:
        """ShareGroupDescribe. Raises GROUP_ID_NOT_FOUND."""
        return self.shares.describe(group_id)

    # Offsets

    async def commit(
        self,
        group_id: str,
        *,
        member_id: str,
        group_instance_id: str | None,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        knows_member_epochs: bool = False,
    ) -> ErrorCode:
        """OffsetCommit: NONE once every offset is durable. Creates the group, without members, if there is none.

        `generation`: in a consumer group the member's epoch. `knows_member_epochs`: see `Commit`.

        Raises INVALID_COMMIT_OFFSET_SIZE as well, and `PartlyCommittedError`.
        """
        shard = self._shards.shard(group_id)
        running = self._committing(shard, group_id, generation)
        if running is None:
            return ErrorCode.GROUP_ID_NOT_FOUND if knows_member_epochs else ErrorCode.ILLEGAL_GENERATION
        return await self._commits.commit(
            shard,
            running,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation=generation,
            offsets=offsets,
            knows_member_epochs=knows_member_epochs,
        )

    def _committing(self, shard: GroupShard, group_id: str, generation: int) -> RunningGroup | None:
        """The group that a client commits to; a new one for a client outside the group, None for a member."""
        running = shard.groups.get(group_id)
        if running is None and generation < 0:
            running = self.classic.create_for_commits(shard, group_id)
        return running

    async def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> ErrorCode:
        """TxnOffsetCommit: NONE once every offset is durable, to be visible when the transaction is committed.

        Creates the group as `commit` does. Raises INVALID_COMMIT_OFFSET_SIZE as well, INVALID_PRODUCER_EPOCH,
        INVALID_TXN_STATE, and what `Participation.check` raises.
        """
        check_named(group_id)
        check_group_id(group_id)
        shard = self._shards.shard(group_id)

        def find_group() -> RunningGroup | None:
            if self._shards.shard(group_id) is not shard:
                raise fenced(shard.shard)
            return self._committing(shard, group_id, committer.generation)

        return await self._transactional.commit(shard, group_id, committer, offsets, find_group)

    async def fetch_offsets(
        self, group_id: str, *, require_stable: bool, member_id: str | None = None, member_epoch: int = -1
    ) -> GroupOffsets:
        """OffsetFetch: every offset of the group; `require_stable` waits for commits in flight here.

        Every broker answers it: the store has all acknowledged commits, of any coordinator (decision 0037), and what
        is pending. That is read first: an offset that becomes visible meanwhile is then in one of the two.
        """
        try:
            shard = self._shards.shard(group_id)
            self._check_reader(shard.groups.get(group_id), member_id, member_epoch)
            if require_stable:
                await shard.flush()
        except KafkaError as refusal:
            if refusal.code not in _COORDINATED_ELSEWHERE:
                raise
        pending = await read_pending(self._store, group_id) if require_stable else {}
        offsets = await of_existing_topics(self._store, await read_offsets(self._store, group_id))
        unstable = await of_existing_topics(self._store, pending) if pending else {}
        return GroupOffsets(offsets, frozenset(unstable))

    def _check_reader(self, running: RunningGroup | None, member_id: str | None, member_epoch: int) -> None:
        """A consumer group's member reads at its epoch only: what it had may be another's. Others always may."""
        if running is None:
            return
        check_has_offsets(running.group)
        if not isinstance(running.group, ConsumerGroup) or member_id is None:
            return
        error_code = epoch_error(running.group, member_id, member_epoch)
        if error_code is not ErrorCode.NONE:
            raise KafkaError(error_code, f"'{quoted(member_id)}' is no member at epoch {member_epoch}")

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """OffsetDelete. Raises GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP unless the members are consumers."""
        check_named(group_id)
        running = self._shards.existing(group_id)
        group = running.group
        check_has_offsets(group)
        subscribed: frozenset[str] | None = frozenset()
        if group.state is not GroupState.EMPTY:
            if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group '{quoted(group_id)}' has members")
            subscribed = subscribed_topics(group)
        results = {
            partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if subscribed is None or partition[0] in subscribed
            else ErrorCode.NONE
            for partition in partitions
        }
        deleted = [one for one, error_code in results.items() if error_code is ErrorCode.NONE]
        await self._shards.shard(group_id).delete_offsets(running, deleted, pending_too=True)
        return results

    # Groups

    def describe(self, group_id: str) -> Group | None:
        """The classic group, to read from, or None."""
        running = self._shards.group(group_id)
        return running.group if running is not None and isinstance(running.group, Group) else None

    def has(self, group_id: str) -> bool:
        """True if there is a group of this id, of any type."""
        running = self._shards.group(group_id)
        return running is not None and running.group.state is not GroupState.DEAD

    def any_group(self, group_id: str) -> AnyGroup | None:
        """The group of any type, to read from, or None."""
        running = self._shards.group(group_id)
        return None if running is None else running.group

    def group_ids(self) -> list[str]:
        """The ids of the groups that this broker coordinates, in no order. For any thread."""
        return self._shards.group_ids()

    def groups(self) -> Iterable[AnyGroup]:
        """Every group that this broker coordinates."""
        return [running.group for _, running in self._shards.all_groups()]

    async def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups: NONE once the group and its offsets are gone from the store."""
        running = self._shards.existing(group_id)
        reply_id = running.next_reply_id()
        event = Remove(now_ms=self._now_ms(), reply_id=reply_id)
        error_code = cast(Decided, running.decide(event, reply_id)).error_code
        if error_code is ErrorCode.NONE:
            await self._shards.shard(group_id).delete_group(running)
        return error_code


def check_has_offsets(group: AnyGroup) -> None:
    """Raises `KafkaError` GROUP_ID_NOT_FOUND for a share group: where it reads is no committed offset."""
    if isinstance(group, ShareGroup):
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group.group_id)} is not a consumer group."
        )
