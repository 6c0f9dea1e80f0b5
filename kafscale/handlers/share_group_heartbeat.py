"""ShareGroupHeartbeat (76), version 1: a member of a share group joins, stays, leaves (KIP-932)."""

from typing import TYPE_CHECKING

from kafscale.errors import StoreUnavailableError
from kafscale.formats.features import FINALIZE_SHARE_GROUPS_COMMAND, SHARE_GROUPS_LEVEL, SHARE_VERSION
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.share.requests import ShareHeartbeat
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Assignment = ShareGroupHeartbeatResponse.Assignment


async def handle(
    broker: "Broker", request: "RequestContext", message: ShareGroupHeartbeatRequest
) -> ShareGroupHeartbeatResponse:
    """The member's epoch and, where it changed, what it is to read; waits for what must be durable first."""
    try:
        check_protocol(broker)
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        names = message.subscribed_topic_names
        if names and await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, names):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        heartbeat = ShareHeartbeat(
            group_id=message.group_id,
            member_id=message.member_id,
            member_epoch=message.member_epoch,
            rack_id=message.rack_id,
            subscribed_topic_names=None if names is None else tuple(names),
            client_id=request.client_id or "",
            client_host=f"/{request.client_host}",  # as Java prints an address, and Kafka's tools show it
        )
        async with store_deadline():
            answer = await broker.groups.share_heartbeat(heartbeat)
    except StoreUnavailableError as problem:
        return _refused(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)))
    except KafkaError as refusal:
        return _refused(refusal)
    return ShareGroupHeartbeatResponse(
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
    if broker.view.feature_level(SHARE_VERSION) < SHARE_GROUPS_LEVEL:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"this cluster has no share groups yet: run `{FINALIZE_SHARE_GROUPS_COMMAND}`",
        )


def _refused(refusal: KafkaError) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=refusal.code,
        error_message=refusal.message or None,
        member_id=None,
        member_epoch=0,
        heartbeat_interval_ms=0,
        assignment=None,
    )


async def _assignment(assignment: Assignment) -> _Assignment:
    return _Assignment(
        topic_partitions=[
            _Assignment.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            async for topic_id, partitions in in_turns(assignment.items())
        ]
    )
