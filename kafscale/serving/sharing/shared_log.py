"""A partition's log, as a share group needs it."""

from dataclasses import dataclass

from kafscale.log.partition import Partition
from kafscale.share.share_partitions import LogListener
from kafscale.share.state.opened import Led


@dataclass(frozen=True, slots=True)
class PartitionLogOfLeader:
    """Equal to another of the same partition; one that was deleted and created again is another."""

    partition: Partition

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.partition.id.topic

    @property
    def led(self) -> Led | None:
        """This broker's claim; None if it does not lead."""
        partition = self.partition
        return Led(partition.id.topic, partition.led_since_revision) if partition.is_led else None

    @property
    def leader_epoch(self) -> int:
        """Of that claim."""
        return self.partition.record.leader_epoch

    @property
    def log_start_offset(self) -> int:
        """The first record that is there."""
        return self.partition.record.log_start_offset

    def listen(self, listener: LogListener) -> None:
        """Notify the listener from now on."""
        self.partition.listen(listener)

    def forget(self, listener: LogListener) -> None:
        """Notify it no more."""
        self.partition.forget(listener)
