"""The inspection of a segment: checked from its first byte to its last, and reduced to what a record needs.

Pure; a visitor of `formats/segment_walk.py` for merging, fsck and recovery.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_kind import kind_of_batch
from kafscale.formats.object_keys import Compaction, SegmentKey
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.partition_transactions import BatchKind, TransactionEvent
from kafscale.formats.producer_batches import REMEMBERED_BATCHES
from kafscale.formats.segment import HEADER_SIZE
from kafscale.formats.segment_walk import SegmentWalk, check_totals
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import BatchHeader, sequence_before
from kafscale.protocol.types import Buffer

NO_EPOCH = -1
MAX_PLAUSIBLE_EPOCH = 2**30
"""Other writers store what clients send as leader epoch. More than this is no epoch: nothing could follow it."""

_BATCH = Struct(">qI")
_EVENT = Struct(">Bqhq")


class Span(NamedTuple):
    """Batches without a gap between them, all of one leader epoch (`NO_EPOCH` when they carry none)."""

    first_offset: int
    last_offset: int
    leader_epoch: int


class SequencedBatch(NamedTuple):
    """A batch of an idempotent producer. A marker has the sequence numbers -1 to -1, and is never a retry."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """The fields that a retry by its producer repeats."""
        return self[:4]

    @property
    def record_count(self) -> int:
        """The number of records from the producer; sequence numbers start again at 0 after 2^31-1."""
        return sequence_before(self.last_sequence, self.first_sequence) + 1


@dataclass(frozen=True, slots=True)
class BatchList:
    """The batches of a segment by base offset and CRC, ascending, in 12 bytes each: a bucket has many."""

    packed: bytes

    @classmethod
    def of(cls, batches: Iterable[tuple[int, int]]) -> "BatchList":
        return cls(b"".join(_BATCH.pack(*batch) for batch in batches))

    def between(self, first_offset: int, last_offset: int) -> bytes:
        """The batches that start at these offsets, both ends included; equal for equal batches."""
        places = range(len(self.packed) // _BATCH.size)
        start = bisect_left(places, first_offset, key=self._base_offset)
        end = bisect_right(places, last_offset, key=self._base_offset)
        return self.packed[start * _BATCH.size : end * _BATCH.size]

    def _base_offset(self, place: int) -> int:
        base_offset, _ = _BATCH.unpack_from(self.packed, place * _BATCH.size)
        return int(base_offset)


@dataclass(frozen=True, slots=True)
class EventList:
    """The effects of a segment on transactions, in order, in 19 bytes each: first batches and markers."""

    packed: bytes = b""

    @classmethod
    def of(cls, events: Iterable[TransactionEvent]) -> "EventList":
        return cls(b"".join(_EVENT.pack(*event) for event in events))

    def __iter__(self) -> Iterator[TransactionEvent]:
        for kind, *rest in _EVENT.iter_unpack(self.packed):
            yield TransactionEvent(BatchKind(kind), *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedSegment:
    """A segment whose every checksum is right.

    `max_timestamp_ms` is -1 when no batch carries one. `sequenced` has, of each idempotent producer, the
    first batch and the newest five, in order; a marker counts if it begins a new epoch. `start`: where it begins in
    its object. `is_merged`: all that is in it was published; so it is with slices of journals, too.
    """

    key: str
    base_offset: int
    last_offset: int
    record_count: int
    size_bytes: int
    max_timestamp_ms: int
    created_ms: int
    is_merged: bool
    spans: tuple[Span, ...]
    batches: BatchList
    sequenced: tuple[SequencedBatch, ...] = ()
    transactions: EventList = EventList()
    start: int = 0
    compaction: Compaction | None = None

    @property
    def leader_epoch(self) -> int:
        """The highest leader epoch in it; `NO_EPOCH` when its batches carry none."""
        return max(span.leader_epoch for span in self.spans)


class SegmentInspection:
    """Checks one segment while it is fed, piece after piece; `finish` returns what a record needs of it.

    Every method raises `CorruptDataError`, `UnknownFormatVersionError` among them, that names the object.
    `parsed`: what the key says; None for a segment that shares its object with others. `visit` receives position
    and header of each batch, in order, after its checks; `lists_batches`: whether the result does, and what they do
    to transactions.
    """

    def __init__(
        self,
        key: str,
        parsed: SegmentKey | None,
        size_bytes: int,
        visit: Callable[[int, BatchHeader], None] | None = None,
        *,
        lists_batches: bool = True,
    ) -> None:
        self._key = key
        self._parsed = parsed
        self._size_bytes = size_bytes
        self._walk = SegmentWalk(key, size_bytes, visit=self._add)
        self._visit = visit
        self._lists_batches = lists_batches
        self._spans: list[Span] = []
        self._batches = bytearray()
        self._first_batches: dict[int, SequencedBatch] = {}
        self._newest_batches: dict[int, deque[SequencedBatch]] = {}
        self._events = bytearray()
        self._opened: set[int] = set()
        # Of the batches that are passed now; their bytes are there when all of them are.
        self._transactional: list[tuple[int, BatchHeader]] = []
        self._passed_end = HEADER_SIZE

    def feed(self, data: Buffer) -> list[memoryview]:
        """Take the next bytes of the object; returns the whole batches that are checked now."""
        views = self._walk.feed(memoryview(data))
        start = self._passed_end
        self._passed_end += sum(len(view) for view in views)
        if self._transactional:
            self._add_events(Pieces(views, start))
            self._transactional.clear()
        return views

    def _add_events(self, pieces: Pieces) -> None:
        for position, header in self._transactional:
            batch = memoryview(b"")
            if header.is_control:
                batch = pieces.contiguous(position, position + header.size_bytes)
            try:
                kind = kind_of_batch(header, batch)
            except CorruptDataError as problem:
                raise CorruptDataError(
                    self._key, f"batch at position {position}: {problem.problem}"
                ) from problem
            producer_id = header.producer_id
            if kind is BatchKind.TRANSACTIONAL and producer_id in self._opened:
                continue
            if kind is BatchKind.TRANSACTIONAL:
                self._opened.add(producer_id)
            else:
                self._opened.discard(producer_id)
            self._events += _EVENT.pack(kind, producer_id, header.producer_epoch, header.base_offset)

    def _add(self, position: int, header: BatchHeader) -> None:
        epoch = header.partition_leader_epoch
        if not 0 <= epoch <= MAX_PLAUSIBLE_EPOCH:
            epoch = NO_EPOCH
        last = self._spans[-1] if self._spans else None
        if last is not None and (last.last_offset + 1, last.leader_epoch) == (header.base_offset, epoch):
            self._spans[-1] = Span(last.first_offset, header.last_offset, epoch)
        else:
            self._spans.append(Span(header.base_offset, header.last_offset, epoch))
        if self._lists_batches:
            self._batches += _BATCH.pack(header.base_offset, header.crc)
            if header.is_transactional:
                self._transactional.append((position, header))
        if header.producer_id >= 0 and (header.base_sequence >= 0 or header.is_control):
            self._remember(header)
        if self._visit is not None:
            self._visit(position, header)

    def _remember(self, header: BatchHeader) -> None:
        batch = SequencedBatch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
        )
        newest = self._newest_batches.get(header.producer_id)
        if header.is_control and newest and newest[-1].producer_epoch == header.producer_epoch:
            return
        if newest is None:
            self._first_batches[header.producer_id] = batch
            newest = self._newest_batches[header.producer_id] = deque(maxlen=REMEMBERED_BATCHES)
        newest.append(batch)

    def finish(self) -> InspectedSegment:
        """The segment, after its last byte."""
        chain = self._walk.chain
        header, footer = self._walk.finish()
        check_totals(self._key, chain, header, footer)
        base_offset, last_offset = header.base_offset, footer.last_offset
        if self._parsed is not None and (
            self._parsed.base_offset != base_offset or self._parsed.last_offset not in (None, last_offset)
        ):
            raise CorruptDataError(
                self._key, f"it lies under a wrong key: it has the offsets {base_offset} to {last_offset}"
            )
        sequenced = {*self._first_batches.values()}.union(*self._newest_batches.values())
        return InspectedSegment(
            key=self._key,
            base_offset=base_offset,
            last_offset=last_offset,
            record_count=chain.record_count,
            size_bytes=self._size_bytes,
            max_timestamp_ms=chain.max_timestamp_ms,
            created_ms=header.created_ms,
            is_merged=self._parsed is not None and self._parsed.last_offset is not None,
            spans=tuple(self._spans),
            batches=BatchList(bytes(self._batches)),
            sequenced=tuple(sorted(sequenced, key=lambda batch: batch.base_offset)),
            transactions=EventList(bytes(self._events)),
            compaction=None if self._parsed is None else self._parsed.compaction,
        )


def check_reference(key: str, found: InspectedSegment, reference: SegmentReference) -> None:
    """Raise `CorruptDataError` unless the object under `key` has what the partition's record says of it."""
    has = (found.base_offset, found.last_offset, found.record_count)
    if has != (reference.base_offset, reference.last_offset, reference.record_count):
        raise CorruptDataError(
            key,
            f"it has {found.record_count} records at offsets {found.base_offset} to {found.last_offset}, the "
            f"partition record says {reference.record_count} at {reference.base_offset} to {reference.last_offset}",
        )
