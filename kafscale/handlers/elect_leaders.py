"""ElectLeaders (43), versions 0 to 2: a partition that is led needs no election (KIP-183, KIP-460).

v1: the client says which kind of election, and the answer has an error for the whole request. v2: flexible.
Brokers claim and hand over partitions by themselves, within moments, so there is nothing to start: a partition
without a leader is answered as one without an eligible leader at this moment.
"""

from collections.abc import AsyncIterator, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kafscale.metadata.model import TopicRecord
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import ElectLeadersRequest, ElectLeadersResponse
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving.authorization import check_access
from kafscale.tasks.in_turns import Turns, in_turns

if TYPE_CHECKING:
    from kafscale.cluster.view import ClusterView
    from kafscale.serving.context import Broker, RequestContext

_Asked = ElectLeadersRequest.TopicPartitions
_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = _Topic.PartitionResult

_FIRST_VERSION_WITH_TYPE: Final = 1


class _Election(IntEnum):
    """The kinds, by Kafka's numbers (`ElectionType`)."""

    PREFERRED = 0
    UNCLEAN = 1


_NOT_AVAILABLE: Final = {
    _Election.PREFERRED: (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        "The preferred leader was not available.",
    ),
    _Election.UNCLEAN: (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        "Eligible topic partition leaders are not available.",
    ),
}
_NOT_NEEDED: Final = "Leader election not needed for topic partition."


async def handle(
    broker: "Broker", request: "RequestContext", message: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Each partition of the request; a request for all is answered, as in Kafka, for those without a leader."""
    try:
        check_access(request, Operation.ALTER)
    except KafkaError as refusal:
        return await _refused(message, refusal.code, refusal.message)
    kind = message.election_type if request.api_version >= _FIRST_VERSION_WITH_TYPE else _Election.PREFERRED
    if kind not in _NOT_AVAILABLE:
        return await _refused(
            message, ErrorCode.INVALID_REQUEST, f"Unknown election type {message.election_type}"
        )
    election = _Election(kind)
    if message.topic_partitions is None:
        results = [result async for result in _without_leader(broker.view, election)]
    else:
        turns = Turns()
        results = [await _named(broker.view, asked, election, turns) for asked in message.topic_partitions]
    return ElectLeadersResponse(error_code=ErrorCode.NONE, replica_election_results=results)


async def _named(view: "ClusterView", asked: _Asked, election: _Election, turns: Turns) -> _Topic:
    record = view.topic(asked.topic)
    results = []
    await turns.part_done()
    for index in asked.partitions:
        await turns.part_done()
        if record is None:
            result = _unknown(index, f"No such topic as {quoted(asked.topic)}")
        elif not 0 <= index < record.partition_count:
            result = _unknown(index, f"No such partition as {asked.topic}-{index}")
        elif _is_led(view, record, index):
            result = _result(index, ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED)
        else:
            result = _result(index, *_NOT_AVAILABLE[election])
        results.append(result)
    return _Topic(topic=asked.topic, partition_result=results)


async def _without_leader(view: "ClusterView", election: _Election) -> AsyncIterator[_Topic]:
    async for record in in_turns(tuple(view.topics())):
        missing = [
            _result(index, *_NOT_AVAILABLE[election])
            async for index in in_turns(range(record.partition_count))
            if not _is_led(view, record, index)
        ]
        if missing:
            yield _Topic(topic=record.name, partition_result=missing)


async def _refused(message: ElectLeadersRequest, code: ErrorCode, problem: str) -> ElectLeadersResponse:
    """The error stands for the request and, as in Kafka, for each partition."""
    asked_for: Iterable[_Asked] = message.topic_partitions or ()
    topics, turns = [], Turns()
    for asked in asked_for:
        partitions = []
        await turns.part_done()
        for index in asked.partitions:
            partitions.append(_result(index, code, problem))
            await turns.part_done()
        topics.append(_Topic(topic=asked.topic, partition_result=partitions))
    return ElectLeadersResponse(error_code=code, replica_election_results=topics)


def _is_led(view: "ClusterView", record: TopicRecord, index: int) -> bool:
    leader = view.leader(record.name, index)
    return leader is not None and view.broker(leader.broker_id) is not None


def _unknown(index: int, problem: str) -> _Partition:
    return _result(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)


def _result(index: int, code: ErrorCode, problem: str) -> _Partition:
    return _Partition(partition_id=index, error_code=code, error_message=problem)
