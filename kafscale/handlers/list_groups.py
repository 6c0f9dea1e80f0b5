"""ListGroups (16), versions 0 to 5: the groups that this broker coordinates.

v1: throttle time. v3: flexible. v4: states, and a filter of them (KIP-518). v5: types, and a filter of them
(KIP-848). A filter of unknown names finds nothing, as in Kafka.
"""

from typing import TYPE_CHECKING

from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import ListGroupsRequest, ListGroupsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


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
            protocol_type=group.protocol_type or "",  # empty: it has only ever stored offsets
            group_state=group.state.value,
            group_type=group.GROUP_TYPE,
        )
        async for group in in_turns(groups)
        if (not states or group.state.value.lower() in states)
        and (not types or group.GROUP_TYPE in types)
        and (sees_all or access.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id, quiet=True))
    ]
    return ListGroupsResponse(throttle_time_ms=0, error_code=ErrorCode.NONE, groups=listed)
