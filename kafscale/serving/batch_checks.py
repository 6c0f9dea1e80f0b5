"""The checks of a produced batch before it is appended. Pure: each raises `KafkaError`, which the client receives."""

from typing import Final

from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import MOST_PRODUCERS
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.produce import ProduceRequest
from kafscale.protocol.record_batch import BatchHeader, validate_batch

FIRST_VERSION_WITH_BATCHES: Final = 3
"""Of Produce. Older versions carry message sets of magic 0 or 1."""

_FIRST_VERSION_WITH_ZSTD: Final = 7
_MAGIC_POSITION: Final = 16
_MAGIC_WITH_BATCHES: Final = 2
_LEGAL_ACKS: Final = (-1, 0, 1)


def is_message_set(records: memoryview) -> bool:
    """True if these are messages of magic 0 or 1."""
    return len(records) > _MAGIC_POSITION and records[_MAGIC_POSITION] < _MAGIC_WITH_BATCHES


def check_request(produce: ProduceRequest) -> None:
    """Raises `KafkaError` INVALID_REQUIRED_ACKS."""
    if produce.acks not in _LEGAL_ACKS:
        raise KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {produce.acks}, legal are -1 (all), 0 and 1"
        )


def checked_batch(
    records: memoryview | KafkaError | None, partition: Partition, version: int, now_ms: int
) -> tuple[memoryview, BatchHeader]:
    """The one batch of a partition and its header.

    `records`: a refusal where a message set could not be converted. Raises `KafkaError` by what is wrong with it.
    """
    if isinstance(records, KafkaError):
        # A new one: raised itself, it would refer to this frame, which refers to it, and both to the request.
        raise KafkaError(records.code, records.message)
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "there is no record batch for the partition")
    header = validate_batch(records, 0, len(records), partition.config.max_message_bytes)
    if version < _FIRST_VERSION_WITH_ZSTD and header.codec == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce v{_FIRST_VERSION_WITH_ZSTD} or later, this request is v{version}",
        )
    latest_ms = now_ms + partition.config.message_timestamp_after_max_ms
    if header.max_timestamp > latest_ms and not partition.rules.log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {header.max_timestamp} is more than message.timestamp.after.max.ms "
            f"({partition.config.message_timestamp_after_max_ms}) after the broker's time {now_ms}",
        )
    return records, header


def check_room(log: PartitionLog, header: BatchHeader) -> None:
    """Raises `KafkaError` NOT_ENOUGH_REPLICAS if too many idempotent producers wait in the partition."""
    if header.producer_id >= 0 and log.producers.has_no_room_for(header.producer_id):
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{MOST_PRODUCERS} idempotent producers wait for their records to be stored in the partition",
        )
