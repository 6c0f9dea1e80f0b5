"""The partition that a request names, or the error that says why this broker does not serve it."""

from typing import TYPE_CHECKING

from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kafscale.serving.context import Broker

NO_EPOCH = -1


def unknown_partition() -> KafkaError:
    """The refusal of a partition that is not there.

    It does not name it: a request may name one of 32 KiB a hundred thousand times.
    """
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this server does not host the partition")


def served_partition(
    broker: "Broker", topic: str, index: int, current_leader_epoch: int = NO_EPOCH
) -> Partition:
    """The partition if this broker leads it, checked against the leader epoch that the client believes in.

    Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or
    UNKNOWN_LEADER_EPOCH (KIP-320).
    """
    partition = broker.logs.partition(topic, index)
    if partition is None:
        check_exists(broker, topic, index)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {topic}-{index}")
    check_leader_epoch(partition, current_leader_epoch)
    return partition


def check_exists(broker: "Broker", topic: str, index: int) -> None:
    """Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION unless the cluster has the partition."""
    record = broker.view.topic(topic)
    if record is None or not 0 <= index < record.partition_count:
        raise unknown_partition()


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> None:
    """Raises `KafkaError` when the client believes in another leader epoch than this broker (KIP-320)."""
    leader_epoch = partition.record.leader_epoch
    if current_leader_epoch not in (NO_EPOCH, leader_epoch):
        older = current_leader_epoch < leader_epoch
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"the leader epoch of {partition.id} is {leader_epoch}, the request says {current_leader_epoch}",
        )
