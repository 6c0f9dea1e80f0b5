"""OffsetDelete (47), version 0: deletes a group's offsets in topics that no member is subscribed to (KIP-496)."""

from typing import TYPE_CHECKING

from kafscale.protocol.api_messages import OffsetDeleteRequest, OffsetDeleteResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.error_per_partition import answer_each, partitions_of
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = OffsetDeleteResponse.OffsetDeleteResponseTopic
_Partition = _Topic.OffsetDeleteResponsePartition


async def handle(
    broker: "Broker", request: "RequestContext", message: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """The outcome for each partition's offset; a missing offset is no error."""
    records = [broker.view.topic(topic.name) for topic in message.topics]
    named = [
        (topic.name, partition.partition_index)
        if record is not None and 0 <= partition.partition_index < record.partition_count
        else None
        async for topic, record, partition in in_turns(partitions_of(message.topics, records))
    ]
    try:
        # As in Kafka the group is checked even if no partition remains: its absence is reported first.
        deleted = await broker.groups.delete_offsets(
            message.group_id, tuple(one for one in named if one is not None)
        )
    except KafkaError as refusal:
        return OffsetDeleteResponse(error_code=refusal.code, throttle_time_ms=0, topics=[])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    codes = (unknown if one is None else deleted[one] for one in named)
    topics = await answer_each(
        message.topics,
        codes,
        lambda index, code: _Partition(partition_index=index, error_code=code),
        lambda name, partitions: _Topic(name=name, partitions=partitions),
    )
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
