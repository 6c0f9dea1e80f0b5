"""OffsetCommit (8), versions 2 to 8: a group's offsets in partitions.

v2: a retention of the client's own for its offsets, instead of a timestamp. v3: throttle time. v5: no
retention; offsets are kept as long as their group (KIP-211). v6: leader epochs (KIP-320). v7: static members
(KIP-345). v8: flexible.
"""

import logging
from collections.abc import Collection, Container, Iterable, Iterator
from typing import TYPE_CHECKING

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.object_keys import topic_name_problem
from kafscale.groups.commits import PartlyCommittedError
from kafscale.metadata.model import TopicRecord
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import OffsetCommitRequest, OffsetCommitResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.error_per_partition import answer_each, partitions_of
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

_Topic = OffsetCommitResponse.OffsetCommitResponseTopic
_Partition = _Topic.OffsetCommitResponsePartition

_NO_RETENTION = -1
_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
# Errors of a topic itself: whether the member may commit changes nothing.
_SETTLED = (_UNKNOWN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
# A view that lags behind lacks few topics; a client may name any number.
_MAX_TOPICS_TO_ASK_FOR = 1024
_MAX_TIMESTAMP_MS = (1 << 63) - 1

Offsets = dict[tuple[str, int], CommittedOffset]


async def handle(
    broker: "Broker", request: "RequestContext", message: OffsetCommitRequest
) -> OffsetCommitResponse:
    """Store all legal offsets or none, and answer for each partition when they are durable."""
    names = (topic.name for topic in message.topics)
    hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
    try:
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
    except KafkaError as refusal:
        return await _response(message, [refusal.code async for _ in in_turns(_named(message))])
    records, absent = await _topics(broker, message, hidden)
    codes, offsets = await _sort_out(broker, message, records, absent, hidden)
    if any(code not in _SETTLED for code in codes):
        failure, stored = await _commit(broker, message, offsets)
        if failure is not ErrorCode.NONE:
            codes = [
                # As in Kafka, a member that may not commit gets that error, whatever its texts.
                code if code in _SETTLED or (code is ErrorCode.NONE and partition in stored) else failure
                async for partition, code in in_turns(zip(_named(message), codes, strict=True))
            ]
    return await _response(message, codes)


async def _response(message: OffsetCommitRequest, codes: Iterable[ErrorCode]) -> OffsetCommitResponse:
    topics = await answer_each(
        message.topics,
        codes,
        lambda index, code: _Partition(partition_index=index, error_code=code),
        lambda name, partitions: _Topic(name=name, partitions=partitions),
    )
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


async def _topics(
    broker: "Broker", message: OffsetCommitRequest, hidden: Container[str]
) -> tuple[list[TopicRecord | None], ErrorCode]:
    """Each topic of the request, and the error code of its other partitions.

    Topics that the view does not know as the client does are read from the store: the view may lag behind.
    """
    records = [broker.view.topic(topic.name) for topic in message.topics]
    unsettled: dict[str, None] = {}
    async for topic, record, wanted in in_turns(partitions_of(message.topics, records)):
        if topic.name in hidden:
            continue
        if record is None or wanted.partition_index >= record.partition_count:
            unsettled[topic.name] = None
    legal = [name for name in unsettled if topic_name_problem(name) is None][:_MAX_TOPICS_TO_ASK_FOR]
    if not legal:
        return records, _UNKNOWN
    try:
        async with store_deadline():
            stored = await broker.topics.stored(legal)
    except (StoreError, CorruptDataError) as problem:
        logger.info("could not ask for the topics of a commit", extra={"problem": quoted(str(problem), 500)})
        return records, ErrorCode.COORDINATOR_NOT_AVAILABLE
    return [
        stored.get(topic.name, record) for topic, record in zip(message.topics, records, strict=True)
    ], _UNKNOWN


def _named(message: OffsetCommitRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, one.partition_index) for topic in message.topics for one in topic.partitions)


async def _sort_out(
    broker: "Broker",
    message: OffsetCommitRequest,
    records: list[TopicRecord | None],
    absent: ErrorCode,
    hidden: Container[str],
) -> tuple[list[ErrorCode], Offsets]:
    """The error code of each partition that is refused beforehand, and the offsets of the others."""
    now_ms = broker.now_ms()
    expire_timestamp_ms = _expire_timestamp_ms(message.retention_time_ms, now_ms)
    metadata_max = broker.settings.offset_metadata_max_bytes
    codes: list[ErrorCode] = []
    offsets: Offsets = {}
    async for topic, record, wanted in in_turns(partitions_of(message.topics, records)):
        index, metadata = wanted.partition_index, wanted.committed_metadata or ""
        if topic.name in hidden:
            codes.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif record is None or not 0 <= index < record.partition_count:
            codes.append(absent)
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
    """In UTF-16 code units, as Java counts, and with it Kafka's limit."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


def _expire_timestamp_ms(retention_time_ms: int, now_ms: int) -> int | None:
    if retention_time_ms == _NO_RETENTION:
        return None
    return min(max(0, now_ms + retention_time_ms), _MAX_TIMESTAMP_MS)


async def _commit(
    broker: "Broker", message: OffsetCommitRequest, offsets: Offsets
) -> tuple[ErrorCode, Collection[tuple[str, int]]]:
    """The outcome of the commit, and the offsets that are durable although it failed."""
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
