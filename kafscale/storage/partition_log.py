"""The leader's side of one partition, pure: what is appended, sealed, published, and what the record then says.

Theory of operation. Batches are appended to the newest `SegmentBuffer` in arrival order, with offsets relative
to it. One buffer at a time is *sealed*: it gets its base offset, the published log end offset, and its bytes
are final. When its object lies in the store, `record_after` says what the partition record must become; when
the metadata store has taken that, `published` applies it here and tells the waiters. When the key turns out to
hold an older leader's leftover, `reseal` moves the segment one offset up (architecture.md, "Publish"). There is
at most one sealed buffer, so nothing behind it has an absolute offset yet.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafscale.metadata.partition_record import (
    PartitionRecord,
    ProducerBatch,
    ProducerRecord,
    SegmentReference,
    is_published_in,
)
from kafscale.protocol.compression import Codec
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import BatchHeader, compress_into, sequence_after, stamp_log_append_time
from kafscale.protocol.types import Buffer
from kafscale.storage.index import build_index, interval_for
from kafscale.storage.producer_state import PendingBatch, ProducerStates
from kafscale.storage.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, encode_footer, encode_header
from kafscale.storage.segment_buffer import AppendWaiter, SegmentBuffer
from kafscale.storage.slab import SlabPool

SEGMENT_BUFFER_LIMIT_BYTES = 64 * 1024 * 1024
CHECKPOINT_SEGMENTS = 128
CHECKPOINT_PRODUCERS = 256

_UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, "it is not known whether the records were published")

# What a batch costs beside its bytes: the objects that remember it, its request and its reply.
BATCH_OVERHEAD_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendRules:
    """What the topic's configuration says of an append. `codec` None keeps batches as they come.

    `codec_level`: None for the codec's default.
    """

    codec: Codec | None
    log_append_time: bool
    segment_bytes: int
    codec_level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A segment whose bytes are final unless its key turns out to be taken."""

    buffer: SegmentBuffer
    reference: SegmentReference
    parts: Sequence[Buffer]
    index: bytes
    index_version: int
    created_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPointer:
    """A stored checkpoint that the record does not name yet; it covers every segment below `end_offset`."""

    key: str
    end_offset: int


class PartitionLog:
    """One partition as its leader sees it. `record` is what the metadata store holds."""

    __slots__ = (
        "_buffers",
        "_closed_buffer",
        "_is_in_doubt",
        "_recent_producers",
        "producers",
        "record",
        "sealed",
        "waiting_checkpoint",
    )

    def __init__(self, record: PartitionRecord, producers: ProducerStates) -> None:
        self.record = record
        self.producers = producers
        self.sealed: SealedSegment | None = None
        self.waiting_checkpoint: CheckpointPointer | None = None
        self._buffers: deque[SegmentBuffer] = deque()
        self._closed_buffer: SegmentBuffer | None = None
        # Whether the publication of the sealed segment has begun and its outcome is not known.
        self._is_in_doubt = False
        self._recent_producers: dict[int, ProducerRecord] = {p.producer_id: p for p in record.producers}

    # --- append

    def append(
        self,
        batches: Sequence[tuple[memoryview, BatchHeader]],
        rules: AppendRules,
        now_ms: int,
        pool: SlabPool,
        waiter: AppendWaiter,
    ) -> int:
        """Append validated batches of one request and return by how many bytes the buffers grew.

        `waiter` is told the outcome, at once for a refusal or the retry of a published batch (0 is returned).
        """
        verdict = self._check_sequences(batches)
        match verdict:
            case ErrorCode.NONE:
                pass
            case PendingBatch():
                segment = verdict.segment
                assert isinstance(segment, SegmentBuffer)
                segment.waiters.append((waiter, verdict.relative_offset))
                return 0
            case ProducerBatch():
                waiter.published(verdict.base_offset, self.record.log_start_offset)
                return 0
            case _:
                waiter.refused(verdict, _sequence_message(verdict, batches[0][1]))
                return 0
        buffer = self._open_buffer(now_ms)
        before = buffer.size_bytes
        first_relative_offset = buffer.record_count
        for batch, header in batches:
            _append_batch(buffer, batch, header, rules, now_ms, pool)
            if header.producer_id >= 0:
                self._remember(buffer, header, now_ms)
        buffer.waiters.append((waiter, first_relative_offset))
        grown = buffer.size_bytes - before + BATCH_OVERHEAD_BYTES * len(batches)
        buffer.charged_bytes += grown
        return grown

    def _check_sequences(
        self, batches: Sequence[tuple[memoryview, BatchHeader]]
    ) -> ErrorCode | PendingBatch | ProducerBatch:
        first = batches[0][1]
        if first.producer_id < 0:
            return ErrorCode.NONE
        previous = first
        for _, header in batches[1:]:
            same = (header.producer_id, header.producer_epoch) == (first.producer_id, first.producer_epoch)
            if not same or header.base_sequence != sequence_after(previous.last_sequence, 1):
                return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            previous = header
        return self.producers.check(
            first.producer_id, first.producer_epoch, first.base_sequence, first.last_sequence
        )

    def _open_buffer(self, now_ms: int) -> SegmentBuffer:
        if self._buffers:
            newest = self._buffers[-1]
            if newest is not self._closed_buffer and newest.size_bytes < SEGMENT_BUFFER_LIMIT_BYTES:
                return newest
        buffer = SegmentBuffer(now_ms)
        self._buffers.append(buffer)
        return buffer

    def _remember(self, buffer: SegmentBuffer, header: BatchHeader, now_ms: int) -> None:
        pending = PendingBatch(
            buffer,
            buffer.record_count - header.record_count,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            now_ms,
        )
        self.producers.append(header.producer_id, pending)
        buffer.producer_ids.append((header.producer_id, pending.relative_offset))

    # --- what waits

    @property
    def waiting(self) -> SegmentBuffer | None:
        """The oldest buffer that is not closed yet."""
        following = 0 if self._closed_buffer is None else 1
        return self._buffers[following] if len(self._buffers) > following else None

    @property
    def is_being_flushed(self) -> bool:
        """Whether a buffer is closed and not published yet; so it stays when the flush is ended half way."""
        return self._closed_buffer is not None

    # --- seal and publish

    def start_seal(self) -> SegmentBuffer:
        """Close the oldest buffer, so that nothing more is appended to it. None may be closed already."""
        assert self._closed_buffer is None
        self._closed_buffer = self._buffers[0]
        return self._closed_buffer

    def seal(self, now_ms: int, index_version: int) -> SealedSegment:
        """Seal the closed buffer at the log end offset. May run beside appends to the next buffer.

        `index_version`: see `index_version_at`.
        """
        assert self._closed_buffer is not None
        self.sealed = self._sealed(self._closed_buffer, self.record.log_end_offset, now_ms, index_version)
        return self.sealed

    def reseal(self) -> SealedSegment:
        """Move the sealed segment one offset up: its key holds an older leader's leftover."""
        assert self.sealed is not None
        self.sealed = self._sealed(
            self.sealed.buffer,
            self.sealed.reference.base_offset + 1,
            self.sealed.created_ms,
            self.sealed.index_version,
        )
        return self.sealed

    def _sealed(
        self, buffer: SegmentBuffer, base_offset: int, created_ms: int, index_version: int
    ) -> SealedSegment:
        buffer.stamp(base_offset, self.record.leader_epoch)
        body = buffer.body()
        last_offset = base_offset + buffer.record_count - 1
        header = encode_header(
            codec=buffer.codec,
            base_offset=base_offset,
            message_count=buffer.record_count,
            created_ms=created_ms,
        )
        return SealedSegment(
            buffer=buffer,
            reference=SegmentReference(
                base_offset=base_offset,
                last_offset=last_offset,
                record_count=buffer.record_count,
                leader_epoch=self.record.leader_epoch,
                size_bytes=HEADER_SIZE + buffer.size_bytes + FOOTER_SIZE,
                max_timestamp_ms=buffer.max_timestamp_ms,
            ),
            parts=(header, *body, encode_footer(body_crc=body_crc(body), last_offset=last_offset)),
            index=build_index(
                buffer.index_entries(base_offset),
                interval_for(buffer.size_bytes, buffer.record_count),
                version=index_version,
            ),
            index_version=index_version,
            created_ms=created_ms,
        )

    def record_after(self, sealed: SealedSegment) -> PartitionRecord:
        """What the record must become so that `sealed` is published. Changes nothing here."""
        producers = dict(self._recent_producers)
        for producer in self._published_producers(sealed):
            producers[producer.producer_id] = producer
        record = replace(
            self.record,
            log_end_offset=sealed.reference.last_offset + 1,
            segments=(*self.record.segments, sealed.reference),
            producers=tuple(producers.values()),
        )
        return (
            record if self.waiting_checkpoint is None else _with_checkpoint(record, self.waiting_checkpoint)
        )

    def begin_publication(self, sealed: SealedSegment) -> PartitionRecord:
        """What the record is to become. From now on nobody knows whether it has, until somebody says so here."""
        self._is_in_doubt = True
        return self.record_after(sealed)

    def succeeded_by(self, successor: PartitionRecord) -> None:
        """Another leader wrote this record instead: if `sealed` had been published before, its waiters are told."""
        assert self.sealed is not None
        was_published = is_published_in(successor, self.record, self.sealed.reference.last_offset)
        if was_published:
            self.published(self.sealed, self.record_after(self.sealed))
        elif was_published is False:
            self._is_in_doubt = False

    def record_with(self, checkpoint: CheckpointPointer) -> PartitionRecord:
        """What the record must become so that it names the checkpoint. Changes nothing here."""
        return _with_checkpoint(self.record, checkpoint)

    def _published_producers(self, sealed: SealedSegment) -> list[ProducerRecord]:
        base_offset = sealed.reference.base_offset
        return self.producers.preview(
            [(producer_id, base_offset + relative) for producer_id, relative in sealed.buffer.producer_ids]
        )

    def published(self, sealed: SealedSegment, record: PartitionRecord) -> SegmentBuffer:
        """The store took `record`: apply it, tell the waiters, and return the buffer that is done with."""
        assert self.sealed is sealed
        base_offset = sealed.reference.base_offset
        for producer_id, relative_offset in sealed.buffer.producer_ids:
            self.producers.publish(producer_id, base_offset + relative_offset)
        self.adopt(record)
        self.sealed = self._closed_buffer = None
        self._is_in_doubt = False
        self._buffers.popleft()
        for waiter, relative_offset in sealed.buffer.waiters:
            waiter.published(base_offset + relative_offset, record.log_start_offset)
        return sealed.buffer

    def adopt(self, record: PartitionRecord) -> None:
        """The store took `record` of ours, whatever it changes."""
        if record.checkpoint_key != self.record.checkpoint_key:
            self.waiting_checkpoint = None
        self.record = record
        self._recent_producers = {p.producer_id: p for p in record.producers}

    def fail(self, error_code: ErrorCode, message: str) -> list[SegmentBuffer]:
        """This leader may not go on: refuse everything that waits. The log is done with.

        A publication in doubt is not refused but unknown: librdkafka takes NOT_LEADER_OR_FOLLOWER to say that
        nothing is stored, and may send such a batch again as a new one.
        """
        buffers = list(self._buffers)
        unknown = self._closed_buffer if self._is_in_doubt else None
        self._buffers.clear()
        self.sealed = self._closed_buffer = None
        self._is_in_doubt = False
        for buffer in buffers:
            answer = _UNKNOWN if buffer is unknown else (error_code, message)
            for waiter, _ in buffer.waiters:
                waiter.refused(*answer)
        return buffers

    @property
    def checkpoint_due(self) -> bool:
        """Whether the record has grown so much that its older part should move to a checkpoint."""
        return self.waiting_checkpoint is None and (
            len(self.record.segments) >= CHECKPOINT_SEGMENTS
            or len(self.record.producers) >= CHECKPOINT_PRODUCERS
        )


def _with_checkpoint(record: PartitionRecord, pointer: CheckpointPointer) -> PartitionRecord:
    return replace(
        record,
        checkpoint_key=pointer.key,
        checkpoint_end_offset=pointer.end_offset,
        segments=tuple(s for s in record.segments if s.base_offset >= pointer.end_offset),
        producers=tuple(p for p in record.producers if p.batches[-1].base_offset >= pointer.end_offset),
    )


def _append_batch(
    buffer: SegmentBuffer,
    batch: memoryview,
    header: BatchHeader,
    rules: AppendRules,
    now_ms: int,
    pool: SlabPool,
) -> None:
    size_bytes = len(batch)
    room = buffer.room(size_bytes, pool)
    codec = header.codec
    written = 0
    if rules.codec is not None and codec == Codec.NONE:
        written = compress_into(batch, header, rules.codec, room, rules.codec_level)
        if written:
            codec = rules.codec
    if not written:
        room[:] = batch
        written = size_bytes
    max_timestamp_ms = header.max_timestamp
    if rules.log_append_time:
        stamp_log_append_time(room, 0, now_ms)
        max_timestamp_ms = now_ms
    buffer.add(written, header.record_count, max_timestamp_ms, codec)


def _sequence_message(error_code: ErrorCode, header: BatchHeader) -> str:
    return (
        f"{error_code.name}: producer {header.producer_id} epoch {header.producer_epoch} "
        f"sequence {header.base_sequence}"
    )
