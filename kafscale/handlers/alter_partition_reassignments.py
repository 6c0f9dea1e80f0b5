"""AlterPartitionReassignments (45), versions 0 and 1: partitions stay where the brokers put them (KIP-455).

v1: the client may forbid another number of replicas (KIP-860). Brokers spread the partitions among themselves and
the object store replicates, so there is nothing that an operator could place: an assignment that is in effect
already succeeds, as in Kafka, every other one is refused, and there is none to cancel.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafscale.metadata.model import TopicRecord
from kafscale.protocol.acl_codes import Operation
from kafscale.protocol.api_messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted
from kafscale.serving.authorization import check_access
from kafscale.serving.placement import ReachableBrokers, place_partitions, reachable_brokers
from kafscale.tasks.in_turns import Turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = AlterPartitionReassignmentsResponse.ReassignableTopicResponse
_Partition = _Topic.ReassignablePartitionResponse

_PLACED_BY_BROKERS: Final = (
    "The brokers choose among themselves which of them leads a partition, and every broker can: the object store "
    "holds and replicates the records. There is nothing to move."
)


async def handle(
    broker: "Broker", request: "RequestContext", message: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Each partition of the request, in its order, with the outcome of its assignment."""
    denial = _denial(request)
    assignments = _Assignments(broker, request, may_resize=message.allow_replication_factor_change)
    topics, turns = [], Turns()
    for topic in message.topics:
        partitions = []
        await turns.part_done()
        for asked in topic.partitions:
            await turns.part_done()
            code, problem = ErrorCode.NONE, None
            try:
                if denial is not None:
                    raise KafkaError(denial.code, denial.message)
                assignments.check(topic.name, asked.partition_index, asked.replicas)
            except KafkaError as refusal:
                code, problem = refusal.code, refusal.message or None
            partitions.append(
                _Partition(partition_index=asked.partition_index, error_code=code, error_message=problem)
            )
        topics.append(_Topic(name=topic.name, partitions=partitions))
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=ErrorCode.NONE if denial is None else denial.code,
        error_message=None if denial is None else denial.message,
        responses=topics,
    )


def _denial(request: "RequestContext") -> KafkaError | None:
    """The error of the request and, as in Kafka, of each partition, if its client must not alter the cluster."""
    try:
        check_access(request, Operation.ALTER)
    except KafkaError as denial:
        return denial
    return None


class _Assignments:
    """Compares the assignments that a client wants with those in effect."""

    def __init__(self, broker: "Broker", request: "RequestContext", *, may_resize: bool) -> None:
        self._view = broker.view
        self._read_replicas = broker.read_replicas
        self._brokers: ReachableBrokers = reachable_brokers(broker.view, request.listener)
        self._may_resize = may_resize

    def check(self, topic: str, index: int, wanted: Sequence[int] | None) -> None:
        """Raises `KafkaError` unless the assignment is in effect. `wanted` None: cancel the reassignment."""
        record = self._view.topic(topic)
        if record is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {quoted(topic)}."
            )
        if not 0 <= index < record.partition_count:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}."
            )
        if wanted is None:
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "")
        self._check_brokers(wanted)
        replicas = self._replicas(record, index)
        if len(wanted) != len(replicas) and not self._may_resize:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(replicas)} to {len(wanted)}.",
            )
        if tuple(wanted) != tuple(replicas):
            raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, _PLACED_BY_BROKERS)

    def _check_brokers(self, wanted: Sequence[int]) -> None:
        """Check as Kafka checks a manual assignment; the first broker that is unknown or repeated ends it."""
        if not wanted:
            raise _invalid("an empty replica list")
        seen: set[int] = set()
        for broker_id in wanted:
            if self._view.broker_state(broker_id) is None:
                raise _invalid(f"broker {broker_id}, but no such broker is registered")
            if broker_id in seen:
                raise _invalid(f"the broker {broker_id} more than once")
            seen.add(broker_id)

    def _replicas(self, record: TopicRecord, index: int) -> Sequence[int]:
        """As Metadata shows them."""
        nearby: Mapping[str, Sequence[int]] = self._read_replicas.all(record)
        (placed,) = place_partitions(self._view, self._brokers, nearby, record, (index,))
        return placed.replicas


def _invalid(what: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment includes {what}."
    )
