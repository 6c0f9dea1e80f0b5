"""EndTxn (26), versions 0 to 5: commits or aborts a transaction (KIP-98).

v2: PRODUCER_FENCED (KIP-588). v3: flexible. v4: TRANSACTION_ABORTABLE (KIP-890), which this API never answers. v5:
TV2, each end bumps the epoch, and the response has the producer id and epoch from now on.
"""

from typing import TYPE_CHECKING, Final

from kafscale.protocol.api_messages import EndTxnRequest, EndTxnResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.transaction_requests import check_transactional, fenced_code
from kafscale.transactions.events import NO_PRODUCER, ProducerIdAndEpoch

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_FENCED: Final = 2
_FIRST_VERSION_OF_TV2: Final = 5


async def handle(broker: "Broker", request: "RequestContext", message: EndTxnRequest) -> EndTxnResponse:
    """Answer when the decision is stored; the markers follow."""
    try:
        check_transactional(broker, request, message.transactional_id)
        producer = await broker.transactions.end(
            message.transactional_id,
            ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
            commit=message.committed,
            transaction_version=2 if request.api_version >= _FIRST_VERSION_OF_TV2 else 1,
        )
    except KafkaError as refusal:
        return _response(fenced_code(refusal.code, request, _FIRST_VERSION_WITH_FENCED), NO_PRODUCER)
    return _response(ErrorCode.NONE, producer)


def _response(error_code: ErrorCode, producer: ProducerIdAndEpoch) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=0,
        error_code=error_code,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
    )
