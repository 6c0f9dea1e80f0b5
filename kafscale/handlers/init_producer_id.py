"""InitProducerId (22), versions 0 to 5: a producer id for an idempotent or a transactional producer (KIP-98).

v2: flexible. v3: the producer may name its id and epoch (KIP-360); without a transactional id Kafka
gives it a new one all the same. v4: PRODUCER_FENCED (KIP-588). v5: TRANSACTION_ABORTABLE (KIP-890), which this API
never answers.
"""

from typing import TYPE_CHECKING, Final

from kafscale.errors import StoreError
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import InitProducerIdRequest, InitProducerIdResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.store_deadline import store_deadline
from kafscale.serving.transaction_requests import check_transactional, fenced_code
from kafscale.transactions.events import NO_PRODUCER, ProducerIdAndEpoch

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_FENCED: Final = 4


async def handle(
    broker: "Broker", request: "RequestContext", message: InitProducerIdRequest
) -> InitProducerIdResponse:
    """Answer with the producer's id and epoch."""
    if message.transactional_id is not None:
        return await _transactional(broker, request, message, message.transactional_id)
    access = request.access
    if not access.allows(
        Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    ) and not access.allows_any(Operation.WRITE, ResourceType.TOPIC):
        return _response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        async with store_deadline():
            producer_id = await broker.producer_ids.next_producer_id()
    except StoreError:
        return _response(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return _response(ErrorCode.NONE, ProducerIdAndEpoch(producer_id, 0))


async def _transactional(
    broker: "Broker", request: "RequestContext", message: InitProducerIdRequest, transactional_id: str
) -> InitProducerIdResponse:
    try:
        check_transactional(broker, request, transactional_id)
        producer = await broker.transactions.init_producer_id(
            transactional_id,
            timeout_ms=message.transaction_timeout_ms,
            expected=_expected(message),
        )
    except KafkaError as refusal:
        return _response(fenced_code(refusal.code, request, _FIRST_VERSION_WITH_FENCED))
    return _response(ErrorCode.NONE, producer)


def _expected(message: InitProducerIdRequest) -> ProducerIdAndEpoch | None:
    """The producer that the client has been. Raises `KafkaError` INVALID_REQUEST for half of one."""
    named = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    if (named.producer_id == NO_PRODUCER.producer_id) != (named.epoch == NO_PRODUCER.epoch):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"producer id {named.producer_id} comes with epoch {named.epoch}"
        )
    return None if named == NO_PRODUCER else named


def _response(error_code: ErrorCode, producer: ProducerIdAndEpoch = NO_PRODUCER) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=0,
        error_code=error_code,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
