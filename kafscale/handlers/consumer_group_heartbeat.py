"""ConsumerGroupHeartbeat (68), versions 0 and 1: a member of the consumer protocol joins, stays, leaves (KIP-848).

v1: a regular expression of topics, and member ids that the client makes (KIP-1082).
"""

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kafscale.errors import StoreUnavailableError
from kafscale.formats.features import CONSUMER_PROTOCOL_LEVEL, FINALIZE_GROUPS_COMMAND, GROUP_VERSION
from kafscale.groups.consumer.request_checks import check_member_id
from kafscale.groups.consumer.requests import ConsumerHeartbeat
from kafscale.groups.modern.assignment import Assignment
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Assignment = ConsumerGroupHeartbeatResponse.Assignment
_Partitions = ConsumerGroupHeartbeatRequest.TopicPartitions

_NO_TOPIC_ID: Final = uuid.UUID(int=0)


async def handle(
    broker: "Broker", request: "RequestContext", message: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    """The member's epoch and, where it changed, what it is to have; waits for what must be durable first."""
    try:
        check_protocol(broker)
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        names = message.subscribed_topic_names
        if names and await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, names):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        check_member_id(message.member_id, request.api_version)
        heartbeat = await _heartbeat(request, message)
        async with store_deadline():
            answer = await broker.groups.consumer_heartbeat(heartbeat)
    except StoreUnavailableError as problem:
        return _refused(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)))
    except KafkaError as refusal:
        return _refused(refusal)
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        member_id=answer.member_id,
        member_epoch=answer.member_epoch,
        heartbeat_interval_ms=answer.heartbeat_interval_ms,
        assignment=None if answer.assignment is None else await _assignment(answer.assignment),
    )


def check_protocol(broker: "Broker") -> None:
    """Raises `KafkaError` UNSUPPORTED_VERSION while the cluster has brokers that know no such groups."""
    if broker.view.feature_level(GROUP_VERSION) < CONSUMER_PROTOCOL_LEVEL:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"this cluster has no groups of the consumer protocol yet: run `{FINALIZE_GROUPS_COMMAND}`",
        )


def _refused(refusal: KafkaError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=refusal.code,
        error_message=refusal.message or None,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


async def _heartbeat(request: "RequestContext", message: ConsumerGroupHeartbeatRequest) -> ConsumerHeartbeat:
    names = message.subscribed_topic_names
    return ConsumerHeartbeat(
        group_id=message.group_id,
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        subscribed_topic_names=None if names is None else tuple(names),
        subscribed_topic_regex=message.subscribed_topic_regex,
        server_assignor=message.server_assignor,
        owned=None if message.topic_partitions is None else await _owned(message.topic_partitions),
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",  # as Java prints an address, and Kafka's tools show it
        may_describe=_may_describe(request),
    )


def _may_describe(request: "RequestContext") -> Callable[[str], bool]:
    """Of topics that the client did not name: what it may not know of is left out without a report."""
    access = request.access
    return lambda name: access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name, quiet=True)


async def _owned(topics: Sequence[_Partitions]) -> Assignment:
    owned: dict[uuid.UUID, set[int]] = {}
    async for topic in in_turns(topics):
        if topic.partitions:
            owned.setdefault(topic.topic_id or _NO_TOPIC_ID, set()).update(topic.partitions)
    return {topic_id: frozenset(partitions) for topic_id, partitions in owned.items()}


async def _assignment(assignment: Assignment) -> _Assignment:
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            async for topic_id, partitions in in_turns(assignment.items())
        ]
    )
