"""ListPartitionReassignments (46), version 0: none is ever in progress (KIP-455).

A partition's records are in the object store. A new leader has nothing to copy, so a reassignment is over at once.
"""

from typing import TYPE_CHECKING

from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext


def handle(
    broker: "Broker", request: "RequestContext", message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """No reassignments; as in Kafka unknown topics and partitions have none, either."""
    try:
        check_access(request, Operation.DESCRIBE)
    except KafkaError as refusal:
        return ListPartitionReassignmentsResponse(
            error_code=refusal.code, error_message=refusal.message, topics=[]
        )
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None, topics=[])
