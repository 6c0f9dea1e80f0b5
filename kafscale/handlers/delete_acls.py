"""DeleteAcls (31), versions 1 to 3: there is no authorizer, so SECURITY_DISABLED, as Kafka answers then.

v1: pattern types (KIP-290). v2: flexible. v3: a resource type, USER (KIP-373).
"""

from typing import TYPE_CHECKING

from kafscale.handlers.describe_acls import NO_AUTHORIZER
from kafscale.protocol.api_messages import DeleteAclsRequest, DeleteAclsResponse
from kafscale.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


def handle(broker: "Broker", request: "RequestContext", message: DeleteAclsRequest) -> DeleteAclsResponse:
    """Refuse each filter: one answer for all."""
    refused = DeleteAclsResponse.DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, matching_acls=[]
    )
    return DeleteAclsResponse(filter_results=[refused] * len(message.filters))
