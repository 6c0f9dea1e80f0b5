"""DescribeProducers (61), version 0: a partition's producers, and the transactions that they have open (KIP-664).

The coordinator's epoch is not kept with a producer: -1, which Kafka gives until a transaction has ended.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.partition_log import PartitionLog
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DescribeProducersRequest, DescribeProducersResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import denied
from kafscale.serving.named_once import named_once
from kafscale.serving.partition_lookup import served_partition
from kafscale.serving.store_deadline import store_deadline

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

MOST_PRODUCERS: Final = 50_000
"""In an answer: ten partitions with as many as a partition may have."""

_NO_COORDINATOR_EPOCH: Final = -1
_NO_TRANSACTION: Final = -1

_Topic = DescribeProducersResponse.TopicResponse
_Partition = _Topic.PartitionResponse
_Producer = _Partition.ProducerState


class _Room:
    """The rest of `MOST_PRODUCERS`."""

    def __init__(self) -> None:
        self.producers = MOST_PRODUCERS


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeProducersRequest
) -> DescribeProducersResponse:
    """The published producers of each partition that this broker leads, once for each."""
    named = await named_once(
        ((topic.name, topic.partition_indexes) for topic in message.topics), lambda index: index
    )
    hidden = await denied(request, Operation.READ, ResourceType.TOPIC, named.topics)
    topics = await named.answer_each(
        partial(_answer, broker, hidden, _Room()), lambda topic, found: _Topic(name=topic, partitions=found)
    )
    return DescribeProducersResponse(throttle_time_ms=0, topics=topics)


async def _answer(
    broker: "Broker", hidden: frozenset[str], room: _Room, topic: str, index: int
) -> _Partition:
    if topic in hidden:
        return _refused(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
    try:
        partition = served_partition(broker, topic, index)
        async with store_deadline():
            log = await broker.logs.open(partition)
    except KafkaError as refusal:
        return _refused(index, refusal.code, str(refusal))
    except (StoreError, CorruptDataError) as problem:
        logger.warning("could not open a log", extra={"topic": topic, "problem": str(problem)})
        return _refused(index, ErrorCode.KAFKA_STORAGE_ERROR, "the stores do not answer")
    if log is None:
        return _refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
    if len(log.producers) > room.producers:
        too_many = f"an answer has at most {MOST_PRODUCERS} producers: ask for fewer partitions at once"
        return _refused(index, ErrorCode.INVALID_REQUEST, too_many)
    room.producers -= len(log.producers)
    return _Partition(
        partition_index=index,
        error_code=ErrorCode.NONE,
        error_message=None,
        active_producers=_producers(log),
    )


def _refused(index: int, code: ErrorCode, problem: str) -> _Partition:
    return _Partition(partition_index=index, error_code=code, error_message=problem, active_producers=[])


def _producers(log: PartitionLog) -> list[_Producer]:
    began = {one.producer_id: one.first_offset for one in log.record.transactions.open}
    return [
        _Producer(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.batches[-1].last_sequence,
            last_timestamp=one.last_timestamp_ms,
            coordinator_epoch=_NO_COORDINATOR_EPOCH,
            current_txn_start_offset=began.get(one.producer_id, _NO_TRANSACTION),
        )
        for one in log.producers.published()
    ]
