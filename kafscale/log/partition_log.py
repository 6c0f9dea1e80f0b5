"""The leader's log of one partition, pure: what is appended, sealed and published, and the record that results.

Theory of operation. Batches are appended to the newest `SegmentBuffer` in arrival order, with offsets relative to it.
A flush *seals* the oldest open buffer as a slice of the journal's next entry: it gets its base offset, where the one
before it ends, and its bytes are final. Entries are committed in their order, and so are the slices of a partition:
`published` applies one and notifies the waiters. The record of the metadata store is written later, by those who have
a reason to (`record`), and no acknowledgement waits for it.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace

from kafscale.formats.partition_record import PartitionRecord, ProducerRecord, SegmentReference
from kafscale.formats.partition_transactions import (
    BatchKind,
    TransactionEvent,
    after_events,
)
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.formats.segment import MAX_MESSAGE_COUNT
from kafscale.journal.partition_state import unsealed
from kafscale.log.batch_append import AppendRules, append_batch
from kafscale.log.checkpoint_pointer import CheckpointPointer, with_checkpoint
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.leadership.states import State
from kafscale.log.producer_state import PendingBatch, ProducerStates, UnpublishedBatch
from kafscale.log.sealed_segment import SealedSegment, seal_buffer
from kafscale.log.writing.compression_trials import CompressionTrials
from kafscale.log.writing.segment_buffer import AppendWaiter, ProducerAppend, SegmentBuffer
from kafscale.memory.slab import SlabPool
from kafscale.protocol.control_records import EndOfTransaction, end_of_transaction_batch
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import BatchHeader

CHECKPOINT_SEGMENTS = 128
CHECKPOINT_PRODUCERS = 256
CHECKPOINT_ABORTED = 1024

MOST_RECORD_SEGMENTS = 2048
MOST_RECORD_PRODUCERS = 2048
MOST_RECORD_ABORTED = 4096
"""A record with more takes no further slice until a checkpoint or a sealed segment takes them over (decision 0044).

What is in flight counts as if it were there, so that one segment with its producers is added at most: 512 KiB in all.
"""

_UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, "it is not known whether the records were published")

# The cost of a batch beside its bytes: the objects that remember it, its request and its reply.
BATCH_OVERHEAD_BYTES = 1024


Change = Callable[[PartitionRecord], PartitionRecord]
"""A change of a partition's state, to be stored. It is made again on what was published while it was stored."""


class PartitionLog:
    """One partition as its leader sees it. `record` is what is published, the stored record or more.

    `leadership` gives the right to seal and to publish; without one the log always has it.
    """

    __slots__ = (
        "_buffers",
        "_closed_count",
        "_leadership",
        "_markers_in_flight",
        "_recent_producers",
        "_sealed",
        "_stored_end_offset",
        "_trials",
        "_unsealed_count",
        "is_held_up",
        "producers",
        "record",
        "waiting_checkpoint",
    )

    def __init__(
        self,
        record: PartitionRecord,
        producers: ProducerStates,
        leadership: PartitionLeadership | None = None,
    ) -> None:
        self._leadership = leadership or PartitionLeadership(State.LEADING)
        self.record = record
        self.producers = producers
        self.waiting_checkpoint: CheckpointPointer | None = None
        # True while the record has no room, and the checkpoint that would make some could not be stored.
        self.is_held_up = False
        # The oldest `_closed_count` take no more batches: they are sealed, in the same order, and in flight.
        self._buffers: deque[SegmentBuffer] = deque()
        self._closed_count = 0
        self._stored_end_offset = record.log_end_offset
        self._unsealed_count = len(unsealed(record.segments))
        self._sealed: deque[SealedSegment] = deque()
        self._trials = CompressionTrials()
        self._markers_in_flight: Counter[int] = Counter()
        self._recent_producers: dict[int, ProducerRecord] = {p.producer_id: p for p in record.producers}

    # --- append

    def append(
        self,
        batch: memoryview,
        header: BatchHeader,
        rules: AppendRules,
        now_ms: int,
        pool: SlabPool,
        waiter: AppendWaiter,
    ) -> int:
        """Append a validated batch; returns the growth of the buffers in bytes.

        `waiter` is notified of the outcome, at once for a refusal or the retry of a published batch (returns 0).
        """
        verdict = self._check_sequence(header)
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
                waiter.refused(verdict, _sequence_message(verdict, header))
                return 0
        buffer = self._open_buffer(header.record_count, now_ms)
        before = buffer.size_bytes
        relative_offset = buffer.record_count
        append_batch(buffer, batch, header, rules, now_ms, pool, self._trials)
        if header.producer_id >= 0:
            kind = BatchKind.TRANSACTIONAL if header.is_transactional else BatchKind.PLAIN
            self._remember(buffer, relative_offset, header, now_ms, kind)
        buffer.waiters.append((waiter, relative_offset))
        grown = buffer.size_bytes - before + BATCH_OVERHEAD_BYTES
        buffer.charged_bytes += grown
        return grown

    def _check_sequence(self, header: BatchHeader) -> ErrorCode | PendingBatch | ProducerBatch:
        if header.producer_id < 0:
            return ErrorCode.NONE
        verdict = self.producers.check(
            header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
        )
        if verdict is ErrorCode.NONE and self.producers.open_transactions:
            open_epoch = self.producers.open_transactions.get(header.producer_id)
            expected = header.producer_epoch if header.is_transactional else None
            if open_epoch is not None and open_epoch != expected:
                return ErrorCode.INVALID_TXN_STATE
        return verdict

    def _open_buffer(self, record_count: int, now_ms: int) -> SegmentBuffer:
        """The newest buffer, or a new one if that is full or `record_count` more would overflow its header."""
        if len(self._buffers) > self._closed_count:
            newest = self._buffers[-1]
            if not newest.is_full and newest.record_count + record_count <= MAX_MESSAGE_COUNT:
                return newest
        buffer = SegmentBuffer(now_ms)
        self._buffers.append(buffer)
        return buffer

    def append_marker(self, end: EndOfTransaction, now_ms: int, pool: SlabPool, waiter: AppendWaiter) -> int:
        """Append the marker of a producer's open transaction; returns the growth of the buffers in bytes.

        `waiter` is notified of the outcome.
        """
        batch, header = end_of_transaction_batch(end, now_ms)
        buffer = self._open_buffer(header.record_count, now_ms)
        before, relative_offset = buffer.size_bytes, buffer.record_count
        buffer.room(len(batch), pool)[:] = batch
        buffer.add(len(batch), header.record_count, header.max_timestamp, header.codec)
        kind = BatchKind.COMMIT if end.is_commit else BatchKind.ABORT
        self._remember(buffer, relative_offset, header, now_ms, kind)
        buffer.waiters.append((waiter, relative_offset))
        grown = buffer.size_bytes - before + BATCH_OVERHEAD_BYTES
        buffer.charged_bytes += grown
        return grown

    def _remember(
        self,
        buffer: SegmentBuffer,
        relative_offset: int,
        header: BatchHeader,
        now_ms: int,
        kind: BatchKind,
    ) -> None:
        pending = PendingBatch(
            buffer,
            relative_offset,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            now_ms,
        )
        if kind.is_marker:
            self._markers_in_flight[header.producer_id] += 1
            self.producers.append_marker(header.producer_id, pending)
        else:
            self.producers.append(header.producer_id, pending)
            if kind is BatchKind.TRANSACTIONAL:
                self.producers.open_transactions[header.producer_id] = header.producer_epoch
        buffer.producer_batches.append(
            ProducerAppend(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_sequence,
                relative_offset,
                kind,
            )
        )
        buffer.producers.add(header.producer_id)

    def has_marker_in_flight(self, producer_id: int) -> bool:
        """True if a marker of the producer is appended and not known to be committed."""
        return producer_id in self._markers_in_flight

    # --- what waits

    @property
    def waiting(self) -> SegmentBuffer | None:
        """The oldest buffer that is not closed yet."""
        return self._buffers[self._closed_count] if len(self._buffers) > self._closed_count else None

    @property
    def newest(self) -> SegmentBuffer:
        """The buffer that the last batch was appended to; there must be one."""
        return self._buffers[-1]

    @property
    def is_empty(self) -> bool:
        """True if all that was appended is published."""
        return not self._buffers

    @property
    def may_publish(self) -> bool:
        """False once the log is closed: its waiters have their answers, so their records must not be published."""
        return self._leadership.rights.publishes

    @property
    def may_seal(self) -> bool:
        """True if another buffer may be sealed."""
        return self._leadership.rights.seals

    @property
    def in_flight_count(self) -> int:
        """Sealed segments whose entries are not known to be committed."""
        return len(self._sealed)

    @property
    def in_flight_end_offset(self) -> int:
        """The log end offset if all that is in flight is committed, which other brokers may know first."""
        return self._sealed[-1].reference.last_offset + 1 if self._sealed else self.record.log_end_offset

    # --- seal and publish

    def start_seal(self) -> tuple[SegmentBuffer, int]:
        """Close the oldest open buffer, so that nothing more is appended to it; returns it and its base offset.

        The one before it must be sealed.
        """
        assert self.may_seal
        assert len(self._sealed) == self._closed_count
        buffer = self._buffers[self._closed_count]
        self._closed_count += 1
        return buffer, self.in_flight_end_offset

    def seal(self, buffer: SegmentBuffer, base_offset: int, now_ms: int) -> SealedSegment:
        """Seal the buffer that was closed last. May run in another thread, beside everything else here."""
        sealed = seal_buffer(buffer, base_offset, self.record.leader_epoch, now_ms)
        self._sealed.append(sealed)
        return sealed

    def is_next(self, sealed: SealedSegment) -> bool:
        """True if it is in flight, and the oldest of those; False once the log is closed."""
        return bool(self._sealed) and self._sealed[0] is sealed

    def published(self, sealed: SealedSegment, reference: SegmentReference) -> PartitionRecord:
        """The oldest sealed segment is committed, and lies where `reference` says; returns the partition's state.

        Notifies the waiters, and removes the buffer.
        """
        assert self.is_next(sealed)
        base_offset = reference.base_offset
        events = []
        for one in sealed.buffer.producer_batches:
            offset = base_offset + one.relative_offset
            if one.kind is not BatchKind.PLAIN:
                events.append(TransactionEvent(one.kind, one.producer_id, one.producer_epoch, offset))
            if one.kind.is_marker:
                self._markers_in_flight[one.producer_id] -= 1
                if not self._markers_in_flight[one.producer_id]:
                    del self._markers_in_flight[one.producer_id]
                now_ms = sealed.buffer.first_append_ms
                self.producers.publish_marker(one.producer_id, one.producer_epoch, offset, now_ms)
            else:
                self.producers.publish(one.producer_id, offset)
        for producer in self.producers.records(sealed.buffer.producers):
            self._recent_producers[producer.producer_id] = producer
        self.record = replace(
            self.record,
            log_end_offset=reference.last_offset + 1,
            segments=(*self.record.segments, reference),
            producers=tuple(self._recent_producers.values()),
            transactions=after_events(self.record.transactions, events),
        )
        self._unsealed_count += 1
        self._sealed.popleft()
        self._buffers.popleft()
        self._closed_count -= 1
        for waiter, relative_offset in sealed.buffer.waiters:
            waiter.published(base_offset + relative_offset, self.record.log_start_offset)
        return self.record

    def record_with(self, checkpoint: CheckpointPointer) -> PartitionRecord:
        """Returns the state that names the checkpoint. Changes nothing here."""
        return with_checkpoint(self.record, checkpoint)

    @property
    def is_ahead(self) -> bool:
        """True if more is published than the stored record says."""
        return self.record.log_end_offset > self._stored_end_offset

    def adopt(self, change: Change, stored_end_offset: int) -> PartitionRecord:
        """The store took a record with `change`, which this leader wrote; returns the state with it."""
        self._stored_end_offset = stored_end_offset
        record = change(self.record)
        if record.checkpoint_key != self.record.checkpoint_key:
            self.waiting_checkpoint = None
        self.record = record
        self._unsealed_count = len(unsealed(record.segments))
        self._recent_producers = {p.producer_id: p for p in record.producers}
        return record

    def fail(self, error_code: ErrorCode, message: str) -> list[SegmentBuffer]:
        """Close the log: refuse everything that waits, and return the buffers.

        For what is in flight the answer is that its outcome is unknown, unless it is known not to count:
        librdkafka takes NOT_LEADER_OR_FOLLOWER to say that nothing is stored, and may send such a batch again as a
        new one.
        """
        buffers = list(self._buffers)
        in_doubt = [sealed.buffer for sealed in self._sealed if not sealed.is_refused]
        self._buffers.clear()
        self._sealed.clear()
        self._closed_count = 0
        for buffer in buffers:
            is_in_doubt = any(buffer is one for one in in_doubt)
            answer = _UNKNOWN if is_in_doubt else (error_code, message)
            for waiter, _ in buffer.waiters:
                waiter.refused(*answer)
        return buffers

    def unpublished_batches(self) -> list[UnpublishedBatch]:
        """The oldest batch of each idempotent producer that is not known to be published."""
        waiting = dict.fromkeys(
            one.producer_id for buffer in self._buffers for one in buffer.producer_batches
        )
        return list(self.producers.unpublished(waiting))

    @property
    def has_room(self) -> bool:
        """True if the record, with the checkpoint that it will name next, has room for what is in flight and more."""
        if self._has_room(self.record):
            return True
        return self.waiting_checkpoint is not None and self._has_room(
            self.record_with(self.waiting_checkpoint)
        )

    def _has_room(self, record: PartitionRecord) -> bool:
        in_flight = sum(len(sealed.buffer.producers) for sealed in self._sealed)
        return (
            len(record.segments) + len(self._sealed) < MOST_RECORD_SEGMENTS
            and len(record.producers) + in_flight < MOST_RECORD_PRODUCERS
            and len(record.transactions.aborted) < MOST_RECORD_ABORTED
        )

    @property
    def checkpoint_due(self) -> bool:
        """True if the record has grown so much that its older part should move to a checkpoint."""
        return self.waiting_checkpoint is None and (
            len(self.record.segments) - self._unsealed_count >= CHECKPOINT_SEGMENTS
            or len(self.record.producers) >= CHECKPOINT_PRODUCERS
            or len(self.record.transactions.aborted) >= CHECKPOINT_ABORTED
        )


def _sequence_message(error_code: ErrorCode, header: BatchHeader) -> str:
    return (
        f"{error_code.name}: producer {header.producer_id} epoch {header.producer_epoch} "
        f"sequence {header.base_sequence}"
    )
