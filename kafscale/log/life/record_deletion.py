"""DeleteRecords: raises the log start offset in the record; the objects below it are deleted later."""

from kafscale.cluster.topic_config_table import CleanupPolicy
from kafscale.log.life.log_start import LogStart
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.protocol.error_codes import ErrorCode, KafkaError

HIGH_WATERMARK = -1


class RecordDeletion:
    """Raises log start offsets for clients; the objects below them are deleted after a grace period."""

    def __init__(self, log_start: LogStart) -> None:
        self._log_start = log_start

    async def delete_before(self, partition: Partition, offset: int) -> int:
        """Make `offset` (-1: the high watermark) the log start offset unless it is higher; returns the result.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER, and, for a topic that is compacted and
        nothing else, POLICY_VIOLATION; `StoreError`, `CorruptDataError`.
        """
        if not partition.is_led:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition.id}")
        policy = partition.config.cleanup_policy
        if CleanupPolicy.COMPACT in policy and CleanupPolicy.DELETE not in policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {partition.id} can not be deleted due to the configured policy",
            )
        log_end_offset = partition.record.log_end_offset
        wanted = log_end_offset if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {partition.id} is not within 0 to {log_end_offset}",
            )
        try:
            return (await self._log_start.move_up(partition, wanted)).log_start_offset
        except FencedError as fenced:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(fenced)) from fenced
