"""DescribeAcls (29), versions 1 to 3: there is no authorizer, so SECURITY_DISABLED, as Kafka answers then.

v1: pattern types (KIP-290). v2: flexible. v3: a resource type, USER (KIP-373).
"""

from typing import TYPE_CHECKING, Final

from kafscale.protocol.api_messages import DescribeAclsRequest, DescribeAclsResponse
from kafscale.protocol.error_codes import ErrorCode

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"


def handle(broker: "Broker", request: "RequestContext", message: DescribeAclsRequest) -> DescribeAclsResponse:
    """Refuse the filter."""
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER, resources=[]
    )
