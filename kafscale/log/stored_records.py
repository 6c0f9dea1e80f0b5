"""Compares what is served here with the records as the metadata store has them.

A broker's picture of a partition may be old: that of a follower whose watch is behind, of a leader that was replaced,
and of a topic that was deleted and created again. What depends on the truth is answered with a read of the store.
"""

import logging

from kafscale.errors import StoreError, StoreUnavailableError
from kafscale.formats.partition_record import PartitionRecord, is_same_log
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.partition import Partition
from kafscale.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)


class StoredRecords:
    """For the partitions of one broker, those that it leads and those that it follows."""

    def __init__(self, followed: FollowedPartitions) -> None:
        self._followed = followed

    async def follow_newer(self, partition: Partition, known_checkpoint_key: str) -> bool:
        """Follow the record that the store has, if it names another checkpoint than the known one.

        False if it does not, or the partition is led, or is another log by now. Raises `StoreError`,
        `CorruptDataError`.
        """
        found = await self._followed.read(partition)
        if not partition.is_followed or found is None or found[0].checkpoint_key == known_checkpoint_key:
            return False
        if not self._is_same(partition, found[0]):
            return False
        partition.follow(*found)
        return True

    async def read_again(self, partition: Partition) -> None:
        """Read the record of a followed partition, and drop its references, so that they are loaded again.

        The watch does not show what was merged or has expired since they were loaded. Raises `StoreError`,
        `CorruptDataError`.
        """
        found = await self._followed.read(partition)
        if found is not None:
            if not self._is_same(partition, found[0]):
                raise StoreUnavailableError(f"{partition.id} is a partition of another topic by now")
            partition.follow(*found)
        partition.references = None

    async def is_same_still(self, partition: Partition) -> bool:
        """True if the metadata store has the log that is served here, and not another topic's of the same name.

        Raises `StoreError`, `CorruptDataError`.
        """
        found = await self._followed.read(partition)
        return found is not None and self._is_same(partition, found[0])

    async def check_beyond_end(self, partition: Partition, offset: int) -> ErrorCode:
        """Returns the reason why `offset` is above the log end offset as it is known here.

        OFFSET_OUT_OF_RANGE only if the stores agree: a consumer that gets it may skip records or start over, and a
        broker that was replaced, or whose watch is behind, knows too little. Raises `CorruptDataError`.
        """
        try:
            if partition.is_followed and await self._followed.catch_up(partition):
                is_known = offset <= partition.record.log_end_offset
                return ErrorCode.NONE if is_known else ErrorCode.OFFSET_OUT_OF_RANGE
            found = await self._followed.read(partition)
        except StoreError as problem:
            logger.warning("could not check an offset", extra={"problem": str(problem)})
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        record, _ = found
        if not self._is_same(partition, record):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not partition.is_led or record.leader_epoch != partition.record.leader_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if offset <= partition.record.log_end_offset:
            return ErrorCode.NONE
        if partition.log is not None and offset <= partition.log.in_flight_end_offset:
            # Others look at the journal itself: they may serve what is stored before its leader knows of it.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.OFFSET_OUT_OF_RANGE

    def _is_same(self, partition: Partition, record: PartitionRecord) -> bool:
        """True if `record` is of the log that is served; if not, the partition is no longer followed."""
        if is_same_log(record, partition.record):
            return True
        if partition.is_followed:
            self._followed.drop_if(partition)
        return False
