"""OffsetCommit (8), versions 2 to 8: a group's offsets in partitions.

v2: a retention of the client's own for its offsets, instead of a timestamp. v3: throttle time. v5: no
retention; offsets are kept as long as their group (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kafscale.groups.commits import PartlyCommittedError
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import OffsetCommitRequest, OffsetCommitResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.error_per_partition import answer_each
from kafscale.serving.offset_requests import Offsets, commit_each, named
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition

_NO_RETENTION = -1
_MAX_TIMESTAMP_MS = (1 << 63) - 1


async def handle(
    broker: "Broker", request: "RequestContext", message: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Store all legal offsets or none, and answer for each partition when they are durable."""
    names = (topic.name for topic in message.topics)
    hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
    except KafkaError as refusal:
        return await _response(message, [refusal.code async for _ in in_turns(named(message.topics))])
    codes = await commit_each(
        broker,
        message.topics,
        hidden,
        partial(_commit, broker, message),
        expire_timestamp_ms=_expire_timestamp_ms(message.retention_time_ms, broker.now_ms()),
    )
    return await _response(message, codes)


async def _response(message: OffsetCommitRequest, codes: Iterable[ErrorCode]) -> OffsetCommitResponse:
    topics = await answer_each(
        message.topics,
        codes,
        lambda index, code: _Partition(partition_index=index, error_code=code),
        lambda name, partitions: _Topic(name=name, partitions=partitions),
    )
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


def _expire_timestamp_ms(retention_time_ms: int, now_ms: int) -> int | None:
    if retention_time_ms == _NO_RETENTION:
        return None
    return min(max(0, now_ms + retention_time_ms), _MAX_TIMESTAMP_MS)


async def _commit(
    broker: "Broker", message: OffsetCommitRequest, offsets: Offsets
) -> tuple[ErrorCode, Collection[tuple[str, int]]]:
    try:
        code = await broker.groups.commit(
            message.group_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            generation=message.generation_id_or_member_epoch,
            offsets=offsets,
        )
    except PartlyCommittedError as refusal:
        return refusal.code, refusal.stored
    except KafkaError as refusal:
        return refusal.code, ()
    return code, ()
