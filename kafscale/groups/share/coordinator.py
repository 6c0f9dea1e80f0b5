"""Share groups (KIP-932) of the shards that this broker coordinates: heartbeats and descriptions."""

from collections.abc import Callable, Iterable

from kafscale.cluster.view import ClusterView
from kafscale.formats.share_start_record import ShareStartRecord
from kafscale.groups.modern.admission import Admission
from kafscale.groups.modern.events import JOINS
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.events import ShareHeartbeatReceived
from kafscale.groups.share.request_checks import check_share_heartbeat
from kafscale.groups.share.requests import (
    DescribedShareGroup,
    DescribedShareMember,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
)
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.share.stored_size import partition_size
from kafscale.groups.states import GroupState
from kafscale.metadata.keys import SharePartitionId
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings


class ShareGroups:
    """The coordinator's part for share groups.

    Every method raises `KafkaError` NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID.
    """

    def __init__(
        self, shards: GroupShards, view: ClusterView, settings: Settings, now_ms: Callable[[], int]
    ) -> None:
        self._shards = shards
        self._view = view
        self._admission = Admission(shards, settings)
        self._now_ms = now_ms

    async def heartbeat(self, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        """ShareGroupHeartbeat: returns when all that the answer says is durable.

        Raises what `check_share_heartbeat` does, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        GROUP_MAX_SIZE_REACHED, and COORDINATOR_NOT_AVAILABLE if the metadata store does not answer in time.
        """
        check_share_heartbeat(request)
        running = self._running(request)
        try:
            return await self._heartbeat(running, request)
        finally:
            # Of a request that was refused nothing stays, not even the group that was made for it.
            running.remove_if_unused()

    async def _heartbeat(self, running: RunningGroup, request: ShareHeartbeat) -> ShareHeartbeatAnswer:
        group, names = running.group, request.subscribed_topic_names
        assert isinstance(group, ShareGroup)
        self._admission.check_memory(group, request.member_id, request.member_epoch, names)
        if request.member_epoch >= JOINS:
            self._check_room(running, group, names or ())
        group.policy = self._shards.policies.share(request.group_id)
        reply_id = running.next_reply_id()
        event = ShareHeartbeatReceived(
            now_ms=self._now_ms(),
            reply_id=reply_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            subscribed_topic_names=None if names is None else frozenset(names),
            client_id=request.client_id,
            client_host=request.client_host,
        )
        answer = await self._admission.ask(running, event, reply_id)
        return ShareHeartbeatAnswer(
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=group.policy.heartbeat_interval_ms if answer.member_epoch >= JOINS else 0,
            assignment=answer.assignment,
        )

    def _check_room(self, running: RunningGroup, group: ShareGroup, names: Iterable[str]) -> None:
        """Raises `KafkaError` GROUP_MAX_SIZE_REACHED if there is no room for the partitions of these topics.

        By what this broker knows of the topics, and as if what the group has were of them: a group that needs no more
        is never refused. What has no room all the same is not assigned (`machine.starts_initialized`).
        """
        stored, subscribed = running.stored, group.subscribed_topics()
        if not stored.has_shares or subscribed.issuperset(names):
            return
        start = ShareStartRecord(state_epoch=0, changed_ms=0)
        needed = -stored.share_bytes
        for name in subscribed.union(names):
            topic = self._view.topic(name)
            if topic is not None:
                place = SharePartitionId(group.group_id, topic.topic_id, 0)
                needed += topic.partition_count * partition_size(place, start)
        room = self._shards.share_room(stored)
        if needed > room:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the partitions of these topics take {needed} bytes more of the metadata store, and the share group "
                f"has room for {room}: KAFSCALE_GROUP_OFFSETS_MAX_BYTES is the limit of a group, "
                "KAFSCALE_GROUPS_STORED_MAX_BYTES that of all",
            )

    def _running(self, request: ShareHeartbeat) -> RunningGroup:
        """The group of the request; a new one for the first member. An empty group of another type stays one."""
        running = self._admission.find(request.group_id)
        if running is None:
            if request.member_epoch != JOINS:
                what = "Share group" if request.member_epoch > JOINS else "Group"  # as Kafka
                raise not_found(request.group_id, what)
            self._admission.check_new_group()
            return self._shards.shard(request.group_id).create_share(request.group_id)
        check_type(running)
        return running

    def describe(self, group_id: str) -> DescribedShareGroup:
        """ShareGroupDescribe. Raises GROUP_ID_NOT_FOUND."""
        running = self._shards.group(group_id)
        if running is None or running.group.state is GroupState.DEAD:
            raise not_found(group_id)
        group = check_type(running)
        return DescribedShareGroup(
            group_id=group_id,
            state=group.state.value,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.ASSIGNOR,
            members=tuple(
                DescribedShareMember(
                    member_id=member.member_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=member.subscribed_topic_names,
                    assignment=member.assigned,
                )
                for member in group.members.values()
            ),
        )


def check_type(running: RunningGroup) -> ShareGroup:
    """The share group. Raises `KafkaError` GROUP_ID_NOT_FOUND for a group of another type."""
    group = running.group
    if isinstance(group, ShareGroup):
        return group
    raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group.group_id)} is not a share group.")


def not_found(group_id: str, what: str = "Group") -> KafkaError:
    """GROUP_ID_NOT_FOUND, in Kafka's words."""
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {quoted(group_id)} not found.")
