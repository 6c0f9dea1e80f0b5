"""OffsetCommit (8), versions 2 to 8: how far a group has come in partitions.

v2: a retention of the client's own for its offsets, instead of a timestamp. v3: throttle time. v5: no
retention; offsets are kept as long as their group (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible.
"""

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetCommitResponse

from kafscale.handlers.error_per_partition import answer_each, partitions_of
from kafscale.handlers.in_turns import in_turns
from kafscale.metadata.committed_offset import CommittedOffset
from kafscale.protocol.error_codes import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kafscale.handlers.context import Broker, RequestContext

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic

_NO_RETENTION = -1
_MAX_TIMESTAMP_MS = (1 << 63) - 1

Offsets = dict[tuple[str, int], CommittedOffset]


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Store what can be stored, all of it or nothing, and answer for each partition once it is durable."""
    codes, offsets = await _sort_out(broker, message)
    if any(code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for code in codes):
        failure = await _commit(broker, message, offsets)
        if failure is not ErrorCode.NONE:
            # As in Kafka: a member that may not commit hears that, whatever its texts are like.
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            codes = [unknown if code is unknown else failure for code in codes]
    topics = await answer_each(message.topics, codes, _Topic, _Topic.OffsetCommitResponsePartition)
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


async def _sort_out(broker: "Broker", message: Any) -> tuple[list[ErrorCode], Offsets]:
    """What is known of each partition beforehand, and the offsets of those that nothing is wrong with."""
    now_ms = broker.now_ms()
    expire_timestamp_ms = _expire_timestamp_ms(message.retention_time_ms, now_ms)
    metadata_max = broker.settings.offset_metadata_max_bytes
    records = [broker.view.topic(topic.name) for topic in message.topics]
    codes: list[ErrorCode] = []
    offsets: Offsets = {}
    async for topic, record, wanted in in_turns(partitions_of(message.topics, records)):
        index, metadata = wanted.partition_index, wanted.committed_metadata or ""
        if record is None or not 0 <= index < record.partition_count:
            codes.append(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        elif _length(metadata) > metadata_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        else:
            codes.append(ErrorCode.NONE)
            offsets[topic.name, index] = CommittedOffset(
                topic_id=record.topic_id,
                offset=wanted.committed_offset,
                leader_epoch=wanted.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=expire_timestamp_ms,
            )
    return codes, offsets


def _length(text: str) -> int:
    """As Java counts, and so Kafka's limit: in UTF-16 code units."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _expire_timestamp_ms(retention_time_ms: int, now_ms: int) -> int | None:
    if retention_time_ms == _NO_RETENTION:
        return None
    return min(max(0, now_ms + retention_time_ms), _MAX_TIMESTAMP_MS)


async def _commit(broker: "Broker", message: Any, offsets: Offsets) -> ErrorCode:
    try:
        return await broker.groups.commit(
            message.group_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            generation=message.generation_id_or_member_epoch,
            offsets=offsets,
        )
    except KafkaError as refusal:
        return refusal.code
