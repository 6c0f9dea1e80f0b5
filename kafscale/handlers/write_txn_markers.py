"""WriteTxnMarkers (27), version 1: ends a hanging transaction in partitions that this broker leads (KIP-664).

`kafka-transactions.sh abort` sends it. Kafka's coordinators send it, too; here they leave a key for the leader
(docs/decisions/0091-transactions.md). v1: flexible.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafscale.errors import StoreUnavailableError
from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafscale.protocol.control_records import EndOfTransaction
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.security.audit import changed
from kafscale.serving.authorization import check_access
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.concurrently import for_each
from kafscale.tasks.in_turns import Turns, in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Marker = WriteTxnMarkersResponse.WritableTxnMarkerResult
_Topic = _Marker.WritableTxnMarkerTopicResult
_Partition = _Topic.WritableTxnMarkerPartitionResult


class _Wanted(NamedTuple):
    """A marker for one partition."""

    end: EndOfTransaction
    topic: str
    partition: int


async def handle(
    broker: "Broker", request: "RequestContext", message: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    """Write each marker where the producer has something open, and answer when all are committed."""
    wanted = await _wanted(message)
    try:
        _check_rights(request)
    except KafkaError as refusal:
        return await _response(wanted, [refusal.code] * len(wanted))
    codes = await for_each(wanted, partial(_write, broker))
    done = [
        f"producer {one.end.producer_id} in {one.topic}-{one.partition}"
        for one, code in zip(wanted, codes, strict=True)
        if code is ErrorCode.NONE
    ]
    changed(request.access.principal, request.client_host, "transaction markers written", done)
    return await _response(wanted, codes)


def _check_rights(request: "RequestContext") -> None:
    """An operator may alter the cluster; another broker of Kafka's would act for it."""
    if not request.access.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME, quiet=True):
        check_access(request, Operation.CLUSTER_ACTION)


async def _wanted(message: WriteTxnMarkersRequest) -> list[_Wanted]:
    """Each marker once, however often it is named."""
    wanted: dict[_Wanted, None] = {}
    turns = Turns()
    for marker in message.markers:
        end = EndOfTransaction(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            is_commit=marker.transaction_result,
        )
        await turns.part_done()
        for topic in marker.topics:
            await turns.part_done()
            for index in topic.partition_indexes:
                wanted[_Wanted(end, topic.name, index)] = None
                await turns.part_done()
    return list(wanted)


async def _write(broker: "Broker", wanted: _Wanted) -> ErrorCode:
    found = broker.logs.partition(wanted.topic, wanted.partition)
    if found is None:
        record = broker.view.topic(wanted.topic)
        is_there = record is not None and 0 <= wanted.partition < record.partition_count
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        async with store_deadline():
            await broker.markers.end_transaction(found, wanted.end)
    except KafkaError as refusal:
        return refusal.code
    except StoreUnavailableError:
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.NONE


async def _response(wanted: Sequence[_Wanted], codes: Sequence[ErrorCode]) -> WriteTxnMarkersResponse:
    """One result for each producer."""
    results: dict[int, dict[str, list[_Partition]]] = {}
    async for one, code in in_turns(zip(wanted, codes, strict=True)):
        of_topic = results.setdefault(one.end.producer_id, {}).setdefault(one.topic, [])
        of_topic.append(_Partition(partition_index=one.partition, error_code=code))
    return WriteTxnMarkersResponse(
        markers=[
            _Marker(
                producer_id=producer_id,
                topics=[_Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
            for producer_id, topics in results.items()
        ]
    )
