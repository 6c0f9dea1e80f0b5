"""AlterReplicaLogDirs (34), versions 1 and 2: a partition is in the one log directory that there is (KIP-113).

v2: flexible. The directory is that of DescribeLogDirs, the namespace in the object store: to move a partition there
succeeds at once, any other directory is unknown.
"""

from typing import TYPE_CHECKING

from kafscale.protocol.acl_codes import CLUSTER_NAME, Operation, ResourceType
from kafscale.protocol.api_messages import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.placement import log_directory
from kafscale.tasks.in_turns import Turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker, RequestContext

_Topic = AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult
_Partition = _Topic.AlterReplicaLogDirPartitionResult


async def handle(
    broker: "Broker", request: "RequestContext", message: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Each partition once; of two directories for one, as in Kafka, the last counts."""
    wanted: dict[str, dict[int, str]] = {}
    turns = Turns()
    for directory in message.dirs:
        await turns.part_done()
        for topic in directory.topics:
            await turns.part_done()
            of_topic = wanted.setdefault(topic.name, {})
            for index in topic.partitions:
                of_topic[index] = directory.path
                await turns.part_done()
    is_allowed = request.access.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    results = []
    for name, partitions in wanted.items():
        answers = []
        for index, path in partitions.items():
            code = _code(broker, name, index, path) if is_allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            answers.append(_Partition(partition_index=index, error_code=code))
            await turns.part_done()
        results.append(_Topic(topic_name=name, partitions=answers))
        await turns.part_done()
    return AlterReplicaLogDirsResponse(results=results)


def _code(broker: "Broker", topic: str, index: int, path: str) -> ErrorCode:
    if path != log_directory(broker.settings):
        return ErrorCode.LOG_DIR_NOT_FOUND
    record = broker.view.topic(topic)
    if record is None or not 0 <= index < record.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leader = broker.view.leader(topic, index)
    # As in DescribeLogDirs, each broker answers for the partitions that it leads.
    is_here = leader is not None and leader.broker_id == broker.settings.broker_id
    return ErrorCode.NONE if is_here else ErrorCode.REPLICA_NOT_AVAILABLE
