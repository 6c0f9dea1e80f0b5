"""AddOffsetsToTxn (25), versions 0 to 4: a group whose offsets a transaction is going to commit (KIP-98, TV1).

v2: PRODUCER_FENCED (KIP-588). v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890), which this API never answers.
"""

from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.transaction_requests import check_transactional, fenced_code
from kafscale.transactions.events import ProducerIdAndEpoch

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_FENCED: Final = 2


async def handle(
    broker: "Broker", request: "RequestContext", message: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    """Add the group; its offsets come with TxnOffsetCommit, to the group's coordinator."""
    try:
        check_transactional(broker, request, message.transactional_id)
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
        await broker.transactions.add_group(
            message.transactional_id,
            ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
            message.group_id,
        )
    except KafkaError as refusal:
        code = fenced_code(refusal.code, request, _FIRST_VERSION_WITH_FENCED)
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code)
    return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=ErrorCode.NONE)
