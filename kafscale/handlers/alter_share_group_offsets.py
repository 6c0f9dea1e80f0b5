"""AlterShareGroupOffsets (91), version 0: sets where a share group without members goes on to read (KIP-932)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafscale.errors import StoreUnavailableError
from kafscale.groups.modern.assignment import TopicIdPartition
from kafscale.handlers.share_group_heartbeat import check_protocol
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.metadata import NO_TOPIC_ID
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.metadata.model import TopicRecord
    from kafscale.serving.context import Broker, RequestContext

_Asked = AlterShareGroupOffsetsRequest.AlterShareGroupOffsetsRequestTopic
_Topic = AlterShareGroupOffsetsResponse.AlterShareGroupOffsetsResponseTopic
_Partition = _Topic.AlterShareGroupOffsetsResponsePartition

_Outcome = tuple[ErrorCode, str | None]

_DENIED: Final[_Outcome] = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
_UNKNOWN: Final[_Outcome] = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "This server does not host this topic-partition.",  # Kafka's words
)
_ALTERED: Final[_Outcome] = (ErrorCode.NONE, None)


async def handle(
    broker: "Broker", request: "RequestContext", message: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """The outcome for each partition. The last offset counts where a partition is named more than once."""
    group_id = message.group_id
    try:
        check_protocol(broker)
        check_access(request, Operation.READ, ResourceType.GROUP, group_id)
        names = [topic.topic_name for topic in message.topics]
        hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
        records = [broker.view.topic(name) for name in names]
        offsets: dict[TopicIdPartition, int] = {}
        async for topic, record in in_turns(zip(message.topics, records, strict=True)):
            if record is None or topic.topic_name in hidden:
                continue
            async for one in in_turns(topic.partitions):
                if 0 <= one.partition_index < record.partition_count:
                    offsets[record.topic_id, one.partition_index] = one.start_offset
        principal = request.access.principal
        async with store_deadline():
            refused = await broker.groups.share_offsets.alter(group_id, offsets, str(principal))
    except StoreUnavailableError as problem:
        return _refused(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)))
    except KafkaError as refusal:
        return _refused(refusal)
    ids = {record.topic_id: record.name for record in records if record is not None}
    done = [
        f"{ids[topic_id]}-{index} of {group_id} to {offset}"
        async for (topic_id, index), offset in in_turns(offsets.items())
        if (topic_id, index) not in refused
    ]
    changed(principal, request.client_host, "share group offsets altered", done)
    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            await _topic(topic, record, refused, is_hidden=topic.topic_name in hidden)
            for topic, record in zip(message.topics, records, strict=True)
        ],
    )


async def _topic(
    asked: _Asked,
    record: "TopicRecord | None",
    refused: Mapping[TopicIdPartition, KafkaError],
    *,
    is_hidden: bool,
) -> _Topic:
    topic_id = NO_TOPIC_ID if record is None else record.topic_id
    count = 0 if record is None else record.partition_count
    partitions = []
    async for one in in_turns(asked.partitions):
        refusal = refused.get((topic_id, one.partition_index))
        if is_hidden:
            code, words = _DENIED
        elif not 0 <= one.partition_index < count:
            code, words = _UNKNOWN
        elif refusal is not None:
            code, words = refusal.code, refusal.message
        else:
            code, words = _ALTERED
        partitions.append(
            _Partition(partition_index=one.partition_index, error_code=code, error_message=words)
        )
    return _Topic(topic_name=asked.topic_name, topic_id=topic_id, partitions=partitions)


def _refused(refusal: KafkaError) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(
        throttle_time_ms=0,
        error_code=refusal.code,
        error_message=refusal.message or None,
        responses=[],
    )
