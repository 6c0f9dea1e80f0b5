"""Consumer groups (KIP-848) of the shards that this broker coordinates: heartbeats and descriptions."""

import uuid
from collections.abc import Callable

from kafscale.cluster.view import ClusterView
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.events import ConsumerHeartbeatReceived, RegexResolved
from kafscale.groups.consumer.request_checks import check_heartbeat
from kafscale.groups.consumer.requests import (
    ConsumerHeartbeat,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    HeartbeatAnswer,
)
from kafscale.groups.consumer.topic_regex import TopicRegex, resolve
from kafscale.groups.effects import Heartbeated
from kafscale.groups.group import Group
from kafscale.groups.modern.admission import Admission
from kafscale.groups.modern.events import JOINS
from kafscale.groups.running_group import RunningGroup
from kafscale.groups.shards import GroupShards
from kafscale.groups.share.share_group import ShareGroup
from kafscale.groups.states import GroupState
from kafscale.groups.upgrading import check_room, check_upgrade
from kafscale.metadata import keys
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.settings.broker import Settings
from kafscale.tasks.thread_turns import ThreadTurns


class ConsumerGroups:
    """The coordinator's part for groups of the consumer protocol.

    Every method raises `KafkaError` NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, INVALID_GROUP_ID.
    """

    def __init__(
        self, shards: GroupShards, view: ClusterView, settings: Settings, now_ms: Callable[[], int]
    ) -> None:
        self._shards = shards
        self._view = view
        self._admission = Admission(shards, settings)
        self._now_ms = now_ms
        self._turns = ThreadTurns()

    async def heartbeat(self, request: ConsumerHeartbeat) -> HeartbeatAnswer:
        """ConsumerGroupHeartbeat: returns when all that the answer says is durable.

        Raises what `check_heartbeat` does, GROUP_ID_NOT_FOUND, UNKNOWN_MEMBER_ID, FENCED_MEMBER_EPOCH,
        FENCED_INSTANCE_ID, UNRELEASED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, INVALID_REGULAR_EXPRESSION, and
        COORDINATOR_NOT_AVAILABLE if the metadata store does not answer in time.
        """
        check_heartbeat(request, self._shards.policies.consumer(request.group_id).assignors)
        regex = request.subscribed_topic_regex
        compiled = TopicRegex(regex) if regex else None
        running = self._running(request)
        try:
            return await self._heartbeat(running, request, compiled)
        finally:
            # Of a request that was refused nothing stays, not even the group that was made for it.
            running.remove_if_unused()

    async def _heartbeat(
        self, running: RunningGroup, request: ConsumerHeartbeat, compiled: TopicRegex | None
    ) -> HeartbeatAnswer:
        self._admission.check_memory(
            running.group, request.member_id, request.member_epoch, request.subscribed_topic_names
        )
        if isinstance(running.group, Group):
            await self._upgrade(running, request)
        group = running.group
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group has changed meanwhile")
        resolved = await self._resolved(running, group, compiled, request)
        if running.group is not group or self._shards.group(request.group_id) is not running:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was replaced meanwhile")
        group.policy = self._shards.policies.consumer(request.group_id)
        answer = await self._ask(running, request, resolved)
        goes_on = answer.member_epoch >= JOINS
        return HeartbeatAnswer(
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=group.policy.heartbeat_interval_ms if goes_on else 0,
            assignment=answer.assignment,
        )

    async def _resolved(
        self,
        running: RunningGroup,
        group: ConsumerGroup,
        own: TopicRegex | None,
        request: ConsumerHeartbeat,
    ) -> frozenset[str] | None:
        """Resolve the request's regular expression, and those of the group that may match other topics by now."""
        version = group.topics_version
        try:
            resolved = None if own is None else await self._matching(own, request)
            for regex in group.stale_regexes():
                topic_names = await self._matching(TopicRegex(regex), request)
                running.notify(RegexResolved(now_ms=self._now_ms(), regex=regex, topic_names=topic_names))
        except BaseException:
            group.resolve_again()
            raise
        if group.topics_version != version:
            # Some topics came or went meanwhile: the next heartbeat looks again.
            group.resolve_again()
        return resolved

    async def _ask(
        self, running: RunningGroup, request: ConsumerHeartbeat, resolved: frozenset[str] | None
    ) -> Heartbeated:
        names = request.subscribed_topic_names
        reply_id = running.next_reply_id()
        event = ConsumerHeartbeatReceived(
            now_ms=self._now_ms(),
            reply_id=reply_id,
            member_id=request.member_id or str(uuid.uuid4()),
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            subscribed_topic_names=None if names is None else frozenset(names),
            subscribed_topic_regex=request.subscribed_topic_regex,
            resolved=resolved,
            server_assignor=request.server_assignor,
            owned=request.owned,
            client_id=request.client_id,
            client_host=request.client_host,
        )
        return await self._admission.ask(running, event, reply_id)

    def _running(self, request: ConsumerHeartbeat) -> RunningGroup:
        """The group of the request; a new one for the first member."""
        group_id, joins = request.group_id, request.member_epoch == JOINS
        shard = self._shards.shard(group_id)
        running = self._admission.find(group_id)
        if running is None:
            if not joins:
                raise _not_found(group_id, "not found")
            self._admission.check_new_group()
            return shard.create_consumer(group_id)
        if isinstance(running.group, ConsumerGroup):
            return running
        if not joins or isinstance(running.group, ShareGroup):
            raise _not_found(group_id, "is not a consumer group")
        if running.group.state is GroupState.EMPTY:
            shard.replace_empty(running, by_consumer=True)
        else:
            check_upgrade(running.group, self._shards.policies.consumer(group_id))
        return running

    async def _upgrade(self, running: RunningGroup, request: ConsumerHeartbeat) -> None:
        """Make the classic group, which has members, a consumer group that the member can join."""
        shards = self._shards

        def check(consumer: ConsumerGroup) -> None:
            if (
                len(consumer.members) >= consumer.policy.max_size
                and request.member_id not in consumer.members
            ):
                raise KafkaError(
                    ErrorCode.GROUP_MAX_SIZE_REACHED,
                    "The consumer group has reached its maximum capacity of "
                    f"{consumer.policy.max_size} members.",
                )
            shards.limits.check_record(shards.totals.stored, shards.shard_count, check_room(consumer))

        await shards.shard(request.group_id).upgrade(running, check)

    async def _matching(self, regex: TopicRegex, request: ConsumerHeartbeat) -> frozenset[str]:
        """The topics that the client may know of and that match; those whose records cannot be read, too."""
        names = dict.fromkeys(topic.name for topic in self._view.topics())
        names.update(dict.fromkeys(self._view.unreadable.names(keys.TOPICS)))
        return await resolve(regex, [one for one in names if request.may_describe(one)], self._turns)

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe. Raises GROUP_ID_NOT_FOUND."""
        running = self._shards.group(group_id)
        if running is None or running.group.state is GroupState.DEAD:
            raise _not_found(group_id, "not found")
        group = running.group
        if not isinstance(group, ConsumerGroup):
            raise _not_found(group_id, "is not a consumer group")
        return DescribedConsumerGroup(
            group_id=group_id,
            state=group.state.value,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.assignor,
            members=tuple(
                DescribedConsumerMember(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=member.subscribed_topic_names,
                    subscribed_topic_regex=member.subscribed_topic_regex,
                    assignment=member.assigned,
                    target_assignment=group.target_of(member.member_id),
                    is_classic=member.classic is not None,
                )
                for member in group.members.values()
            ),
        )


def _not_found(group_id: str, problem: str) -> KafkaError:
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} {problem}.")
