"""DeleteGroups (42), versions 0 to 2: deletes groups without members, with their offsets (KIP-229). v2: flexible."""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from kafscale.errors import StoreUnavailableError
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DeleteGroupsRequest, DeleteGroupsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.concurrently import for_each

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


async def handle(
    broker: "Broker", request: "RequestContext", message: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    """Delete each group, once however often it is named."""
    results = await for_each(dict.fromkeys(message.groups_names), partial(_delete, broker, request))
    deleted = [result.group_id for result in results if result.error_code == ErrorCode.NONE]
    changed(request.access.principal, request.client_host, "groups deleted", deleted)
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


async def _delete(
    broker: "Broker", request: "RequestContext", group_id: str
) -> DeleteGroupsResponse.DeletableGroupResult:
    try:
        check_access(request, Operation.DELETE, ResourceType.GROUP, group_id)
    except KafkaError as refusal:
        return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=refusal.code)
    # A deletion in progress goes on: it deletes the offsets first, and must not stop half way.
    deletion = broker.started.spawn(_result(broker, group_id), f"delete group {quoted(group_id)}")
    try:
        async with store_deadline():
            code = await asyncio.shield(deletion)
    except StoreUnavailableError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)


async def _result(broker: "Broker", group_id: str) -> ErrorCode:
    try:
        return await broker.groups.delete(group_id)
    except KafkaError as refusal:
        return refusal.code
