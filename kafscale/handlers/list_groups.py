"""ListGroups (16), versions 0 to 5: the groups that this broker coordinates.

v1: throttle time. v3: flexible. v4: states, and a filter of them (KIP-518). v5: types, and a filter of them
(KIP-848). A filter of unknown names finds nothing, as in Kafka.
"""

from typing import TYPE_CHECKING, Final

from kafscale.groups.group import Group
from kafscale.groups.subscription import CONSUMER_PROTOCOL_TYPE
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import ListGroupsRequest, ListGroupsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
"""The types of groups, by the protocol of their members."""


async def handle(
    broker: "Broker", request: "RequestContext", message: ListGroupsRequest
) -> ListGroupsResponse:
    """The groups that the client may describe and that pass both filters; clients ask every broker."""
    access = request.access
    # As in Kafka, where a rule for the cluster was the only way before groups had rules.
    sees_all = access.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True)
    states = {state.strip().lower() for state in message.states_filter}
    types = {group_type.lower() for group_type in message.types_filter}
    try:
        groups = tuple(broker.groups.groups())
    except KafkaError as refusal:
        return ListGroupsResponse(throttle_time_ms=0, error_code=refusal.code, groups=[])
    listed = [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=_protocol_type(group),
            group_state=group.state.value,
            group_type=_type(group),
        )
        async for group in in_turns(groups)
        if (not types or _type(group) in types)
        and (not states or group.state.value.lower() in states)
        and (sees_all or access.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, quiet=True))
    ]
    return ListGroupsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, groups=listed)


def _type(group: object) -> str:
    return CLASSIC if isinstance(group, Group) else CONSUMER


def _protocol_type(group: object) -> str:
    """Empty: a group that has only ever stored offsets."""
    if isinstance(group, Group):
        return group.protocol_type or ""
    return CONSUMER_PROTOCOL_TYPE
