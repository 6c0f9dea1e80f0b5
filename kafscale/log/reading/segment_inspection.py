"""A segment as a rebuild sees it: checked from its first byte to its last, and reduced to what the record needs.

Pure. The object is fed in pieces, so that a large segment never lies in memory as a whole.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.formats.object_keys import SegmentKey
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, SegmentHeader, parse_footer, parse_header
from kafscale.log.producer_state import REMEMBERED_BATCHES
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.protocol.record_batch import MAGIC, BatchHeader, check_crc, read_header, sequence_before, walk

NO_EPOCH = -1
MAX_PLAUSIBLE_EPOCH = 2**30
"""Other writers store what clients send as leader epoch. More than this is no epoch: nothing could follow it."""

_BATCH = Struct(">qI")


class Span(NamedTuple):
    """Batches without a gap between them, all of one leader epoch (`NO_EPOCH` when they carry none)."""

    first_offset: int
    last_offset: int
    leader_epoch: int


class SequencedBatch(NamedTuple):
    """A batch of an idempotent producer."""

    producer_id: int
    producer_epoch: int
    first_sequence: int
    last_sequence: int
    base_offset: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """What its producer's retry has in common with it."""
        return self[:4]

    @property
    def record_count(self) -> int:
        """How many records the producer put into it; sequence numbers start again at 0 after 2^31-1."""
        return sequence_before(self.last_sequence, self.first_sequence) + 1


@dataclass(frozen=True, slots=True)
class BatchList:
    """The batches of a segment by base offset and CRC, ascending, in 12 bytes each: a bucket has many."""

    packed: bytes

    @classmethod
    def of(cls, batches: Iterable[tuple[int, int]]) -> "BatchList":
        return cls(b"".join(_BATCH.pack(*batch) for batch in batches))

    def between(self, first_offset: int, last_offset: int) -> bytes:
        """Those that begin at these offsets, both ends included; equal for equal batches."""
        places = range(len(self.packed) // _BATCH.size)
        start = bisect_left(places, first_offset, key=self._base_offset)
        end = bisect_right(places, last_offset, key=self._base_offset)
        return self.packed[start * _BATCH.size : end * _BATCH.size]

    def _base_offset(self, place: int) -> int:
        base_offset, _ = _BATCH.unpack_from(self.packed, place * _BATCH.size)
        return int(base_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedSegment:
    """A segment whose every checksum is right.

    `max_timestamp_ms` is -1 when no batch carries one. `sequenced` holds, of each idempotent producer, the
    first batch and the newest five, in order.
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

    @property
    def leader_epoch(self) -> int:
        """The highest leader epoch in it; `NO_EPOCH` when its batches carry none."""
        return max(span.leader_epoch for span in self.spans)


class SegmentInspection:
    """Checks one object while it is fed, piece after piece; `finish` says what it is.

    Every method raises `CorruptDataError`, `UnknownFormatVersionError` among them, that names the object.
    `on_batch` is told every batch, in order, once it was checked; `lists_batches`: whether the result does.
    """

    def __init__(
        self,
        key: str,
        parsed: SegmentKey,
        size_bytes: int,
        on_batch: Callable[[BatchHeader], None] = lambda header: None,
        *,
        lists_batches: bool = True,
    ) -> None:
        if size_bytes < HEADER_SIZE + FOOTER_SIZE:
            raise CorruptDataError(key, f"{size_bytes} bytes are too few for a segment's header and footer")
        self._key = key
        self._parsed = parsed
        self._size_bytes = size_bytes
        self._on_batch = on_batch
        self._lists_batches = lists_batches
        self._body_end = size_bytes - FOOTER_SIZE
        self._header: SegmentHeader | None = None
        self._pending = b""
        self._pending_position = 0
        self._body_crc = 0
        self._record_count = 0
        self._max_timestamp_ms = -1
        self._spans: list[Span] = []
        self._batches = bytearray()
        self._first_batches: dict[int, SequencedBatch] = {}
        self._newest_batches: dict[int, deque[SequencedBatch]] = {}

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the object."""
        fed = self._pending_position + len(self._pending)
        covered = memoryview(data)[max(0, HEADER_SIZE - fed) : max(0, self._body_end - fed)]
        self._body_crc = crc32c(covered, self._body_crc)
        self._pending = self._pending + data if self._pending else data
        if self._header is None:
            if len(self._pending) < HEADER_SIZE:
                return
            self._header = parse_header(self._key, self._pending)
            self._take(HEADER_SIZE)
        self._take(self._read_batches(memoryview(self._pending)))

    def _take(self, size_bytes: int) -> None:
        self._pending = self._pending[size_bytes:]
        self._pending_position += size_bytes

    def _read_batches(self, view: memoryview) -> int:
        """Read the batches that are there whole; returns how many bytes they have."""
        read = 0
        while True:
            in_body = self._body_end - self._pending_position - read
            there = min(len(view) - read, in_body)
            if in_body <= 0 or there < min(BATCH_HEADER_SIZE, in_body):
                return read
            name = f"{self._key}, from byte {self._pending_position}"
            if there >= BATCH_HEADER_SIZE:
                header = read_header(view, read)
                if header.magic == MAGIC and there < header.size_bytes <= in_body:
                    return read
            # Whatever is absurd about the batch, `walk` says it.
            _, header = next(walk(view, read, read + there, name))
            check_crc(view, read, header, name)
            self._add(header)
            read += header.size_bytes

    def _add(self, header: BatchHeader) -> None:
        next_offset = self._spans[-1].last_offset + 1 if self._spans else header.base_offset
        if header.base_offset < next_offset:
            raise CorruptDataError(
                self._key, f"a batch with base offset {header.base_offset} follows offset {next_offset - 1}"
            )
        epoch = header.partition_leader_epoch
        if not 0 <= epoch <= MAX_PLAUSIBLE_EPOCH:
            epoch = NO_EPOCH
        if self._spans and (next_offset, self._spans[-1].leader_epoch) == (header.base_offset, epoch):
            self._spans[-1] = self._spans[-1]._replace(last_offset=header.last_offset)
        else:
            self._spans.append(Span(header.base_offset, header.last_offset, epoch))
        if self._lists_batches:
            self._batches += _BATCH.pack(header.base_offset, header.crc)
        self._record_count += header.record_count
        self._max_timestamp_ms = max(self._max_timestamp_ms, header.max_timestamp)
        if header.producer_id >= 0 and header.base_sequence >= 0:
            self._remember(header)
        self._on_batch(header)

    def _remember(self, header: BatchHeader) -> None:
        batch = SequencedBatch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            header.base_offset,
        )
        newest = self._newest_batches.get(header.producer_id)
        if newest is None:
            self._first_batches[header.producer_id] = batch
            newest = self._newest_batches[header.producer_id] = deque(maxlen=REMEMBERED_BATCHES)
        newest.append(batch)

    def finish(self) -> InspectedSegment:
        """What the object holds, once all of it was fed."""
        fed = self._pending_position + len(self._pending)
        if fed != self._size_bytes or self._header is None:
            raise CorruptDataError(self._key, f"{fed} bytes where the listing says {self._size_bytes}")
        footer = parse_footer(self._key, self._pending)
        if self._body_crc != footer.body_crc:
            raise CorruptDataError(
                self._key,
                f"the body's CRC-32C is {self._body_crc:#010x}, the footer says {footer.body_crc:#010x}",
            )
        if not self._spans:
            raise CorruptDataError(self._key, "a segment without a batch")
        base_offset, last_offset = self._spans[0].first_offset, self._spans[-1].last_offset
        self._check_against(self._header, footer.last_offset, base_offset, last_offset)
        sequenced = {*self._first_batches.values()}.union(*self._newest_batches.values())
        return InspectedSegment(
            key=self._key,
            base_offset=base_offset,
            last_offset=last_offset,
            record_count=self._record_count,
            size_bytes=self._size_bytes,
            max_timestamp_ms=self._max_timestamp_ms,
            created_ms=self._header.created_ms,
            is_merged=self._parsed.last_offset is not None,
            spans=tuple(self._spans),
            batches=BatchList(bytes(self._batches)),
            sequenced=tuple(sorted(sequenced, key=lambda batch: batch.base_offset)),
        )

    def _check_against(self, header: SegmentHeader, footer_last: int, first: int, last: int) -> None:
        says = (header.base_offset, footer_last, header.message_count)
        if says != (first, last, self._record_count):
            raise CorruptDataError(
                self._key,
                f"the batches hold {self._record_count} records at offsets {first} to {last}, header and footer "
                f"say {header.message_count} at {header.base_offset} to {footer_last}",
            )
        key_last = self._parsed.last_offset
        if self._parsed.base_offset != first or key_last not in (None, last):
            raise CorruptDataError(
                self._key, f"it lies under a wrong key: it holds the offsets {first} to {last}"
            )
