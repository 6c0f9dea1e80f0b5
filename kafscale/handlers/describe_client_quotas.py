"""DescribeClientQuotas (48), versions 0 and 1: the quotas that are set, by a filter of entities (KIP-546).

v1: flexible.
"""

from typing import TYPE_CHECKING

from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.quota_filter import quota_filter
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Entry = DescribeClientQuotasResponse.EntryData


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """The entities that match, with their quotas; a filter that is not legal refuses the request."""
    try:
        if not request.access.allows(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER, CLUSTER_NAME):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        wanted = quota_filter(message.components, bool(message.strict))
    except KafkaError as refusal:
        return DescribeClientQuotasResponse(
            error_code=refusal.code, error_message=refusal.message or None, entries=None
        )
    entries = [
        _Entry(
            entity=[
                _Entry.EntityData(entity_type=kind, entity_name=name or None) for kind, name in entity.parts()
            ],
            values=[_Entry.ValueData(key=name, value=value) for name, value in quotas.items()],
        )
        async for (entity, quotas), _ in in_turns(list(broker.view.quotas.items().values()))
        if wanted.matches(entity)
    ]
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message=None, entries=entries)
