"""DescribeGroups (15), versions 0 to 6: groups, their members, and each member's assignment.

v1: throttle time. v3: authorized operations (KIP-430). v4: instance ids of static members (KIP-345). v5:
flexible. A group that does not exist is Dead; v6 makes that an error, with a message (KIP-1043).
"""

from typing import TYPE_CHECKING, Final

from kafscale.groups.group import Group, Member
from kafscale.groups.states import GroupState
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DescribeGroupsRequest, DescribeGroupsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving.authorization import check_access
from kafscale.serving.authorized_operations import bits_of, group_operations
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Group = DescribeGroupsResponse.DescribedGroup
_Member = _Group.DescribedGroupMember

_GROUPS_PER_TURN: Final = 8
_FIRST_VERSION_WITH_UNKNOWN_GROUPS: Final = 6


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """Each group once, however often it is named: an answer is larger than a name."""
    groups = [
        _describe(broker, request, group_id, with_operations=bool(message.include_authorized_operations))
        async for group_id in in_turns(dict.fromkeys(message.groups), _GROUPS_PER_TURN)
    ]
    return DescribeGroupsResponse(throttle_time_ms=0, groups=groups)


def _describe(broker: "Broker", request: "RequestContext", group_id: str, *, with_operations: bool) -> _Group:
    try:
        check_access(request, Operation.DESCRIBE, ResourceType.GROUP, group_id)
        group = broker.groups.describe(group_id)
    except KafkaError as refusal:
        return _refused(refusal, group_id)
    if group is None and request.api_version >= _FIRST_VERSION_WITH_UNKNOWN_GROUPS:
        problem = "is not a classic group" if broker.groups.has(group_id) else "not found"
        unknown = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(group_id)} {problem}.")
        answer = _refused(unknown, group_id)
        answer.group_state = GroupState.DEAD.value
        return answer
    answer = _Group(
        error_code=ErrorCode.NONE,
        group_id=group_id,
        group_state=GroupState.DEAD.value,
        # None: not requested
        authorized_operations=bits_of(group_operations(request.access, group_id))
        if with_operations
        else None,
    )
    if group is not None:
        _fill(answer, group)
    return answer


def _refused(refusal: KafkaError, group_id: str) -> _Group:
    answer = _Group(error_code=refusal.code, group_id=group_id, authorized_operations=None)
    answer.error_message = refusal.message
    return answer


def _fill(answer: _Group, group: Group) -> None:
    """As in Kafka, the selected protocol and the members' metadata for it are shown of a Stable group only."""
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    answer.group_state = group.state.value
    answer.protocol_type = group.protocol_type or ""
    answer.protocol_data = protocol_name or ""
    answer.members = [_member(member, protocol_name) for member in group.members.values()]


def _member(member: Member, protocol_name: str | None) -> _Member:
    return _Member(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata(protocol_name) if protocol_name is not None else b"",
        member_assignment=member.assignment,
    )
