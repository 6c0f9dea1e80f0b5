"""Whatever a leader does with its log, in whatever order, the log keeps to a simple model of what it promises."""

from collections import deque
from dataclasses import dataclass, field, replace
from itertools import pairwise
from unittest.mock import patch

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kafscale.cluster.leadership import next_epoch
from kafscale.formats.partition_record import PartitionRecord, ProducerRecord
from kafscale.formats.producer_batches import REMEMBERED_BATCHES, ProducerBatch, with_batches
from kafscale.log.batch_append import AppendRules
from kafscale.log.leadership.events import Event
from kafscale.log.leadership.machine import PartitionLeadership
from kafscale.log.leadership.states import State
from kafscale.log.partition_log import PartitionLog
from kafscale.log.producer_state import ProducerStates
from kafscale.log.sealed_segment import SealedSegment
from kafscale.log.writing import segment_buffer
from kafscale.log.writing.segment_buffer import SegmentBuffer
from kafscale.memory.slab import SlabPool
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.formats.segments import parse_segment, verify_segment
from tests.support.nightly import by_day

NOW_MS = 1_700_000_000_000
RULES = AppendRules(codec=None, log_append_time=False, segment_bytes=1 << 20)
FULL_BYTES = 400
"""A buffer with so much takes nothing more: a few batches are several segments."""

IN_FLIGHT = 4
"""So many segments are in flight in a busy log at first; there is no limit here."""

PRODUCERS = (7, 8)
COUNTS = st.integers(1, 4)
REFUSALS = st.sampled_from([ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR])

Answer = tuple[str, int, int]


@dataclass(eq=False)
class Waiter:
    """Remembers what it was told, and what it should have been."""

    told: list[Answer] = field(default_factory=list)
    expected: list[Answer] = field(default_factory=list)

    def published(self, base_offset: int, log_start_offset: int) -> None:
        self.told.append(("published", base_offset, log_start_offset))

    def refused(self, error_code: int, message: str) -> None:
        assert message
        self.told.append(("refused", error_code, -1))


@dataclass(eq=False)
class ModelBatch:
    """A batch of an idempotent producer. `offset`: within its buffer, and absolute once that is published."""

    producer_id: int
    sequence: int
    count: int
    offset: int


@dataclass(eq=False)
class ModelBuffer:
    """The parts of a segment."""

    size_bytes: int = 0
    counts: list[int] = field(default_factory=list)
    waiters: list[tuple[Waiter, int]] = field(default_factory=list)
    batches: list[ModelBatch] = field(default_factory=list)

    @property
    def record_count(self) -> int:
        return sum(self.counts)


@dataclass(eq=False)
class ModelSegment:
    """A buffer that is closed. `sealed`: None as long as it is being sealed."""

    buffer: ModelBuffer
    base_offset: int
    closed: SegmentBuffer
    sealed: SealedSegment | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.buffer.record_count


def encoded(count: int, producer_id: int = -1, sequence: int = -1) -> memoryview:
    records = [Record(number, NOW_MS, None, b"value " * 5) for number in range(count)]
    epoch = 0 if producer_id >= 0 else -1
    return memoryview(
        encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


class PipelinedLog(RuleBasedStateMachine):
    """`open`: buffers that take batches or are full, the oldest first; `closed`: those before them."""

    @initialize(log_end_offset=st.sampled_from([0, 100]), is_busy=st.booleans())
    def begin(self, log_end_offset: int, is_busy: bool) -> None:
        self.patch = patch.object(segment_buffer, "SEGMENT_BUFFER_LIMIT_BYTES", FULL_BYTES)
        self.patch.start()
        self.waiters: list[Waiter] = []
        self.published: list[ModelBatch] = []
        self.lead(next_epoch(PartitionRecord(leader_epoch=4, log_end_offset=log_end_offset)), is_busy)

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.stop()

    def lead(self, record: PartitionRecord, is_busy: bool) -> None:
        """A new epoch begins with `record`, in which everything stands that was ever published.

        `is_busy`: it has published already, and more is in flight.
        """
        self.record = record
        self.leadership = PartitionLeadership(State.LEADING)
        self.log = PartitionLog(record, ProducerStates(record.producers), self.leadership)
        self.open: deque[ModelBuffer] = deque()
        self.closed: deque[ModelSegment] = deque()
        self.stored_end_offset = record.log_end_offset
        self.has_ended = False
        if is_busy:
            for count in range(1, IN_FLIGHT + 2):
                self.append_of_nobody_in_particular(count)
                self.start_seal(at_once=True)
            self.publish()

    # --- appends

    def pending_of(self, producer_id: int) -> list[ModelBatch]:
        buffers = [*(segment.buffer for segment in self.closed), *self.open]
        return [one for buffer in buffers for one in buffer.batches if one.producer_id == producer_id]

    def append(self, batch: memoryview) -> tuple[Waiter, int]:
        waiter = Waiter()
        self.waiters.append(waiter)
        return waiter, self.log.append(batch, read_header(batch, 0), RULES, NOW_MS, SlabPool(0), waiter)

    def accepted(self, batch: memoryview, count: int) -> tuple[ModelBuffer, int]:
        waiter, grown = self.append(batch)
        assert grown > len(batch)
        if not self.open or self.open[-1].size_bytes >= FULL_BYTES:
            self.open.append(ModelBuffer())
        buffer = self.open[-1]
        first = buffer.record_count
        buffer.waiters.append((waiter, first))
        buffer.counts.append(count)
        buffer.size_bytes += len(batch)
        return buffer, first

    @rule(count=COUNTS)
    def append_of_nobody_in_particular(self, count: int) -> None:
        self.accepted(encoded(count), count)

    @rule(producer_id=st.sampled_from(PRODUCERS), count=COUNTS)
    def append_of_an_idempotent_producer(self, producer_id: int, count: int) -> None:
        sequence = self.next_sequence(producer_id)
        buffer, first = self.accepted(encoded(count, producer_id, sequence), count)
        buffer.batches.append(ModelBatch(producer_id, sequence, count, first))

    def next_sequence(self, producer_id: int) -> int:
        published = [one for one in self.published if one.producer_id == producer_id]
        known = [*published, *self.pending_of(producer_id)]
        return known[-1].sequence + known[-1].count if known else 0

    @rule(producer_id=st.sampled_from(PRODUCERS), count=COUNTS)
    def append_with_a_gap_is_refused(self, producer_id: int, count: int) -> None:
        sequence = self.next_sequence(producer_id)
        if sequence == 0:
            return  # A producer that is not known may begin anywhere.
        waiter, grown = self.append(encoded(count, producer_id, sequence + 1))
        waiter.expected.append(("refused", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1))
        assert grown == 0

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(1, REMEMBERED_BATCHES))
    def append_again_what_is_on_its_way(self, producer_id: int, back: int) -> None:
        pending = self.pending_of(producer_id)
        if len(pending) < back:
            return
        batch = pending[-back]
        waiter, grown = self.append(encoded(batch.count, producer_id, batch.sequence))
        buffers = [*(segment.buffer for segment in self.closed), *self.open]
        [buffer] = [one for one in buffers if batch in one.batches]
        buffer.waiters.append((waiter, batch.offset))
        assert grown == 0

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(1, REMEMBERED_BATCHES))
    def append_again_what_is_published(self, producer_id: int, back: int) -> None:
        published = [one for one in self.published if one.producer_id == producer_id]
        if len(published) < back:
            return
        batch = published[-back]
        waiter, grown = self.append(encoded(batch.count, producer_id, batch.sequence))
        waiter.expected.append(("published", batch.offset, self.record.log_start_offset))
        assert grown == 0

    @rule(producer_id=st.sampled_from(PRODUCERS), back=st.integers(REMEMBERED_BATCHES + 1, 20))
    def append_again_what_was_published_long_ago(self, producer_id: int, back: int) -> None:
        published = [one for one in self.published if one.producer_id == producer_id]
        if len(published) < back:
            return
        batch = published[-back]
        waiter, grown = self.append(encoded(batch.count, producer_id, batch.sequence))
        waiter.expected.append(("refused", ErrorCode.DUPLICATE_SEQUENCE_NUMBER, -1))
        assert grown == 0

    # --- seal

    @precondition(
        lambda self: (
            self.log.may_seal and self.open and (not self.closed or self.closed[-1].sealed is not None)
        )
    )
    @rule(at_once=st.booleans())
    def start_seal(self, at_once: bool) -> None:
        closed, base_offset = self.log.start_seal()
        expected = self.closed[-1].end_offset if self.closed else self.record.log_end_offset
        assert base_offset == expected
        assert closed.record_count == self.open[0].record_count
        self.closed.append(ModelSegment(self.open.popleft(), base_offset, closed))
        if at_once:
            self.seal()

    @precondition(lambda self: self.closed and self.closed[-1].sealed is None)
    @rule()
    def seal(self) -> None:
        segment = self.closed[-1]
        segment.sealed = self.log.seal(segment.closed, segment.base_offset, NOW_MS)
        self.check_bytes(segment)

    def check_bytes(self, segment: ModelSegment) -> None:
        sealed, offset = segment.sealed, segment.base_offset
        assert sealed is not None
        parsed = parse_segment("sealed", b"".join(sealed.parts))
        for (_, header), count in zip(verify_segment(parsed), segment.buffer.counts, strict=True):
            assert (header.base_offset, header.record_count) == (offset, count)
            assert header.partition_leader_epoch == self.record.leader_epoch
            offset += count
        assert offset == segment.end_offset
        reference = sealed.reference
        assert (reference.base_offset, reference.last_offset) == (segment.base_offset, offset - 1)
        assert (reference.size_bytes, reference.leader_epoch) == (len(parsed.data), self.record.leader_epoch)

    # --- publish

    @precondition(lambda self: self.closed and self.closed[0].sealed is not None)
    @rule()
    def publish(self) -> None:
        sealed = self.closed[0].sealed
        assert sealed is not None
        assert self.log.is_next(sealed)
        reference = sealed.reference._replace(object_key="entry", start=self.closed[0].base_offset)
        state = self.log.published(sealed, reference)
        assert not self.log.is_next(sealed)
        assert state.segments == (*self.record.segments, reference)
        assert state.log_end_offset == self.closed[0].end_offset
        segment = self.take_oldest(state)
        start_offset = self.record.log_start_offset
        for waiter, relative_offset in segment.buffer.waiters:
            waiter.expected.append(("published", segment.base_offset + relative_offset, start_offset))

    def take_oldest(self, record: PartitionRecord) -> ModelSegment:
        """Its entry is committed, whoever is told."""
        self.record = record
        segment = self.closed.popleft()
        for batch in segment.buffer.batches:
            batch.offset += segment.base_offset
            self.published.append(batch)
        return segment

    @rule(was_published_meanwhile=st.booleans())
    def delete_records(self, was_published_meanwhile: bool) -> None:
        start, stored_end = self.record.log_end_offset, self.record.log_end_offset
        if was_published_meanwhile and self.closed and self.closed[0].sealed is not None:
            self.publish()
        self.record = replace(self.record, log_start_offset=start)
        assert self.log.adopt(lambda state: replace(state, log_start_offset=start), stored_end) == self.record
        self.stored_end_offset = stored_end

    # --- the end of an epoch

    @precondition(lambda self: not self.has_ended)
    @rule()
    def end(self) -> None:
        self.leadership.apply(Event.FLUSH_STOPPED)
        self.has_ended = True

    @rule(
        error_code=REFUSALS,
        first_refused=st.integers(0, 5),
        committed=st.integers(0, 5),
        is_busy=st.booleans(),
    )
    def fail(self, error_code: ErrorCode, first_refused: int, committed: int, is_busy: bool) -> None:
        """Entries in flight from `first_refused` on are known not to count; of the others `committed` do."""
        sealed = [segment for segment in self.closed if segment.sealed is not None]
        for segment in sealed[first_refused:]:
            assert segment.sealed is not None
            segment.sealed.is_refused = True
        self.refused(error_code, [segment.buffer for segment in sealed[:first_refused]])
        for _ in range(min(committed, first_refused, len(sealed))):
            found = self.closed[0].sealed
            assert found is not None
            segments = (*self.record.segments, found.reference)
            self.take_oldest(
                replace(self.record, segments=segments, log_end_offset=self.closed[0].end_offset)
            )
        self.lead(self.next_record(), is_busy)

    def next_record(self) -> PartitionRecord:
        """As the next leader writes it, with the producers of what the journal has."""
        producers = []
        for producer_id in PRODUCERS:
            batches = tuple(
                ProducerBatch(one.sequence, one.sequence + one.count - 1, one.offset)
                for one in self.published
                if one.producer_id == producer_id
            )
            if batches:
                producers.append(
                    ProducerRecord(
                        producer_id=producer_id,
                        producer_epoch=0,
                        last_timestamp_ms=NOW_MS,
                        batches=with_batches((), batches),
                    )
                )
        return next_epoch(replace(self.record, producers=tuple(producers)))

    def refused(self, error_code: ErrorCode, in_doubt: list[ModelBuffer]) -> None:
        buffers = [*(segment.buffer for segment in self.closed), *self.open]
        for buffer in buffers:
            told = ErrorCode.REQUEST_TIMED_OUT if buffer in in_doubt else error_code
            for waiter, _ in buffer.waiters:
                waiter.expected.append(("refused", told, -1))
        given_up = self.log.fail(error_code, "why")
        assert [one.record_count for one in given_up] == [one.record_count for one in buffers]
        assert self.log.fail(error_code, "why") == []

    # --- what always holds

    @invariant()
    def everybody_was_told_once_and_in_time(self) -> None:
        for waiter in self.waiters:
            assert waiter.told == waiter.expected
            assert len(waiter.told) <= 1

    @invariant()
    def what_is_in_flight_is_published_in_its_order(self) -> None:
        log = self.log
        sealed = [segment.sealed for segment in self.closed if segment.sealed is not None]
        assert log.in_flight_count == len(sealed)
        assert [log.is_next(one) for one in sealed] == [number == 0 for number in range(len(sealed))]
        assert log.may_seal == (not self.has_ended)
        assert log.is_empty == (not self.closed and not self.open)
        assert log.is_ahead == (self.record.log_end_offset > self.stored_end_offset)

    @invariant()
    def what_waits_is_the_oldest_that_is_open(self) -> None:
        waiting = self.log.waiting
        assert (waiting is None) == (not self.open)
        if waiting is not None:
            assert waiting.record_count == self.open[0].record_count
            assert len(waiting.waiters) == len(self.open[0].waiters)

    @invariant()
    def no_offset_is_passed_over(self) -> None:
        assert self.log.record == self.record
        for before, after in pairwise(self.record.segments):
            assert after.base_offset == before.last_offset + 1


PipelinedLog.TestCase.settings = settings(max_examples=by_day(40, by_night=800), stateful_step_count=40)
TestPipelinedLog = PipelinedLog.TestCase
