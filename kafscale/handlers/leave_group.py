"""LeaveGroup (13), versions 0 to 5: members leave, and the others need not wait for their sessions to end.

v1: throttle time. v3: several members, a static one by its instance id alone (KIP-345). v4: flexible.
v5: reasons, for the log (KIP-800).
"""

from typing import TYPE_CHECKING

from kafscale.groups.effects import Left
from kafscale.groups.events import LeavingMember
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import LeaveGroupRequest, LeaveGroupResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import logged_reason
from kafscale.serving.authorization import check_access
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_SEVERAL_MEMBERS = 3


async def handle(
    broker: "Broker", request: "RequestContext", message: LeaveGroupRequest
) -> LeaveGroupResponse:
    """The outcome for each member; in old versions, for the one member, as the error of the whole request."""
    several = request.api_version >= _FIRST_VERSION_WITH_SEVERAL_MEMBERS
    members = (
        [
            LeavingMember(one.member_id, one.group_instance_id, logged_reason(one.reason))
            async for one in in_turns(message.members)
        ]
        if several
        else [LeavingMember(message.member_id)]
    )
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        left = await broker.groups.classic.leave(message.group_id, tuple(members))
    except KafkaError as refusal:
        left = Left(refusal.code)
    if not several:
        codes = (left.error_code, *(code for _, code in left.members))
        first_error = next((code for code in codes if code is not ErrorCode.NONE), ErrorCode.NONE)
        return LeaveGroupResponse(throttle_time_ms=0, error_code=first_error)
    return LeaveGroupResponse(
        throttle_time_ms=0,
        error_code=left.error_code,
        members=[
            LeaveGroupResponse.MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=code
            )
            async for member, code in in_turns(left.members)
        ],
    )
