"""The leader's log of one partition, pure: what is appended, sealed and published, and the record that results.

Theory of operation. Batches are appended to the newest `SegmentBuffer` in arrival order, with offsets relative
to it. The oldest buffers are *sealed*: each gets its base offset, where the one before it ends, or else the
published log end offset, and its bytes are final. When its object is stored, and it is the oldest,
`record_after` returns what the partition record must become; when the metadata store has taken that, `published`
applies it here and notifies the waiters.

When an older leader's upload turns out to have a segment's key, `reseal` moves the segment one offset up
(docs/architecture.md, "Publish"). That is only possible while nothing behind it has an absolute
offset. So a leader seals one buffer at a time until it has published once: an older leader's upload is most likely
just where the new one begins. If a later segment meets one all the same, the leader closes the log, and claims the
partition again with a new epoch (decision 0033).
"""

from collections import deque
from dataclasses import dataclass, replace

from kafscale.formats.partition_record import (
    PartitionRecord,
    ProducerBatch,
    ProducerRecord,
    is_published_in,
)
from kafscale.formats.segment import MAX_MESSAGE_COUNT
from kafscale.log.batch_append import AppendRules, append_batch
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.leadership.states import State
from kafscale.log.producer_state import PendingBatch, ProducerStates, UnpublishedBatch
from kafscale.log.sealed_segment import SealedSegment, seal_buffer
from kafscale.log.writing.compression_trials import CompressionTrials
from kafscale.log.writing.segment_buffer import AppendWaiter, SegmentBuffer
from kafscale.memory.slab import SlabPool
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import BatchHeader

CHECKPOINT_SEGMENTS = 128
CHECKPOINT_PRODUCERS = 256

MOST_RECORD_SEGMENTS = 2048
MOST_RECORD_PRODUCERS = 2048
"""A record with more takes no further segment until a checkpoint takes them over (decision 0044).

What is sealed by then is still added: `MOST_SEALED` segments with their producers, 512 KiB in all.
"""

_UNKNOWN = (ErrorCode.REQUEST_TIMED_OUT, "it is not known whether the records were published")

# The cost of a batch beside its bytes: the objects that remember it, its request and its reply.
BATCH_OVERHEAD_BYTES = 1024

MOST_SEALED = 2
"""The limit on the segments of one partition that are in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPointer:
    """A stored checkpoint that the record does not name yet; it covers every segment below `end_offset`."""

    key: str
    end_offset: int


class PartitionLog:
    """One partition as its leader sees it. `record` is as stored in the metadata store.

    `leadership` gives the right to seal and to publish; without one the log always has it.
    """

    __slots__ = (
        "_buffers",
        "_closed_count",
        "_has_published",
        "_is_in_doubt",
        "_leadership",
        "_recent_producers",
        "_sealed",
        "_trials",
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
        # The oldest `_closed_count` take no more batches, also after their flush was cancelled; the oldest of these
        # are sealed, in the same order.
        self._buffers: deque[SegmentBuffer] = deque()
        self._closed_count = 0
        self._sealed: deque[SealedSegment] = deque()
        self._has_published = False
        self._trials = CompressionTrials()
        # True while the publication of the oldest segment has begun and its outcome is not known.
        self._is_in_doubt = False
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
            self._remember(buffer, relative_offset, header, now_ms)
        buffer.waiters.append((waiter, relative_offset))
        grown = buffer.size_bytes - before + BATCH_OVERHEAD_BYTES
        buffer.charged_bytes += grown
        return grown

    def _check_sequence(self, header: BatchHeader) -> ErrorCode | PendingBatch | ProducerBatch:
        if header.producer_id < 0:
            return ErrorCode.NONE
        return self.producers.check(
            header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence
        )

    def _open_buffer(self, record_count: int, now_ms: int) -> SegmentBuffer:
        """The newest buffer, or a new one if that is full or `record_count` more would overflow its header."""
        if len(self._buffers) > self._closed_count:
            newest = self._buffers[-1]
            if not newest.is_full and newest.record_count + record_count <= MAX_MESSAGE_COUNT:
                return newest
        buffer = SegmentBuffer(now_ms)
        self._buffers.append(buffer)
        return buffer

    def _remember(
        self, buffer: SegmentBuffer, relative_offset: int, header: BatchHeader, now_ms: int
    ) -> None:
        pending = PendingBatch(
            buffer,
            relative_offset,
            header.producer_epoch,
            header.base_sequence,
            header.last_sequence,
            now_ms,
        )
        self.producers.append(header.producer_id, pending)
        buffer.producer_ids.append((header.producer_id, relative_offset))
        buffer.producers.add(header.producer_id)

    # --- what waits

    @property
    def waiting(self) -> SegmentBuffer | None:
        """The oldest buffer that is not closed yet."""
        return self._buffers[self._closed_count] if len(self._buffers) > self._closed_count else None

    @property
    def newest(self) -> SegmentBuffer:
        """The buffer that the last batch was appended to; there must be one."""
        return self._buffers[-1]

    def holds(self, buffer: SegmentBuffer) -> bool:
        """True if the buffer is not published yet."""
        return any(buffer is one for one in self._buffers)

    @property
    def may_publish(self) -> bool:
        """False once the log is closed: its waiters have their answers, so their records must not be published."""
        return self._leadership.rights.publishes

    @property
    def may_seal(self) -> bool:
        """True if another buffer may be closed beside those that are."""
        return self._leadership.rights.seals and (
            self._closed_count == 0
            or (self._has_published and len(self._sealed) == self._closed_count < MOST_SEALED)
        )

    # --- seal and publish

    @property
    def sealed(self) -> SealedSegment | None:
        """The oldest that is sealed and not published."""
        return self._sealed[0] if self._sealed else None

    def start_seal(self) -> tuple[SegmentBuffer, int]:
        """Close the oldest open buffer, so that nothing more is appended to it; returns it and its base offset."""
        assert self.may_seal
        buffer = self._buffers[self._closed_count]
        self._closed_count += 1
        base_offset = (
            self._sealed[-1].reference.last_offset + 1 if self._sealed else self.record.log_end_offset
        )
        return buffer, base_offset

    def seal(self, buffer: SegmentBuffer, base_offset: int, now_ms: int, index_version: int) -> SealedSegment:
        """Seal the buffer that was closed last. May run in another thread, beside everything else here.

        `index_version`: see `index_version_at`.
        """
        sealed = self._seal(buffer, base_offset, now_ms, index_version)
        self._sealed.append(sealed)
        return sealed

    @property
    def may_reseal(self) -> bool:
        """True if the sealed segment may move: it is the first of an epoch, with nothing behind it.

        So every skipped offset lies where the epoch changes, by which fsck recognises it.
        """
        return not self._has_published

    def reseal(self) -> SealedSegment:
        """Move the only sealed segment one offset up: an older leader's upload has its key."""
        assert self.may_reseal
        [old] = self._sealed
        self._sealed.clear()
        sealed = self._seal(old.buffer, old.reference.base_offset + 1, old.created_ms, old.index_version)
        self._sealed.append(sealed)
        return sealed

    def _seal(
        self, buffer: SegmentBuffer, base_offset: int, created_ms: int, index_version: int
    ) -> SealedSegment:
        return seal_buffer(buffer, base_offset, self.record.leader_epoch, created_ms, index_version)

    def record_after(self, sealed: SealedSegment) -> PartitionRecord:
        """Returns the record with which `sealed` is published. Changes nothing here."""
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
        """Returns the record to write. The outcome is in doubt until `published` or `succeeded_by` is called."""
        self._is_in_doubt = True
        return self.record_after(sealed)

    def succeeded_by(self, successor: PartitionRecord) -> None:
        """Another leader wrote `successor` instead: if it shows that `sealed` was published, notify the waiters."""
        assert self.sealed is not None
        was_published = is_published_in(successor, self.record, self.sealed.reference.last_offset)
        if was_published:
            self.published(self.sealed, self.record_after(self.sealed))
        elif was_published is False:
            self._is_in_doubt = False

    def record_with(self, checkpoint: CheckpointPointer) -> PartitionRecord:
        """Returns the record that names the checkpoint. Changes nothing here."""
        return _with_checkpoint(self.record, checkpoint)

    def _published_producers(self, sealed: SealedSegment) -> list[ProducerRecord]:
        base_offset = sealed.reference.base_offset
        return self.producers.preview(
            [(producer_id, base_offset + relative) for producer_id, relative in sealed.buffer.producer_ids]
        )

    def published(self, sealed: SealedSegment, record: PartitionRecord) -> None:
        """The store took `record`: apply it, notify the waiters, and remove the buffer."""
        assert self.sealed is sealed
        base_offset = sealed.reference.base_offset
        for producer_id, relative_offset in sealed.buffer.producer_ids:
            self.producers.publish(producer_id, base_offset + relative_offset)
        self.adopt(record)
        self._sealed.popleft()
        self._buffers.popleft()
        self._closed_count -= 1
        self._has_published = True
        self._is_in_doubt = False
        for waiter, relative_offset in sealed.buffer.waiters:
            waiter.published(base_offset + relative_offset, record.log_start_offset)

    def adopt(self, record: PartitionRecord) -> None:
        """The store took `record`, which this leader wrote; it may change anything."""
        if record.checkpoint_key != self.record.checkpoint_key:
            self.waiting_checkpoint = None
        self.record = record
        self._recent_producers = {p.producer_id: p for p in record.producers}

    def fail(self, error_code: ErrorCode, message: str) -> list[SegmentBuffer]:
        """Close the log: refuse everything that waits, and return the buffers.

        For a publication in doubt the answer is that its outcome is unknown: librdkafka takes
        NOT_LEADER_OR_FOLLOWER to say that nothing is stored, and may send such a batch again as a new one.
        """
        buffers = list(self._buffers)
        unknown = buffers[0] if self._is_in_doubt else None
        self._buffers.clear()
        self._sealed.clear()
        self._closed_count = 0
        self._is_in_doubt = False
        for buffer in buffers:
            answer = _UNKNOWN if buffer is unknown else (error_code, message)
            for waiter, _ in buffer.waiters:
                waiter.refused(*answer)
        return buffers

    def unpublished_batches(self) -> list[UnpublishedBatch]:
        """The oldest batch of each idempotent producer that is not known to be published."""
        waiting = dict.fromkeys(
            producer_id for buffer in self._buffers for producer_id, _ in buffer.producer_ids
        )
        return list(self.producers.unpublished(waiting))

    @property
    def has_room(self) -> bool:
        """True if the record, with the checkpoint that it will name next, has room for what is sealed and more."""
        record = self.record
        if len(record.segments) < MOST_RECORD_SEGMENTS and len(record.producers) < MOST_RECORD_PRODUCERS:
            return True
        if self.waiting_checkpoint is None:
            return False
        record = self.record_with(self.waiting_checkpoint)
        return len(record.segments) < MOST_RECORD_SEGMENTS and len(record.producers) < MOST_RECORD_PRODUCERS

    @property
    def checkpoint_due(self) -> bool:
        """True if the record has grown so much that its older part should move to a checkpoint."""
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


def _sequence_message(error_code: ErrorCode, header: BatchHeader) -> str:
    return (
        f"{error_code.name}: producer {header.producer_id} epoch {header.producer_epoch} "
        f"sequence {header.base_sequence}"
    )
