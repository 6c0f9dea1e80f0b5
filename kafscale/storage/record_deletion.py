"""DeleteRecords: the log start offset moves up in the record, what lies below it goes later."""

from dataclasses import replace

from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.storage.log_manager import LogManager
from kafscale.storage.partition import Partition
from kafscale.storage.publisher import FencedError
from kafscale.storage.removals import Removals

HIGH_WATERMARK = -1


class RecordDeletion:
    """Moves log start offsets; what lies below them is removed after a grace period."""

    def __init__(self, logs: LogManager, removals: Removals) -> None:
        self._logs = logs
        self._removals = removals

    async def delete_before(self, partition: Partition, offset: int) -> int:
        """Make `offset` (-1: the high watermark) the log start offset unless it is higher; returns the result.

        Raises `KafkaError` OFFSET_OUT_OF_RANGE and NOT_LEADER_OR_FOLLOWER.
        """
        if not partition.is_led:
            raise _not_led(partition)
        log = await self._logs.open(partition)
        async with partition.record_lock:
            if log is None or partition.log is not log:
                raise _not_led(partition)
            record = partition.record
            wanted = record.log_end_offset if offset == HIGH_WATERMARK else offset
            if not 0 <= wanted <= record.log_end_offset:
                raise KafkaError(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"offset {offset} of {partition.id} is not within 0 to {record.log_end_offset}",
                )
            if wanted <= record.log_start_offset:
                return record.log_start_offset
            after = replace(
                record,
                log_start_offset=wanted,
                segments=tuple(segment for segment in record.segments if segment.last_offset >= wanted),
            )
            try:
                revision = await self._logs.publisher.write_record(partition, after)
            except FencedError as fenced:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(fenced)) from fenced
            partition.publish(after, revision)
            log.adopt(after)
        assert partition.references is not None
        self._removals.remove_later(partition, partition.references.drop_below(wanted))
        return wanted


def _not_led(partition: Partition) -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker does not lead {partition.id}")
