"""The partition that a request names, or the error that says why this broker does not serve it."""

from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.context import Broker
from kafscale.serving.leader_epoch import NO_EPOCH, check_leader_epoch


def unknown_partition() -> KafkaError:
    """The refusal of a partition that does not exist.

    It does not name it: a request may name one of 32 KiB a hundred thousand times.
    """
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "this server does not host the partition")


def served_partition(
    broker: Broker, topic: str, index: int, current_leader_epoch: int = NO_EPOCH
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


def check_exists(broker: Broker, topic: str, index: int) -> None:
    """Raises `KafkaError` UNKNOWN_TOPIC_OR_PARTITION unless the cluster has the partition."""
    record = broker.view.topic(topic)
    if record is None or not 0 <= index < record.partition_count:
        raise unknown_partition()
