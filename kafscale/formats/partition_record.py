"""The partition record, which says where a log is up to a position in a journal: stored bytes and value.

Stored format: docs/format/partition-record.md. All integers are big-endian.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from struct import Struct, error
from typing import NamedTuple

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.partition_transactions import (
    NO_TRANSACTIONS,
    PartitionTransactions,
    decode_transactions,
    encode_transactions,
)
from kafscale.formats.producer_batches import ProducerBatch

VERSION = 2
SETTLED_VERSION = 1
"""Of a record that names no journal: what is published is all in the record."""
TRANSACTIONS_VERSION = 3
"""Of a record with open or aborted transactions, whether it names a journal or not."""

_HEADER = Struct(">HiqqqHHI")
_EPOCH = Struct(">iq")
_REFERENCE = Struct(">qiiqqqBH")
_PRODUCER = Struct(">qhqB")
_PRODUCER_BATCH = Struct(">iiq")
_LENGTH = Struct(">H")
_JOURNAL = Struct(">16sqH")

_NO_TOPIC = bytes(16)
_OWN_OBJECT = 0
_NAMED_OBJECT = 1


class SegmentReference(NamedTuple):
    """The place of one published segment's bytes.

    `object_key` is empty for the key that the base offset implies (`segment-{base_offset:020d}.kfs`).
    `start` and `size_bytes` bound the segment (header to footer) inside that object.
    `max_timestamp_ms` is the largest timestamp in the segment, -1 when no batch carries one.
    """

    base_offset: int
    last_offset: int
    record_count: int
    leader_epoch: int
    size_bytes: int
    max_timestamp_ms: int
    object_key: str = ""
    start: int = 0

    def at(self, object_key: str, start: int) -> "SegmentReference":
        """The same segment, in that object. Much faster than `_replace`, and made for each slice of a flush."""
        return SegmentReference._make((*self[:_PLACE], object_key, start))


_PLACE = SegmentReference._fields.index("object_key")


@dataclass(frozen=True, slots=True)
class EpochStart:
    """A leader epoch of the partition's history and the first offset written under it."""

    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """An idempotent producer as of the record: its newest batches, oldest first (`formats.producer_batches`)."""

    producer_id: int
    producer_epoch: int
    last_timestamp_ms: int
    batches: tuple[ProducerBatch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalPosition:
    """Where the rest of a partition is published: in the leader's journal, behind `sequence`.

    What the journal's entries up to `sequence` have of the partition is in the record; `sequence` may be above what
    is committed. `topic_id` tells slices of this topic from those of another one that had its name.
    """

    journal_id: str
    sequence: int
    topic_id: uuid.UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord:
    """One partition's published state.

    `segments` are the newest references only, ascending; older ones and the producers that did not change
    since are in the checkpoint object under `checkpoint_key` (empty: there is none), which covers every
    segment below `checkpoint_end_offset`. `log_end_offset` is the high watermark, too, unless `journal` says where
    more is published: that of the leader, None where there is none. `transactions` has all open ones, and those that
    were aborted since the checkpoint.
    """

    leader_epoch: int
    log_start_offset: int = 0
    log_end_offset: int = 0
    epochs: tuple[EpochStart, ...] = ()
    segments: tuple[SegmentReference, ...] = ()
    producers: tuple[ProducerRecord, ...] = ()
    checkpoint_key: str = ""
    checkpoint_end_offset: int = 0
    journal: JournalPosition | None = None
    transactions: PartitionTransactions = NO_TRANSACTIONS

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers see."""
        return self.transactions.last_stable_offset(self.log_start_offset, self.log_end_offset)


UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


def epoch_of(record: PartitionRecord, offset: int) -> int:
    """The leader epoch under which the record at `offset` was, or would be, written; -1 if not remembered."""
    epoch = UNDEFINED_EPOCH
    for entry in record.epochs:
        if entry.start_offset > offset:
            break
        epoch = entry.leader_epoch
    return epoch


def is_same_log(later: PartitionRecord, earlier: PartitionRecord) -> bool:
    """True if `later` may be a later record of `earlier`'s log; False for that of a topic that has the name now.

    The topic's id tells two topics apart where both records name it. Besides, epochs go on for a name, and a topic
    that is created again begins at offset 0. A claim has all that was published, and the epoch under which the last
    record was written stays, with the same start, until it is forgotten. Of one epoch, what a broker knows of the
    journal may be ahead of the record.
    """
    if later.journal and earlier.journal and later.journal.topic_id != earlier.journal.topic_id:
        return False
    if later.leader_epoch == earlier.leader_epoch:
        return True
    if later.leader_epoch < earlier.leader_epoch or later.log_end_offset < earlier.log_end_offset:
        return False
    written = [entry for entry in earlier.epochs if entry.start_offset < earlier.log_end_offset]
    if not written or written[-1] in later.epochs:
        return True
    return bool(later.epochs) and later.epochs[0].start_offset >= earlier.log_end_offset


def epoch_end(record: PartitionRecord, leader_epoch: int) -> tuple[int, int]:
    """The largest known epoch not above `leader_epoch`, and the offset after its last record (KIP-101, KIP-279).

    As Kafka's LeaderEpochFileCache.endOffsetFor: (-1, -1) for an epoch above all known ones; an epoch below
    all known ones ends where the first known one starts.
    """
    if leader_epoch == record.leader_epoch:
        return leader_epoch, record.log_end_offset
    floor = leader_epoch
    for entry in record.epochs:
        if entry.leader_epoch > leader_epoch:
            return floor, entry.start_offset
        floor = entry.leader_epoch
    return UNDEFINED_EPOCH, UNDEFINED_OFFSET


def encode_contents(segments: Iterable[SegmentReference], producers: Iterable[ProducerRecord]) -> bytes:
    """References and producers as stored, at the end of a record or checkpoint."""
    return b"".join((*map(_encode_reference, segments), *map(_encode_producer, producers)))


def decode_contents(
    name: str, data: bytes, position: int, segment_count: int, producer_count: int
) -> tuple[tuple[SegmentReference, ...], tuple[ProducerRecord, ...], int]:
    """The references and producers at `position`, and the position after them. Raises `CorruptDataError`."""
    segments = []
    for _ in range(segment_count):
        reference, position = _decode_reference(name, data, position)
        segments.append(reference)
    producers = []
    for _ in range(producer_count):
        producer, position = _decode_producer(name, data, position)
        producers.append(producer)
    return tuple(segments), tuple(producers), position


def _encode_reference(reference: SegmentReference) -> bytes:
    key = reference.object_key.encode()
    return (
        _REFERENCE.pack(
            reference.base_offset,
            reference.last_offset - reference.base_offset,
            reference.record_count,
            reference.size_bytes,
            reference.max_timestamp_ms,
            reference.start,
            _NAMED_OBJECT if key else _OWN_OBJECT,
            len(key),
        )
        + reference.leader_epoch.to_bytes(4, "big", signed=True)
        + key
    )


def _decode_reference(name: str, data: bytes, position: int) -> tuple[SegmentReference, int]:
    """The reference at `position` and the position after it. Raises `CorruptDataError`."""
    try:
        base_offset, delta, count, size_bytes, max_timestamp_ms, start, kind, key_length = (
            _REFERENCE.unpack_from(data, position)
        )
    except error as problem:
        raise CorruptDataError(name, f"segment reference at byte {position}: {problem}") from problem
    position += _REFERENCE.size
    end = position + 4 + key_length
    if (
        end > len(data)
        or delta < 0
        or kind not in (_OWN_OBJECT, _NAMED_OBJECT)
        or (kind == _OWN_OBJECT) != (not key_length)
    ):
        raise CorruptDataError(name, f"segment reference at byte {position - _REFERENCE.size} is not legal")
    reference = SegmentReference(
        base_offset=base_offset,
        last_offset=base_offset + delta,
        record_count=count,
        leader_epoch=int.from_bytes(data[position : position + 4], "big", signed=True),
        size_bytes=size_bytes,
        max_timestamp_ms=max_timestamp_ms,
        object_key=_text(name, data[position + 4 : end]),
        start=start,
    )
    return reference, end


def _text(name: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as problem:
        raise CorruptDataError(name, f"an object key is not UTF-8: {problem}") from problem


def _encode_producer(producer: ProducerRecord) -> bytes:
    return _PRODUCER.pack(
        producer.producer_id, producer.producer_epoch, producer.last_timestamp_ms, len(producer.batches)
    ) + b"".join(
        _PRODUCER_BATCH.pack(batch.first_sequence, batch.last_sequence, batch.base_offset)
        for batch in producer.batches
    )


def _decode_producer(name: str, data: bytes, position: int) -> tuple[ProducerRecord, int]:
    """The producer at `position` and the position after it. Raises `CorruptDataError`."""
    try:
        producer_id, producer_epoch, last_timestamp_ms, count = _PRODUCER.unpack_from(data, position)
        position += _PRODUCER.size
        batches = []
        for _ in range(count):
            batches.append(ProducerBatch(*_PRODUCER_BATCH.unpack_from(data, position)))
            position += _PRODUCER_BATCH.size
    except error as problem:
        raise CorruptDataError(name, f"producer at byte {position}: {problem}") from problem
    return (
        ProducerRecord(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            last_timestamp_ms=last_timestamp_ms,
            batches=tuple(batches),
        ),
        position,
    )


def encode_partition_record(record: PartitionRecord) -> bytes:
    """The record's stored bytes."""
    key = record.checkpoint_key.encode()
    version = SETTLED_VERSION if record.journal is None else VERSION
    if record.transactions:
        version = TRANSACTIONS_VERSION
    return b"".join(
        (
            _HEADER.pack(
                version,
                record.leader_epoch,
                record.log_start_offset,
                record.log_end_offset,
                record.checkpoint_end_offset,
                len(record.epochs),
                len(record.segments),
                len(record.producers),
            ),
            _LENGTH.pack(len(key)),
            key,
            _encoded_position(record.journal, version),
            *(_EPOCH.pack(epoch.leader_epoch, epoch.start_offset) for epoch in record.epochs),
            encode_contents(record.segments, record.producers),
            encode_transactions(record.transactions) if version == TRANSACTIONS_VERSION else b"",
        )
    )


def _encoded_position(position: JournalPosition | None, version: int) -> bytes:
    if position is None:
        return b"" if version == SETTLED_VERSION else _JOURNAL.pack(_NO_TOPIC, -1, 0)
    journal_id = position.journal_id.encode()
    return _JOURNAL.pack(position.topic_id.bytes, position.sequence, len(journal_id)) + journal_id


def _decode_position(
    name: str, data: bytes, position: int, version: int
) -> tuple[JournalPosition | None, int]:
    topic_id, sequence, length = _JOURNAL.unpack_from(data, position)
    position += _JOURNAL.size
    if not length and version == TRANSACTIONS_VERSION:
        if (topic_id, sequence) != (_NO_TOPIC, -1):
            raise CorruptDataError(name, f"position {sequence} in no journal")
        return None, position
    journal_id = _text(name, data[position : position + length])
    if len(journal_id) != length or sequence < -1:
        raise CorruptDataError(name, f"journal {journal_id[:80]!r}, position {sequence}")
    found = JournalPosition(journal_id=journal_id, sequence=sequence, topic_id=uuid.UUID(bytes=topic_id))
    return found, position + length


def decode_partition_record(name: str, data: bytes) -> PartitionRecord:
    """The record. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < 2:
        raise CorruptDataError(name, f"a partition record of {len(data)} bytes is too short")
    version = int.from_bytes(data[:2], "big")
    if version not in (SETTLED_VERSION, VERSION, TRANSACTIONS_VERSION):
        raise UnknownFormatVersionError(name, version, f"{SETTLED_VERSION} to {TRANSACTIONS_VERSION}")
    journal, transactions = None, NO_TRANSACTIONS
    try:
        _, leader_epoch, log_start, log_end, checkpoint_end, epoch_count, segment_count, producer_count = (
            _HEADER.unpack_from(data)
        )
        (key_length,) = _LENGTH.unpack_from(data, _HEADER.size)
        position = _HEADER.size + _LENGTH.size
        key = _text(name, data[position : position + key_length])
        position += key_length
        if version != SETTLED_VERSION:
            journal, position = _decode_position(name, data, position, version)
        epochs = []
        for _ in range(epoch_count):
            epochs.append(EpochStart(*_EPOCH.unpack_from(data, position)))
            position += _EPOCH.size
    except error as problem:
        raise CorruptDataError(name, f"partition record: {problem}") from problem
    segments, producers, position = decode_contents(name, data, position, segment_count, producer_count)
    if version == TRANSACTIONS_VERSION:
        transactions, position = decode_transactions(name, data, position)
        if not transactions:
            raise CorruptDataError(name, f"no transactions in a record of version {version}")
    if position != len(data):
        raise CorruptDataError(name, f"{len(data) - position} bytes after the end of the partition record")
    return PartitionRecord(
        leader_epoch=leader_epoch,
        log_start_offset=log_start,
        log_end_offset=log_end,
        epochs=tuple(epochs),
        segments=segments,
        producers=producers,
        checkpoint_key=key,
        checkpoint_end_offset=checkpoint_end,
        journal=journal,
        transactions=transactions,
    )
