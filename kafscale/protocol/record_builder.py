"""Builds record batches (magic 2) from records, for conversions and tests."""

from collections.abc import Iterable, Sequence

from kafscale.protocol.compression import Codec, compress
from kafscale.protocol.record_batch import (
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    write_crc,
    write_header,
)
from kafscale.protocol.records import Record
from kafscale.protocol.types import Buffer
from kafscale.protocol.varint import append_varint, varint_size


class RecordBatchBuilder:
    """Collects records in their encoded form; the first one's timestamp is the base timestamp."""

    def __init__(self, base_offset: int = 0) -> None:
        self._base_offset = base_offset
        self._records = bytearray()
        self._base_timestamp_ms = NO_TIMESTAMP
        self._max_timestamp_ms = NO_TIMESTAMP
        self._last_offset_delta = -1
        self.record_count = 0

    @property
    def size_bytes(self) -> int:
        """The batch with what was appended so far, uncompressed."""
        return HEADER_SIZE + len(self._records)

    def append(
        self,
        timestamp_ms: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        offset: int | None = None,
    ) -> None:
        """Add a record at `offset`, by default the one after the last.

        Raises ValueError when `offset` is not later than the last.
        """
        delta = self._last_offset_delta + 1 if offset is None else offset - self._base_offset
        if delta <= self._last_offset_delta:
            raise ValueError(f"offset {offset} is not after {self._base_offset + self._last_offset_delta}")
        if not self.record_count:
            self._base_timestamp_ms = timestamp_ms
        self._max_timestamp_ms = max(self._max_timestamp_ms, timestamp_ms)
        self._last_offset_delta = delta
        self.record_count += 1
        self._append_record(timestamp_ms - self._base_timestamp_ms, delta, key, value, headers)

    def _append_record(
        self,
        timestamp_delta: int,
        offset_delta: int,
        key: Buffer | None,
        value: Buffer | None,
        headers: Sequence[tuple[str, bytes | None]],
    ) -> None:
        tail = bytearray()
        append_varint(tail, len(headers))
        for name, header_value in headers:
            _append_bytes(tail, name.encode())
            _append_bytes(tail, header_value)
        length = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + len(tail)
        length += _size_of_bytes(key) + _size_of_bytes(value)
        records = self._records
        append_varint(records, length)
        records.append(0)  # attributes: none are in use
        append_varint(records, timestamp_delta)
        append_varint(records, offset_delta)
        _append_bytes(records, key)
        _append_bytes(records, value)
        records += tail

    def build(
        self,
        *,
        codec: Codec = Codec.NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        log_append_time_ms: int | None = None,
        is_transactional: bool = False,
        is_control: bool = False,
    ) -> bytes:
        """The batch with all that was appended, compressed with `codec` even when that makes it larger."""
        records = compress(codec, self._records)
        attributes = int(codec)
        attributes |= TRANSACTIONAL_FLAG if is_transactional else 0
        attributes |= CONTROL_FLAG if is_control else 0
        attributes |= 0 if log_append_time_ms is None else LOG_APPEND_TIME_FLAG
        header = BatchHeader(
            base_offset=self._base_offset,
            batch_length=HEADER_SIZE - LOG_OVERHEAD + len(records),
            partition_leader_epoch=partition_leader_epoch,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self._last_offset_delta,
            base_timestamp=self._base_timestamp_ms,
            max_timestamp=self._max_timestamp_ms if log_append_time_ms is None else log_append_time_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            record_count=self.record_count,
        )
        batch = bytearray(header.size_bytes)
        write_header(batch, 0, header)
        batch[HEADER_SIZE:] = records
        write_crc(batch, 0)
        return bytes(batch)


def encode_batch(
    records: Sequence[Record],
    *,
    codec: Codec = Codec.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
    log_append_time_ms: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """One batch with `records`, which are in offset order; the first one's offset is the base offset."""
    builder = RecordBatchBuilder(records[0].offset)
    for record in records:
        builder.append(record.timestamp_ms, record.key, record.value, record.headers, offset=record.offset)
    return builder.build(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        partition_leader_epoch=partition_leader_epoch,
        log_append_time_ms=log_append_time_ms,
        is_transactional=is_transactional,
        is_control=is_control,
    )


def records_of(
    values: Iterable[bytes | None], *, timestamp_ms: int = 0, base_offset: int = 0
) -> list[Record]:
    """Records without keys at consecutive offsets, one millisecond apart."""
    return [
        Record(base_offset + index, timestamp_ms + index, None, value) for index, value in enumerate(values)
    ]


def _append_bytes(output: bytearray, data: Buffer | None) -> None:
    if data is None:
        append_varint(output, -1)
    else:
        append_varint(output, len(data))
        output += data


def _size_of_bytes(data: Buffer | None) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)
