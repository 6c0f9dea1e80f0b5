"""OffsetDelete (47), version 0: deletes a group's offsets in topics that no member is subscribed to (KIP-496)."""

from typing import TYPE_CHECKING

from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import OffsetDeleteRequest, OffsetDeleteResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access, denied
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
    try:
        check_access(request, Operation.DELETE, ResourceType.GROUP, message.group_id)
    except KafkaError as refusal:
        return OffsetDeleteResponse(error_code=refusal.code, throttle_time_ms=0, topics=[])
    names = (topic.name for topic in message.topics)
    hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
    records = [broker.view.topic(topic.name) for topic in message.topics]
    named = [
        (topic.name, partition.partition_index)
        if record is not None
        and topic.name not in hidden
        and 0 <= partition.partition_index < record.partition_count
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
    done = [
        f"{topic}-{index} of {message.group_id}"
        async for (topic, index), code in in_turns(deleted.items())
        if code is ErrorCode.NONE
    ]
    changed(request.access.principal, request.client_host, "offsets deleted", done)
    codes = (
        deleted[one]
        if one is not None
        else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topic.name in hidden
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for one, (topic, _, _) in zip(named, partitions_of(message.topics, records), strict=True)
    )
    topics = await answer_each(
        message.topics,
        codes,
        lambda index, code: _Partition(partition_index=index, error_code=code),
        lambda name, partitions: _Topic(name=name, partitions=partitions),
    )
    return OffsetDeleteResponse(error_code=ErrorCode.NONE, throttle_time_ms=0, topics=topics)
