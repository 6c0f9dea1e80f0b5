"""SyncGroup (14), versions 0 to 5: a member requests its assignment; the leader's request carries all of them.

v1: throttle time. v3: static members (KIP-345). v4: flexible. v5: protocol type and name, which must be those
of the group (KIP-559).
"""

from typing import TYPE_CHECKING

from kafscale.groups.effects import Synced
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import SyncGroupRequest, SyncGroupResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_PROTOCOL = 5


async def handle(broker: "Broker", request: "RequestContext", message: SyncGroupRequest) -> SyncGroupResponse:
    """Answer with the member's part, byte for byte, once the leader's assignments are durable."""
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        synced = await _sync(broker, request, message)
    except KafkaError as refusal:
        synced = Synced(error_code=refusal.code)
    return SyncGroupResponse(
        throttle_time_ms=0,
        error_code=synced.error_code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


async def _sync(broker: "Broker", request: "RequestContext", message: SyncGroupRequest) -> Synced:
    names_protocol = message.protocol_type is not None and message.protocol_name is not None
    if request.api_version >= _FIRST_VERSION_WITH_PROTOCOL and not names_protocol:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name must not be null from version 5 on"
        )
    assigned, message.assignments = message.assignments, []  # not kept while the request waits
    return await broker.groups.classic.sync(
        message.group_id,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        generation=message.generation_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments={one.member_id: one.assignment for one in assigned},
    )
