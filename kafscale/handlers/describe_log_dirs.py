"""DescribeLogDirs (35), versions 1 to 4: how many bytes each partition has in the object store.

v2: flexible. v3: an error for the whole request. v4: total and usable bytes of the volume (KIP-827), which an
object store does not report: -1. The one log directory stands for the namespace in the object store. As in
Kafka each broker answers for the partitions that it owns.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kafscale.errors import CorruptDataError, StoreError
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access
from kafscale.serving.placement import log_directory
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Directory = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Directory.DescribeLogDirsTopic


async def handle(
    broker: "Broker", request: "RequestContext", message: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """The sizes, or KAFKA_STORAGE_ERROR for the directory if the size of a partition cannot be read."""
    try:
        check_access(request, Operation.DESCRIBE)
    except KafkaError as refusal:
        return DescribeLogDirsResponse(error_code=refusal.code, results=[])
    try:
        async with store_deadline():
            topics = [
                await _topic(broker, name, indexes)
                async for name, indexes in in_turns(_wanted(broker, message))
            ]
        code = ErrorCode.NONE
    except (StoreError, CorruptDataError):
        topics, code = [], ErrorCode.KAFKA_STORAGE_ERROR
    directory = _Directory(
        error_code=code,
        log_dir=log_directory(broker.settings),
        topics=[topic for topic in topics if topic.partitions],
    )
    return DescribeLogDirsResponse(error_code=ErrorCode.NONE, results=[directory])


def _wanted(broker: "Broker", message: DescribeLogDirsRequest) -> Iterable[tuple[str, Iterable[int]]]:
    """The requested topics and partitions that exist, each once."""
    if message.topics is None:
        return [(record.name, range(record.partition_count)) for record in broker.view.topics()]
    wanted: dict[str, dict[int, None]] = {}
    for asked in message.topics:
        record = broker.view.topic(asked.topic)
        if record is not None:
            legal = (index for index in asked.partitions if 0 <= index < record.partition_count)
            wanted.setdefault(asked.topic, {}).update(dict.fromkeys(legal))
    return wanted.items()


async def _topic(broker: "Broker", name: str, indexes: Iterable[int]) -> _Topic:
    partitions = []
    async for index in in_turns(indexes):
        size_bytes = await broker.logs.size_bytes(name, index)
        if size_bytes is not None:
            partitions.append(
                _Topic.DescribeLogDirsPartition(
                    partition_index=index, partition_size=size_bytes, offset_lag=0, is_future_key=False
                )
            )
    return _Topic(name=name, partitions=partitions)
