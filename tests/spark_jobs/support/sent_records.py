"""Records as a test gives them, the batches made of them, and what every reader must find. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.partition_transactions import TransactionEvent
from kafscale.protocol.compression import Codec
from kafscale.protocol.control_records import EndOfTransaction, end_of_transaction_batch
from kafscale.protocol.record_batch import read_header, write_crc, write_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record, iterate_records

CREATE_TIME, LOG_APPEND_TIME = 0, 1
FIRST_TIMESTAMP_MS = 1_700_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record to be written. `timestamp_ms` None: `FIRST_TIMESTAMP_MS` + its offset.

    `gap`: how many offsets are left out before it, as compaction and leftovers leave them.
    """

    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    gap: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records that go into one batch. `log_append_time_ms`: what the log's clock said, None for CreateTime.

    `gap_after`: offsets after the last record that belong to the batch. `is_control`: markers of transactions.
    `producer_id`: of a transaction, -1 for none.
    """

    records: Sequence[Sent]
    codec: Codec = Codec.NONE
    log_append_time_ms: int | None = None
    gap_after: int = 0
    is_control: bool = False
    producer_id: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A record as it lies in the log. `timestamp_type`: `CREATE_TIME` or `LOG_APPEND_TIME`."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def timestamp(self) -> datetime:
        return _EPOCH + timedelta(milliseconds=self.timestamp_ms)

    def row(self) -> dict[str, Any]:
        """The columns of Spark's own Kafka source; `headers` is null for a record without any."""
        return {
            "key": self.key,
            "value": self.value,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "timestamp": self.timestamp,
            "timestampType": self.timestamp_type,
            "headers": [{"key": name, "value": value} for name, value in self.headers] or None,
        }


def sent(count: int, text: str = "value", *, first: int = 0, value_bytes: int = 0) -> list[Sent]:
    """`count` records with keys and values that no other record has; values of `value_bytes` at least."""
    return [
        Sent(key=b"key-%d" % number, value=f"{text}-{number}".encode().ljust(value_bytes, b"."))
        for number in range(first, first + count)
    ]


def batches_of(
    records: Sequence[Sent],
    codec: Codec = Codec.NONE,
    *,
    batch_records: int | None = None,
    log_append_time_ms: int | None = None,
) -> list[Batch]:
    """The records as batches of at most `batch_records`; None: all in one."""
    size = batch_records or len(records)
    return [
        Batch(records=records[start : start + size], codec=codec, log_append_time_ms=log_append_time_ms)
        for start in range(0, len(records), size)
    ]


def marker(producer_id: int, *, is_commit: bool, decision: int = 0) -> Batch:
    """The control batch that ends a transaction. `decision`: the revision at which it was decided."""
    end = EndOfTransaction(producer_id, 0, 0, is_commit, decision)
    (record,) = iterate_records(memoryview(end_of_transaction_batch(end, 0)[0]), 1024)
    contents = Sent(key=record.key, value=record.value, headers=tuple(record.headers))
    return Batch(records=[contents], is_control=True, producer_id=producer_id)


def transaction_events(batches: Sequence[bytes]) -> list[TransactionEvent]:
    """The effects of encoded batches on transactions."""
    found = []
    for batch in batches:
        header = read_header(batch, 0)
        if header.producer_id >= 0:
            kind = kind_of_batch(header, memoryview(batch))
            found.append(
                TransactionEvent(kind, header.producer_id, header.producer_epoch, header.base_offset)
            )
    return found


def encode(batch: Batch, next_offset: int, leader_epoch: int) -> tuple[bytes, list[Record]]:
    """The batch's bytes from `next_offset` on (its gaps apart), and its records as they are stored."""
    records, offset = [], next_offset
    for one in batch.records:
        offset += one.gap
        timestamp_ms = FIRST_TIMESTAMP_MS + offset if one.timestamp_ms is None else one.timestamp_ms
        records.append(Record(offset, timestamp_ms, one.key, one.value, one.headers))
        offset += 1
    data = encode_batch(
        records,
        codec=batch.codec,
        partition_leader_epoch=leader_epoch,
        log_append_time_ms=batch.log_append_time_ms,
        is_control=batch.is_control,
        is_transactional=batch.is_control or batch.producer_id >= 0,
        producer_id=batch.producer_id,
        producer_epoch=0 if batch.producer_id >= 0 else -1,
    )
    if batch.log_append_time_ms is not None:
        records = [record._replace(timestamp_ms=batch.log_append_time_ms) for record in records]
    return _longer(data, batch.gap_after), records


def _longer(data: bytes, offsets: int) -> bytes:
    """The batch with `offsets` more at its end."""
    if not offsets:
        return data
    changed, header = bytearray(data), read_header(data, 0)
    write_header(changed, 0, header._replace(last_offset_delta=header.last_offset_delta + offsets))
    write_crc(changed, 0)
    return bytes(changed)
