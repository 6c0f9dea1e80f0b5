"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ended (KIP-101, KIP-279).

v2: the client's leader epoch is checked (KIP-320). v3: replica id. v4: flexible.
"""

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetForLeaderEpochResponse

from kafscale.handlers.partition_lookup import served_partition
from kafscale.metadata.partition_record import UNDEFINED_EPOCH, UNDEFINED_OFFSET, epoch_end
from kafscale.protocol.error_codes import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kafscale.handlers.context import Broker, RequestContext

_Topic = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
_Partition = _Topic.EpochEndOffset


def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Answer from each partition's epoch history."""
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            _Topic(
                topic=topic.topic, partitions=[_answer(broker, topic.topic, one) for one in topic.partitions]
            )
            for topic in message.topics
        ],
    )


def _answer(broker: "Broker", topic: str, wanted: Any) -> Any:
    try:
        partition = served_partition(broker, topic, wanted.partition, wanted.current_leader_epoch)
    except KafkaError as refusal:
        return _Partition(
            error_code=refusal.code,
            partition=wanted.partition,
            leader_epoch=UNDEFINED_EPOCH,
            end_offset=UNDEFINED_OFFSET,
        )
    leader_epoch, end_offset = epoch_end(partition.record, wanted.leader_epoch)
    return _Partition(
        error_code=ErrorCode.NONE,
        partition=wanted.partition,
        leader_epoch=leader_epoch,
        end_offset=end_offset,
    )
