"""InitProducerId (22), versions 0 to 4: a producer id for an idempotent producer (KIP-98).

v2: flexible. v3: the producer may name its id and epoch (KIP-360); without a transactional id Kafka
gives it a new one all the same. v4: PRODUCER_FENCED, which only transactions meet. A transactional id is
refused with an error that clients take for final: there are no transactions yet (docs/skipped.md).
"""

from typing import TYPE_CHECKING

from kafscale.errors import StoreError
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import InitProducerIdRequest, InitProducerIdResponse
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.store_deadline import store_deadline

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_NO_PRODUCER = -1


async def handle(
    broker: "Broker", request: "RequestContext", message: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Answer with a new producer id and epoch 0."""
    access = request.access
    if message.transactional_id is not None:
        # Counted and logged as a refusal where it is one; there is no other answer yet.
        access.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        return _response(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not access.allows(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    ) and not access.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        async with store_deadline():
            producer_id = await broker.producer_ids.next_producer_id()
    except StoreError:
        return _response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _response(ErrorCode.NONE, producer_id, 0)


def _response(
    error_code: ErrorCode, producer_id: int = _NO_PRODUCER, producer_epoch: int = _NO_PRODUCER
) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0, error_code=error_code, producer_id=producer_id, producer_epoch=producer_epoch
    )
