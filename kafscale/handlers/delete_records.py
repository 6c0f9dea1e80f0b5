"""DeleteRecords (21), versions 0 to 2: moves log start offsets (KIP-107). v2: flexible.

In Kafka the timeout bounds the wait for other replicas. There are none, so a leader answers with the outcome even
if the timeout is 0: it waits for the store as long as a request without a timeout does.
"""

import asyncio
import logging
from collections.abc import Container
from functools import partial
from typing import TYPE_CHECKING

from kafscale.errors import CorruptDataError, StoreError
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import DeleteRecordsRequest, DeleteRecordsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.security.audit import changed
from kafscale.serving import store_deadline
from kafscale.serving.authorization import denied
from kafscale.serving.named_once import named_once
from kafscale.serving.partition_lookup import served_partition

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

_Wanted = DeleteRecordsRequest.DeleteRecordsTopic.DeleteRecordsPartition
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult
_NO_LOW_WATERMARK = -1


async def handle(
    broker: "Broker", request: "RequestContext", message: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move each partition's log start offset, concurrently, and answer with the new one."""
    wait_sec = max(message.timeout_ms / 1000, store_deadline.STORE_DEADLINE_SEC)
    deadline_sec = asyncio.get_running_loop().time() + wait_sec
    named = await named_once(
        ((topic.name, topic.partitions) for topic in message.topics), lambda wanted: wanted.partition_index
    )
    refused = await denied(request, Operation.DELETE, ResourceType.TOPIC, named.topics)
    done: list[str] = []
    topics = await named.answer_each(
        partial(_delete, broker, deadline_sec, refused, done),
        lambda topic, answers: _Topic(name=topic, partitions=answers),
    )
    changed(request.access.principal, request.client_host, "records deleted", done)
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _delete(
    broker: "Broker",
    deadline_sec: float,
    refused: Container[str],
    done: list[str],
    topic: str,
    wanted: _Wanted,
) -> _Partition:
    """`done`: gets what was deleted, for the audit log."""
    if topic in refused:
        return _Partition(
            partition_index=wanted.partition_index,
            low_watermark=_NO_LOW_WATERMARK,
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    # A write in progress goes on: only the client does not know whether it moved the offset.
    deletion = broker.started.spawn(_delete_before(broker, topic, wanted), "delete records")
    try:
        async with asyncio.timeout_at(deadline_sec):
            low_watermark, error_code = await asyncio.shield(deletion)
    except TimeoutError:
        low_watermark, error_code = _NO_LOW_WATERMARK, ErrorCode.REQUEST_TIMED_OUT
    if error_code is ErrorCode.NONE:
        done.append(f"{topic}-{wanted.partition_index} before {low_watermark}")
    return _Partition(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error_code
    )


async def _delete_before(broker: "Broker", topic: str, wanted: _Wanted) -> tuple[int, ErrorCode]:
    """The new log start offset, and an error code."""
    try:
        partition = served_partition(broker, topic, wanted.partition_index)
        return await broker.record_deletion.delete_before(partition, wanted.offset), ErrorCode.NONE
    except KafkaError as refusal:
        return _NO_LOW_WATERMARK, refusal.code
    except (StoreError, CorruptDataError) as problem:
        logger.warning("could not delete records", extra={"topic": quoted(topic), "problem": str(problem)})
        return _NO_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR
