"""OffsetCommit (8), versions 2 to 10: a group's offsets in partitions.

v2: a retention of the client's own for its offsets, instead of a timestamp. v3: throttle time. v5: no
retention; offsets are kept as long as their group (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible. v9: members of consumer groups, by their epoch (KIP-848). v10: topics by id.
"""

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kafscale.groups.commits import PartlyCommittedError
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import OffsetCommitRequest, OffsetCommitResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.error_per_partition import answer_each
from kafscale.serving.offset_requests import Offsets, commit_each, named
from kafscale.serving.topic_ids import names_of
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition

_FIRST_VERSION_WITH_MEMBER_EPOCHS = 9
_FIRST_VERSION_WITH_TOPIC_IDS = 10
_NO_RETENTION = -1
_MAX_TIMESTAMP_MS = (1 << 63) - 1


async def handle(
    broker: "Broker", request: "RequestContext", message: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Store all legal offsets or none, and answer for each partition when they are durable."""
    by_id = request.api_version >= _FIRST_VERSION_WITH_TOPIC_IDS
    topic_ids = await _name_topics(broker, message.topics) if by_id else {}
    names = (topic.name for topic in message.topics if topic.name or not by_id)
    hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
    except KafkaError as refusal:
        return await _response(message, [refusal.code async for _ in in_turns(named(message.topics))])
    codes = await commit_each(
        broker,
        message.topics,
        hidden,
        partial(_commit, broker, request.api_version, message),
        expire_timestamp_ms=_expire_timestamp_ms(message.retention_time_ms, broker.now_ms()),
        topic_ids=topic_ids,
    )
    if by_id:
        codes = [
            ErrorCode.UNKNOWN_TOPIC_ID if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not name else code
            async for (name, _), code in in_turns(zip(named(message.topics), codes, strict=True))
        ]
    return await _response(message, codes)


async def _name_topics(
    broker: "Broker", topics: Sequence[OffsetCommitRequest.OffsetCommitRequestTopic]
) -> Mapping[str, uuid.UUID]:
    """Give each topic of the request its name, none to one that is not there; returns their ids by name."""
    names = await names_of(broker, [topic.topic_id for topic in topics])
    for topic in topics:
        topic.name = "" if topic.topic_id is None else names.get(topic.topic_id, "")
    return {name: topic_id for topic_id, name in names.items()}


async def _response(message: OffsetCommitRequest, codes: Iterable[ErrorCode]) -> OffsetCommitResponse:
    topics = await answer_each(
        message.topics,
        codes,
        lambda index, code: _Partition(partition_index=index, error_code=code),
        lambda name, partitions: _Topic(name=name, partitions=partitions),
    )
    for topic, answer in zip(message.topics, topics, strict=True):
        answer.topic_id = topic.topic_id
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


def _expire_timestamp_ms(retention_time_ms: int, now_ms: int) -> int | None:
    if retention_time_ms == _NO_RETENTION:
        return None
    return min(max(0, now_ms + retention_time_ms), _MAX_TIMESTAMP_MS)


async def _commit(
    broker: "Broker", version: int, message: OffsetCommitRequest, offsets: Offsets
) -> tuple[ErrorCode, Collection[tuple[str, int]]]:
    try:
        code = await broker.groups.commit(
            message.group_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            generation=message.generation_id_or_member_epoch,
            offsets=offsets,
            knows_member_epochs=version >= _FIRST_VERSION_WITH_MEMBER_EPOCHS,
        )
    except PartlyCommittedError as refusal:
        return refusal.code, refusal.stored
    except KafkaError as refusal:
        return refusal.code, ()
    return code, ()
