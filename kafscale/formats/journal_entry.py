"""The head of a journal's entry and of a gathered object, and the fence that ends a journal.

Stored format: docs/format/journal.md. All integers are big-endian.
"""

import uuid
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from struct import Struct, error
from typing import NamedTuple

from crc32c import crc32c

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.partition_transactions import BatchKind
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.protocol.types import Buffer

MAGIC = b"KJNL"
VERSION = 1
FIXED_BYTES = 50
"""So much of an object says how long its head is."""
NOTHING_COMMITTED = -1
MAX_SLICES = 1_000_000
MAX_HEAD_BYTES = 256 * 1024 * 1024

_FIXED = Struct(">4sHHIIIiqqqH")
_CRC_START, _CRC_END = 8, 12
_SLICE = Struct(">16siiqIIqQQIBHHH")
_PRODUCER = Struct(">qhiiq")
_BATCH_KIND = Struct(">B")


class CellKind(IntEnum):
    """The kind of an object. A gathered object has the layout of an entry, under a key of its own."""

    ENTRY = 0
    FENCE = 1
    GATHERED = 2


class SliceKind(IntEnum):
    """The contents of a slice. With transactional batches or control batches, the row says which batch is which."""

    RECORDS = 0
    TRANSACTIONS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceProducer:
    """A batch of an idempotent producer in a slice; a control batch has the sequence numbers -1 to -1."""

    producer_id: int
    producer_epoch: int
    batch: ProducerBatch
    kind: BatchKind = BatchKind.PLAIN


ProducerBatches = list[tuple[int, int, int, int, int, BatchKind]]
"""Of idempotent producers' batches: producer id, producer epoch, first and last sequence, base offset, kind."""


class EntrySlice(NamedTuple):
    """One partition's part of an entry: a whole segment image, header to footer.

    `start` counts from the end of the head. `object_key` names the object that holds the image instead (`start` 0);
    empty: the entry itself does. `body_crc` is the footer's. `max_timestamp_ms` is -1 when no batch carries one.
    """

    topic_id: uuid.UUID
    topic: str
    partition: int
    leader_epoch: int
    base_offset: int
    last_offset: int
    record_count: int
    max_timestamp_ms: int
    size_bytes: int
    body_crc: int
    start: int = 0
    object_key: str = ""
    producers: tuple[SliceProducer, ...] = ()
    kind: SliceKind = SliceKind.RECORDS

    def at(self, start: int) -> "EntrySlice":
        """The same slice, beginning there. Much faster than `_replace`, and made for each slice of an entry."""
        return EntrySlice._make((*self[:_START], start, *self[_START + 1 :]))

    @property
    def producer_batches(self) -> ProducerBatches:
        """The batches that `producers` names, as reading the image finds them."""
        return [
            (
                one.producer_id,
                one.producer_epoch,
                one.batch.first_sequence,
                one.batch.last_sequence,
                one.batch.base_offset,
                one.kind,
            )
            for one in self.producers
        ]


_START = EntrySlice._fields.index("start")


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryHead:
    """Header and directory of an entry, or of a gathered object (then `committed_through` is -1).

    `committed_through`: the newest sequence that the broker knew to be committed when it sealed this one; -1: none.
    `created_ms`: Unix milliseconds. `slices` ascend by topic id and partition, one for each partition.
    """

    journal_id: str
    broker_id: int
    sequence: int
    committed_through: int
    created_ms: int
    slices: tuple[EntrySlice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The end of a journal: no entry from `sequence` on was ever stored. `broker_id`: whose fence it is."""

    journal_id: str
    broker_id: int
    sequence: int
    created_ms: int


def encode_head(head: EntryHead, kind: CellKind = CellKind.ENTRY) -> bytes:
    """The head's bytes; the slices follow it in their order. Raises `ValueError` if they are not in order."""
    _check_order(head)
    parts = [head.journal_id.encode()]
    for one in head.slices:
        topic, key = one.topic.encode(), one.object_key.encode()
        parts.append(
            _SLICE.pack(
                one.topic_id.bytes,
                one.partition,
                one.leader_epoch,
                one.base_offset,
                one.last_offset - one.base_offset,
                one.record_count,
                one.max_timestamp_ms,
                one.start,
                one.size_bytes,
                one.body_crc,
                one.kind,
                len(topic),
                len(key),
                len(one.producers),
            )
        )
        parts += (topic, key)
        for producer in one.producers:
            batch = producer.batch
            parts.append(
                _PRODUCER.pack(
                    producer.producer_id,
                    producer.producer_epoch,
                    batch.first_sequence,
                    batch.last_sequence,
                    batch.base_offset,
                )
            )
            if one.kind is SliceKind.TRANSACTIONS:
                parts.append(_BATCH_KIND.pack(producer.kind))
    return _sealed(
        kind,
        b"".join(parts),
        (len(head.slices), head.broker_id, head.sequence, head.committed_through, head.created_ms),
        len(parts[0]),
    )


def encode_fence(fence: Fence) -> bytes:
    """The whole object."""
    journal_id = fence.journal_id.encode()
    fields = (0, fence.broker_id, fence.sequence, NOTHING_COMMITTED, fence.created_ms)
    return _sealed(CellKind.FENCE, journal_id, fields, len(journal_id))


def _sealed(kind: CellKind, rest: bytes, fields: tuple[int, int, int, int, int], id_bytes: int) -> bytes:
    fixed = _FIXED.pack(MAGIC, VERSION, kind, 0, len(rest), *fields, id_bytes)
    head = b"".join((fixed, rest))
    return b"".join((head[:_CRC_START], _crc(memoryview(head)).to_bytes(4, "big"), head[_CRC_END:]))


def _crc(head: memoryview) -> int:
    """Of the whole head without the field itself."""
    return int(crc32c(head[_CRC_END:], crc32c(head[:_CRC_START])))


def head_bytes(name: str, data: Buffer) -> int:
    """How long the head is, from its first `FIXED_BYTES`: slices begin there. `name` says which object in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    if len(data) < FIXED_BYTES:
        raise CorruptDataError(name, f"{len(data)} bytes are shorter than an entry's first {FIXED_BYTES}")
    magic, version, _, _, rest_bytes, *_ = _FIXED.unpack_from(data)
    if magic != MAGIC:
        raise CorruptDataError(name, f"an entry starts with {MAGIC!r}, this with {magic!r}")
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    total = FIXED_BYTES + int(rest_bytes)
    if total > MAX_HEAD_BYTES:
        raise CorruptDataError(name, f"a head of {total} bytes; legal are {MAX_HEAD_BYTES}")
    return total


def decode_cell(name: str, data: Buffer) -> EntryHead | Fence:
    """The entry or fence under a journal's key, from its head; more bytes may follow. `name`: the key, for errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    kind, cell = _decode(name, data)
    if kind is CellKind.GATHERED:
        raise CorruptDataError(name, "a gathered object under the key of an entry")
    return cell


def decode_gathered(name: str, data: Buffer) -> EntryHead:
    """The head of a gathered object; more bytes may follow. Raises as `decode_cell`."""
    kind, cell = _decode(name, data)
    if kind is not CellKind.GATHERED or isinstance(cell, Fence):
        raise CorruptDataError(name, "an entry or a fence under the key of a gathered object")
    return cell


def _decode(name: str, data: Buffer) -> tuple[CellKind, EntryHead | Fence]:
    total = head_bytes(name, data)
    if len(data) < total:
        raise CorruptDataError(name, f"{len(data)} bytes of a head of {total}")
    view = memoryview(data)[:total]
    _, _, kind, crc, _, count, broker_id, sequence, through, created_ms, id_bytes = _FIXED.unpack_from(view)
    if _crc(view) != crc:
        raise CorruptDataError(name, "the CRC of the head does not match its bytes")
    journal_id = _text(name, view, FIXED_BYTES, id_bytes)
    position = FIXED_BYTES + id_bytes
    if sequence < 0 or not NOTHING_COMMITTED <= through < max(sequence, 0):
        raise CorruptDataError(name, f"sequence {sequence}, committed through {through}")
    match kind:
        case CellKind.FENCE:
            if count or position != total or through != NOTHING_COMMITTED:
                raise CorruptDataError(name, "a fence with slices")
            return CellKind.FENCE, Fence(
                journal_id=journal_id, broker_id=broker_id, sequence=sequence, created_ms=created_ms
            )
        case CellKind.ENTRY | CellKind.GATHERED:
            slices, position = _decode_slices(name, view, position, count)
        case _:
            raise CorruptDataError(name, f"kind {kind} is none of {[each.value for each in CellKind]}")
    if position != total:
        raise CorruptDataError(name, f"{total - position} bytes after the last row of the directory")
    head = EntryHead(
        journal_id=journal_id,
        broker_id=broker_id,
        sequence=sequence,
        committed_through=through,
        created_ms=created_ms,
        slices=slices,
    )
    try:
        _check_order(head)
    except ValueError as problem:
        raise CorruptDataError(name, str(problem)) from problem
    return CellKind(kind), head


def _decode_slices(
    name: str, view: memoryview, position: int, count: int
) -> tuple[tuple[EntrySlice, ...], int]:
    if count > MAX_SLICES or count * _SLICE.size > len(view) - position:
        raise CorruptDataError(name, f"{count} slices in a head of {len(view)} bytes")
    slices = []
    for _ in range(count):
        try:
            one, position = _decode_slice(name, view, position)
        except error as problem:
            raise CorruptDataError(name, f"row of the directory at byte {position}: {problem}") from problem
        slices.append(one)
    return tuple(slices), position


def _decode_slice(name: str, view: memoryview, position: int) -> tuple[EntrySlice, int]:
    (
        topic_id, partition, leader_epoch, base_offset, delta, record_count, max_timestamp_ms, start,
        size_bytes, body_crc, kind, topic_bytes, key_bytes, producer_count,
    ) = _SLICE.unpack_from(view, position)  # fmt: skip
    position += _SLICE.size
    topic = _text(name, view, position, topic_bytes)
    position += topic_bytes
    key = _text(name, view, position, key_bytes)
    position += key_bytes
    if kind not in tuple(SliceKind):
        raise CorruptDataError(name, f"slice kind {kind} is none of {[each.value for each in SliceKind]}")
    producers = []
    for _ in range(producer_count):
        producer_id, producer_epoch, first, last, base = _PRODUCER.unpack_from(view, position)
        position += _PRODUCER.size
        batch_kind = BatchKind.PLAIN
        if kind == SliceKind.TRANSACTIONS:
            batch_kind, position = _batch_kind(name, view, position)
        producers.append(
            SliceProducer(
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                batch=ProducerBatch(first, last, base),
                kind=batch_kind,
            )
        )
    return (
        EntrySlice(
            topic_id=uuid.UUID(bytes=topic_id),
            topic=topic,
            partition=partition,
            leader_epoch=leader_epoch,
            base_offset=base_offset,
            last_offset=base_offset + delta,
            record_count=record_count,
            max_timestamp_ms=max_timestamp_ms,
            size_bytes=size_bytes,
            body_crc=body_crc,
            start=start,
            object_key=key,
            producers=tuple(producers),
            kind=SliceKind(kind),
        ),
        position,
    )


def _batch_kind(name: str, view: memoryview, position: int) -> tuple[BatchKind, int]:
    (kind,) = _BATCH_KIND.unpack_from(view, position)
    if kind not in tuple(BatchKind):
        raise CorruptDataError(name, f"batch kind {kind} is none of {[each.value for each in BatchKind]}")
    return BatchKind(kind), position + _BATCH_KIND.size


def _text(name: str, view: memoryview, position: int, size_bytes: int) -> str:
    if position + size_bytes > len(view):
        raise CorruptDataError(name, f"a text of {size_bytes} bytes at byte {position} of {len(view)}")
    try:
        return str(view[position : position + size_bytes], "utf-8")
    except UnicodeDecodeError as problem:
        raise CorruptDataError(name, f"a text is not UTF-8: {problem}") from problem


def _check_order(head: EntryHead) -> None:
    """Raises `ValueError` for slices that are doubled, out of order, overlapping or too small for a segment."""
    for before, after in pairwise(head.slices):
        if (before.topic_id, before.partition) >= (after.topic_id, after.partition):
            raise ValueError(f"{before.topic}-{before.partition} before {after.topic}-{after.partition}")
    end = 0
    for one in head.slices:
        where = f"slice of {one.topic}-{one.partition}"
        if one.base_offset < 0 or one.last_offset < one.base_offset or one.partition < 0:
            raise ValueError(f"{where}: offsets {one.base_offset} to {one.last_offset}")
        if one.kind is SliceKind.RECORDS and any(each.kind for each in one.producers):
            raise ValueError(f"{where}: transactional batches in a slice of kind {SliceKind.RECORDS.value}")
        if one.size_bytes < HEADER_SIZE + FOOTER_SIZE:
            raise ValueError(f"{where}: {one.size_bytes} bytes are shorter than a segment")
        if one.object_key:
            if one.start:
                raise ValueError(f"{where}: byte {one.start} of {one.object_key}; legal is 0")
        elif one.start != end:
            raise ValueError(f"{where}: begins at byte {one.start}, the one before ends at {end}")
        else:
            end += one.size_bytes


def body_bytes(head: EntryHead) -> int:
    """How many bytes of slices follow the head."""
    return sum(one.size_bytes for one in head.slices if not one.object_key)
