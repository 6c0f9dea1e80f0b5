"""TxnOffsetCommit (28), versions 0 to 5: a group's offsets in a producer's transaction (KIP-98).

They become visible with the transaction's commit, and are dropped with its abort. v2: leader epochs (KIP-320), and
COORDINATOR_LOAD_IN_PROGRESS. v3: the member and its generation, so that a member that was removed commits nothing
(KIP-447); flexible. v4: TRANSACTION_ABORTABLE (KIP-890). v5: the commit adds the group to the transaction by itself
(TV2, KIP-890); before, AddOffsetsToTxn did.
"""

from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING

from kafscale.errors import StoreUnavailableError
from kafscale.groups.transactional_commits import Committer
from kafscale.protocol.acl_codes import Operation, ResourceType
from kafscale.protocol.api_messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.authorization import check_access, denied
from kafscale.serving.error_per_partition import answer_each
from kafscale.serving.offset_requests import Offsets, commit_each, named
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
_Partition = _Topic.TxnOffsetCommitResponsePartition

_FIRST_VERSION_WITH_LOAD_IN_PROGRESS = 2
_FIRST_VERSION_WITH_TRANSACTION_ABORTABLE = 4
_FIRST_VERSION_THAT_ADDS_THE_GROUP = 5


async def handle(
    broker: "Broker", request: "RequestContext", message: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Store all legal offsets or none, and answer for each partition when they are durable."""
    try:
        check_access(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, message.transactional_id)
        check_access(request, Operation.READ, ResourceType.GROUP, message.group_id)
    except KafkaError as refusal:
        return await _response(message, [refusal.code async for _ in in_turns(named(message.topics))])
    names = (topic.name for topic in message.topics)
    hidden = await denied(request, Operation.READ, ResourceType.TOPIC, names)
    commit = partial(_commit, broker, request.api_version, message)
    return await _response(message, await commit_each(broker, message.topics, hidden, commit))


async def _response(message: TxnOffsetCommitRequest, codes: Iterable[ErrorCode]) -> TxnOffsetCommitResponse:
    topics = await answer_each(
        message.topics,
        codes,
        lambda index, code: _Partition(partition_index=index, error_code=code),
        lambda name, partitions: _Topic(name=name, partitions=partitions),
    )
    return TxnOffsetCommitResponse(throttle_time_ms=0, topics=topics)


async def _commit(
    broker: "Broker", version: int, message: TxnOffsetCommitRequest, offsets: Offsets
) -> tuple[ErrorCode, Collection[tuple[str, int]]]:
    committer = Committer(
        transactional_id=message.transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        member_id=message.member_id,
        group_instance_id=message.group_instance_id,
        generation=message.generation_id,
        adds_group=version >= _FIRST_VERSION_THAT_ADDS_THE_GROUP,
        knows_abortable=version >= _FIRST_VERSION_WITH_TRANSACTION_ABORTABLE,
    )
    try:
        async with store_deadline():
            code = await broker.groups.commit_in_transaction(message.group_id, committer, offsets)
    except StoreUnavailableError:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    except KafkaError as refusal:
        code = refusal.code
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _FIRST_VERSION_WITH_LOAD_IN_PROGRESS:
        # The other one crashes clients before Kafka 2.0 (KAFKA-7296).
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code, ()
