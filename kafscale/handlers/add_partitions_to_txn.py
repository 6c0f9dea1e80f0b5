"""AddPartitionsToTxn (24), versions 0 to 3: partitions that a transaction is going to write to (KIP-98, TV1).

v2: PRODUCER_FENCED (KIP-588). v3: flexible. From v4 on the API is between Kafka's brokers: here a partition's leader
asks the metadata store (docs/decisions/0091-transactions.md).
"""

from typing import TYPE_CHECKING, Final

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import denied
from kafscale.serving.transaction_requests import check_transactional, fenced_code
from kafscale.tasks.in_turns import Turns
from kafscale.transactions.events import ProducerIdAndEpoch

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult
_Partition = _Topic.AddPartitionsToTxnPartitionResult

Partitions = dict[str, set[int]]

_FIRST_VERSION_WITH_FENCED: Final = 2


async def handle(
    broker: "Broker", request: "RequestContext", message: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add all partitions, or none: one that cannot be added keeps the others from it, as in Kafka."""
    wanted = await _wanted(message)
    transactional_id = message.v3_and_below_transactional_id
    try:
        check_transactional(broker, request, transactional_id)
        refused = await _refused(broker, request, wanted)
        if refused:
            return await _response(wanted, ErrorCode.OPERATION_NOT_ATTEMPTED, refused)
        if wanted:
            await broker.transactions.add_partitions(
                transactional_id,
                ProducerIdAndEpoch(message.v3_and_below_producer_id, message.v3_and_below_producer_epoch),
                ((topic, index) for topic, indexes in wanted.items() for index in indexes),
            )
    except KafkaError as refusal:
        return await _response(wanted, fenced_code(refusal.code, request, _FIRST_VERSION_WITH_FENCED), {})
    return await _response(wanted, ErrorCode.NONE, {})


async def _wanted(message: AddPartitionsToTxnRequest) -> Partitions:
    """The partitions of each topic, each once however often it is named."""
    wanted: Partitions = {}
    turns = Turns()
    for topic in message.v3_and_below_topics:
        wanted.setdefault(topic.name, set()).update(topic.partitions)
        await turns.part_done()
    return wanted


async def _refused(
    broker: "Broker", request: "RequestContext", wanted: Partitions
) -> dict[str, dict[int, ErrorCode]]:
    """The partitions that cannot be added, with the reason."""
    unauthorized = await denied(request, Operation.WRITE, ResourceType.TOPIC, wanted)
    refused: dict[str, dict[int, ErrorCode]] = {}
    turns = Turns()
    for topic, indexes in wanted.items():
        await turns.part_done()
        if topic in unauthorized:
            refused[topic] = dict.fromkeys(indexes, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            continue
        record = broker.view.topic(topic)
        count = 0 if record is None else record.partition_count
        unknown = {index for index in indexes if not 0 <= index < count}
        if unknown:
            refused[topic] = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return refused


async def _response(
    wanted: Partitions, code: ErrorCode, refused: dict[str, dict[int, ErrorCode]]
) -> AddPartitionsToTxnResponse:
    """Each partition's own code, or else `code`."""
    results = []
    turns = Turns()
    for topic, indexes in wanted.items():
        own = refused.get(topic, {})
        of_topic = _Topic(name=topic, results_by_partition=[])
        results.append(of_topic)
        for index in sorted(indexes):
            of_topic.results_by_partition.append(
                _Partition(partition_index=index, partition_error_code=own.get(index, code))
            )
            await turns.part_done()
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results)
