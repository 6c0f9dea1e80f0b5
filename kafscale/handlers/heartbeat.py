"""Heartbeat (12), versions 0 to 4: a member stays alive, and learns whether it must join again.

v1: throttle time. v3: static members (KIP-345). v4: flexible.
"""

from typing import TYPE_CHECKING

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import HeartbeatRequest, HeartbeatResponse
from kafscale.protocol.error_codes import KafkaError
from kafscale.serving.authorization import check_access

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


def handle(broker: "Broker", request: "RequestContext", message: HeartbeatRequest) -> HeartbeatResponse:
    """Answer at once; nothing is written."""
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        code = broker.groups.classic.heartbeat(
            message.group_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            generation=message.generation_id,
        )
    except KafkaError as refusal:
        code = refusal.code
    return HeartbeatResponse(throttle_time_ms=0, error_code=code)
