"""JoinGroup (11), versions 0 to 9: a member requests a place in the group's next generation, and waits for it.

v1: rebalance timeout (KIP-62); before, the session timeout is taken for it. v2: throttle time. v4: a new
member must join again with the id that it gets (KIP-394). v5: static members (KIP-345). v6: flexible. v7: the
answer names the protocol type, and no protocol is null (KIP-559). v8: a reason, for the log (KIP-800). v9: a
static leader that returns must not assign again (KIP-814).
"""

from typing import TYPE_CHECKING

from kafscale.groups.effects import Joined
from kafscale.groups.events import Protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import JoinGroupRequest, JoinGroupResponse
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.quoting import logged_reason
from kafscale.serving.authorization import check_access
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_REBALANCE_TIMEOUT = 1
_FIRST_VERSION_THAT_REQUIRES_MEMBER_ID = 4
_FIRST_VERSION_WITH_NULL_PROTOCOL = 7
_FIRST_VERSION_WITH_SKIP_ASSIGNMENT = 9


async def handle(broker: "Broker", request: "RequestContext", message: JoinGroupRequest) -> JoinGroupResponse:
    """Answer when the generation has its members, or at once if this member cannot join."""
    version = request.api_version
    has_rebalance_timeout = version >= _FIRST_VERSION_WITH_REBALANCE_TIMEOUT
    protocols = [Protocol(one.name, one.metadata) async for one in in_turns(message.protocols)]
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        joined = await broker.groups.classic.join(
            message.group_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            client_id=request.client_id or "",
            client_host=f"/{request.client_host}",  # as Java prints an address, and Kafka's tools show it
            session_timeout_ms=message.session_timeout_ms,
            rebalance_timeout_ms=message.rebalance_timeout_ms
            if has_rebalance_timeout
            else message.session_timeout_ms,
            protocol_type=message.protocol_type,
            protocols=tuple(protocols),
            member_id_required=version >= _FIRST_VERSION_THAT_REQUIRES_MEMBER_ID,
            can_skip_assignment=version >= _FIRST_VERSION_WITH_SKIP_ASSIGNMENT,
            reason=logged_reason(message.reason),
        )
    except KafkaError as refusal:
        joined = Joined(error_code=refusal.code, member_id=message.member_id)
    no_protocol = None if version >= _FIRST_VERSION_WITH_NULL_PROTOCOL else ""
    return JoinGroupResponse(
        throttle_time_ms=0,
        error_code=joined.error_code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name or no_protocol,
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponse.JoinGroupResponseMember(
                member_id=one.member_id, group_instance_id=one.group_instance_id, metadata=one.metadata
            )
            for one in joined.members
        ],
    )
