"""OffsetForLeaderEpoch (23), versions 2 to 4: the end of a leader epoch (KIP-101, KIP-279).

v2: the client's leader epoch is checked (KIP-320). v3: replica id. v4: flexible.
"""

from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING

from kafscale.formats.partition_record import UNDEFINED_EPOCH, UNDEFINED_OFFSET, epoch_end
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import denied
from kafscale.serving.named_once import named_once
from kafscale.serving.partition_lookup import served_partition

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

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
    # As in Kafka, whose brokers ask for it too.
    is_broker = request.access.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True
    )
    names = () if is_broker else named.topics
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, names)
    topics = await named.answer_each(
        partial(_answer, broker, hidden), lambda topic, answers: _Topic(topic=topic, partitions=answers)
    )
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)


async def _answer(broker: "Broker", hidden: Container[str], topic: str, wanted: _Wanted) -> _Partition:
    answer = _Partition(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=UNDEFINED_EPOCH,
        end_offset=UNDEFINED_OFFSET,
    )
    if topic in hidden:
        answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return answer
    try:
        partition = served_partition(broker, topic, wanted.partition, wanted.current_leader_epoch)
        answer.leader_epoch, answer.end_offset = epoch_end(partition.record, wanted.leader_epoch)
    except KafkaError as refusal:
        answer.error_code = refusal.code
    return answer
