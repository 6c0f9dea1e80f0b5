"""OffsetForLeaderEpoch (23), versions 2 to 4: the end of a leader epoch (KIP-101, KIP-279).

v2: the client's leader epoch is checked (KIP-320). v3: replica id. v4: flexible.
"""

import logging
from functools import partial
from typing import TYPE_CHECKING

from kafscale.errors import StoreError
from kafscale.formats.partition_record import UNDEFINED_EPOCH, UNDEFINED_OFFSET, epoch_end
from kafscale.log.partition import Partition
from kafscale.protocol.api_messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.named_once import named_once
from kafscale.serving.partition_lookup import served_partition
from kafscale.serving.store_deadline import store_deadline

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

_Wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition
_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Partition = _Topic.EpochEndOffset


async def handle(
    broker: "Broker", request: "RequestContext", message: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Answer from each partition's epoch history, once for each."""
    named = await named_once(
        ((topic.topic, topic.partitions) for topic in message.topics), lambda wanted: wanted.partition
    )
    topics = await named.answer_each(
        partial(_answer, broker), lambda topic, answers: _Topic(topic=topic, partitions=answers)
    )
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


async def _answer(broker: "Broker", topic: str, wanted: _Wanted) -> _Partition:
    answer = _Partition(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=UNDEFINED_EPOCH,
        end_offset=UNDEFINED_OFFSET,
    )
    try:
        partition = await _settled(broker, topic, wanted)
        answer.leader_epoch, answer.end_offset = epoch_end(partition.record, wanted.leader_epoch)
    except KafkaError as refusal:
        answer.error_code = refusal.code
    except StoreError as problem:
        logger.warning(
            "could not look up the end of an epoch", extra={"topic": topic, "problem": str(problem)}
        )
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer


async def _settled(broker: "Broker", topic: str, wanted: _Wanted) -> Partition:
    """The partition, whose end no broker knows to be later.

    A consumer that has read beyond the end that it gets takes its records for lost, and goes back (KIP-320).
    """
    partition = served_partition(broker, topic, wanted.partition, wanted.current_leader_epoch)
    if wanted.leader_epoch != partition.record.leader_epoch:
        return partition
    async with store_deadline():
        await partition.publication_known()
    return served_partition(broker, topic, wanted.partition, wanted.current_leader_epoch)
