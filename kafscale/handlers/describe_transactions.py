"""DescribeTransactions (65), version 0: the state of transactional ids that this broker coordinates (KIP-664)."""

from typing import TYPE_CHECKING

from kafscale.formats.transaction_record import TransactionRecord
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import denied
from kafscale.serving.transaction_requests import STATE_NAMES, check_transactional
from kafscale.tasks.in_turns import Turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_State = DescribeTransactionsResponse.TransactionState


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Describe each transactional id, once however often it is named."""
    states = []
    turns = Turns()
    for transactional_id in dict.fromkeys(message.transactional_ids):
        await turns.part_done()
        try:
            check_transactional(broker, request, transactional_id, Operation.DESCRIBE)
            record = broker.transactions.describe(transactional_id)
        except KafkaError as refusal:
            states.append(_State(error_code=refusal.code, transactional_id=transactional_id))
            continue
        states.append(await _described(request, transactional_id, record))
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


async def _described(request: "RequestContext", transactional_id: str, record: TransactionRecord) -> _State:
    """With the topics that the client may know of, as in Kafka."""
    names = (topic.name for topic in record.topics)
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, names, quiet=True)
    return _State(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=STATE_NAMES[record.state],
        transaction_timeout_ms=record.timeout_ms,
        transaction_start_time_ms=record.started_ms,
        producer_id=record.producer_id,
        producer_epoch=record.producer_epoch,
        topics=[
            _State.TopicData(topic=topic.name, partitions=list(topic.partitions))
            for topic in record.topics
            if topic.name not in hidden
        ],
    )
