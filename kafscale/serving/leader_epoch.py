"""The leader epoch that a client believes in, checked against this broker's (KIP-320)."""

from typing import Final

from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode, KafkaError

NO_EPOCH: Final = -1
"""The client names no leader epoch."""


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> None:
    """Raises `KafkaError` FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH if the client believes in another epoch."""
    leader_epoch = partition.record.leader_epoch
    if current_leader_epoch not in (NO_EPOCH, leader_epoch):
        older = current_leader_epoch < leader_epoch
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"the leader epoch of {partition.id} is {leader_epoch}, the request says {current_leader_epoch}",
        )
