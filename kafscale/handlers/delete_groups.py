"""DeleteGroups (42), versions 0 to 2: groups without members go, with their offsets (KIP-229). v2: flexible."""

from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DeleteGroupsResponse

from kafscale.handlers.concurrently import for_each
from kafscale.protocol.error_codes import KafkaError

if TYPE_CHECKING:
    from kafscale.handlers.context import Broker, RequestContext


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Delete each group, once however often it is named."""
    results = await for_each(dict.fromkeys(message.groups_names), partial(_delete, broker))
    return DeleteGroupsResponse(throttle_time_ms=0, results=results)


async def _delete(broker: "Broker", group_id: str) -> Any:
    try:
        code = await broker.groups.delete(group_id)
    except KafkaError as refusal:
        code = refusal.code
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
