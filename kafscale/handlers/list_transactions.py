"""ListTransactions (66), versions 0 to 1: the transactional ids that this broker coordinates (KIP-664).

v1: a filter by the transaction's age (KIP-994). v2 would match a regular expression of the client (KIP-1152), which
can take longer than a broker has (docs/skipped.md).
"""

from typing import TYPE_CHECKING, Final

from kafscale.formats.transaction_record import TransactionRecord
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import ListTransactionsRequest, ListTransactionsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.transaction_requests import STATE_NAMES
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_FIRST_VERSION_WITH_AGE: Final = 1


async def handle(
    broker: "Broker", request: "RequestContext", message: ListTransactionsRequest
) -> ListTransactionsResponse:
    """The transactional ids that the client may describe and that pass all filters; clients ask every broker."""
    try:
        transactions = await broker.transactions.transactions()
    except KafkaError as refusal:
        return ListTransactionsResponse(
            throttle_time_ms=0, error_code=refusal.code, unknown_state_filters=[], transaction_states=[]
        )
    states, producer_ids = set(message.state_filters), set(message.producer_id_filters)
    least_age_ms = message.duration_filter if request.api_version >= _FIRST_VERSION_WITH_AGE else -1
    now_ms = broker.now_ms()

    def passes(record: TransactionRecord) -> bool:
        return (
            (not states or STATE_NAMES[record.state] in states)
            and (not producer_ids or record.producer_id in producer_ids)
            and (least_age_ms < 0 or now_ms - record.started_ms > least_age_ms)
        )

    access = request.access
    listed = [
        ListTransactionsResponse.TransactionState(
            transactional_id=transactional_id,
            producer_id=record.producer_id,
            transaction_state=STATE_NAMES[record.state],
        )
        async for transactional_id, record in in_turns(transactions)
        if passes(record)
        and access.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id, quiet=True)
    ]
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=sorted(states.difference(STATE_NAMES)),
        transaction_states=listed,
    )
