"""DeleteRecords (21), versions 0 to 2: moves log start offsets (KIP-107). v2: flexible.

In Kafka the timeout bounds the wait for other replicas. There are none, so a leader answers with what it has done
even where the timeout is 0: here it waits for the store as long as a request without a timeout does.
"""

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DeleteRecordsResponse

from kafscale.errors import CorruptDataError, StoreError
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving import store_deadline
from kafscale.serving.named_once import named_once
from kafscale.serving.partition_lookup import served_partition

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

logger = logging.getLogger(__name__)

_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Partition = _Topic.DeleteRecordsPartitionResult
_NO_LOW_WATERMARK = -1


async def handle(broker: "Broker", request: "RequestContext", message: Any) -> Any:
    """Move each partition's log start offset, all at once, and answer with what it is then."""
    wait_sec = max(message.timeout_ms / 1000, store_deadline.STORE_DEADLINE_SEC)
    deadline_sec = asyncio.get_running_loop().time() + wait_sec
    named = await named_once(message.topics, "name", "partition_index")
    topics = await named.answer_each(
        partial(_delete, broker, deadline_sec), lambda topic, answers: _Topic(name=topic, partitions=answers)
    )
    return DeleteRecordsResponse(throttle_time_ms=0, topics=topics)


async def _delete(broker: "Broker", deadline_sec: float, topic: str, wanted: Any) -> Any:
    # A write that is under way goes on: whether it moved the offset is only unknown to the client.
    deletion = broker.started.spawn(_delete_before(broker, topic, wanted), "delete records")
    try:
        async with asyncio.timeout_at(deadline_sec):
            low_watermark, error_code = await asyncio.shield(deletion)
    except TimeoutError:
        low_watermark, error_code = _NO_LOW_WATERMARK, ErrorCode.REQUEST_TIMED_OUT
    return _Partition(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error_code
    )


async def _delete_before(broker: "Broker", topic: str, wanted: Any) -> tuple[int, ErrorCode]:
    """The log start offset as it is then, and how it went."""
    try:
        partition = served_partition(broker, topic, wanted.partition_index)
        return await broker.record_deletion.delete_before(partition, wanted.offset), ErrorCode.NONE
    except KafkaError as refusal:
        return _NO_LOW_WATERMARK, refusal.code
    except (StoreError, CorruptDataError) as problem:
        logger.warning("could not delete records", extra={"topic": quoted(topic), "problem": str(problem)})
        return _NO_LOW_WATERMARK, ErrorCode.KAFKA_STORAGE_ERROR
