"""ListOffsets (2), versions 0 to 7: first, next and by timestamp.

v0: a list of offsets, by segment. v1: one offset with its timestamp (KIP-79). v2: isolation level (KIP-98). v4:
leader epochs (KIP-320). v6: flexible. v7: -3, the record with the largest timestamp (KIP-734).

For `read_committed` the log ends at the last stable offset: as in Kafka that is the next offset, and a record by
timestamp that lies there or above is not found, whatever lies below.
"""

import logging
from typing import TYPE_CHECKING

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.partition_record import epoch_of
from kafscale.log.partition import Partition
from kafscale.log.reading.timestamp_search import (
    NO_TIMESTAMP,
    Found,
    find_at_or_after,
    find_max_timestamp,
)
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import ListOffsetsRequest, ListOffsetsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.fetch import IsolationLevel
from kafscale.serving.authorization import denied
from kafscale.serving.named_once import named_once
from kafscale.serving.partition_lookup import served_partition
from kafscale.serving.store_deadline import store_deadline

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3

_FIRST_VERSION_WITH_ONE_OFFSET = 1
_FIRST_VERSION_WITH_MAX_TIMESTAMP = 7
_NO_OFFSET = -1
_NO_EPOCH = -1

_Wanted = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition
_Topic = ListOffsetsResponse.ListOffsetsTopicResponse
_Partition = _Topic.ListOffsetsPartitionResponse


async def handle(
    broker: "Broker", request: "RequestContext", message: ListOffsetsRequest
) -> ListOffsetsResponse:
    """Answer for every partition once, as Kafka does; those that must read from the store do so concurrently."""
    named = await named_once(
        ((topic.name, topic.partitions) for topic in message.topics), lambda wanted: wanted.partition_index
    )

    reads_committed = message.isolation_level == IsolationLevel.READ_COMMITTED
    hidden = await denied(request, Operation.DESCRIBE, ResourceType.TOPIC, named.topics)

    async def answer(topic: str, wanted: _Wanted) -> _Partition:
        if topic in hidden:
            refused = _nothing(wanted)
            refused.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return refused
        if (topic, wanted.partition_index) in named.again:
            refused = _nothing(wanted)
            refused.error_code = ErrorCode.INVALID_REQUEST
            return refused
        return await _answer(broker, request, topic, wanted, reads_committed)

    topics = await named.answer_each(answer, lambda topic, answers: _Topic(name=topic, partitions=answers))
    return ListOffsetsResponse(throttle_time_ms=0, topics=topics)


def _nothing(wanted: _Wanted) -> _Partition:
    return _Partition(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.NONE,
        old_style_offsets=[],
        timestamp=NO_TIMESTAMP,
        offset=_NO_OFFSET,
        leader_epoch=_NO_EPOCH,
    )


async def _answer(
    broker: "Broker", request: "RequestContext", topic: str, wanted: _Wanted, reads_committed: bool
) -> _Partition:
    answer = _nothing(wanted)
    try:
        partition = served_partition(broker, topic, wanted.partition_index, wanted.current_leader_epoch)
        if request.api_version < _FIRST_VERSION_WITH_ONE_OFFSET:
            answer.old_style_offsets = await _old_style(broker, partition, wanted)
            return answer
        _check_timestamp(request, wanted.timestamp)
        record = partition.record
        end_offset = record.last_stable_offset if reads_committed else record.log_end_offset
        if wanted.timestamp == LATEST:
            answer.offset = end_offset
            answer.leader_epoch = partition.record.leader_epoch
            return answer
        found = await _find(broker, partition, wanted.timestamp)
        if found is not None and (found[0] < end_offset or wanted.timestamp == EARLIEST):
            answer.offset, answer.timestamp = found
            answer.leader_epoch = epoch_of(partition.record, answer.offset)
    except KafkaError as refusal:
        answer.error_code = refusal.code
    except (StoreError, CorruptDataError) as problem:
        logger.warning("could not look for a timestamp", extra={"topic": topic, "problem": str(problem)})
        answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
    return answer


def _check_timestamp(request: "RequestContext", timestamp_ms: int) -> None:
    lowest = MAX_TIMESTAMP if request.api_version >= _FIRST_VERSION_WITH_MAX_TIMESTAMP else EARLIEST
    if timestamp_ms < lowest:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"timestamp {timestamp_ms} has no meaning in ListOffsets v{request.api_version}",
        )


async def _find(broker: "Broker", partition: Partition, timestamp_ms: int) -> Found | None:
    if timestamp_ms == EARLIEST:
        return partition.record.log_start_offset, NO_TIMESTAMP
    async with store_deadline():
        if timestamp_ms == MAX_TIMESTAMP:
            return await find_max_timestamp(broker.logs, partition)
        return await find_at_or_after(broker.logs, partition, timestamp_ms)


async def _old_style(broker: "Broker", partition: Partition, wanted: _Wanted) -> list[int]:
    """Offsets at which segments start, newest first, as version 0 counts them (Kafka's fetchOffsetsBefore)."""
    record = partition.record
    if wanted.timestamp == EARLIEST:
        return [record.log_start_offset][: max(0, wanted.max_num_offsets)]
    async with store_deadline():
        await broker.logs.load(partition)
    latest = wanted.timestamp == LATEST
    offsets = [
        max(reference.base_offset, record.log_start_offset)
        for reference in partition.references or ()
        if latest or reference.max_timestamp_ms <= wanted.timestamp
    ]
    if latest:
        offsets.append(record.log_end_offset)
    return offsets[::-1][: max(0, wanted.max_num_offsets)]
