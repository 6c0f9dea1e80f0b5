"""The publish protocol as states and steps, for tests of the rebuild: every step that brokers and stores can take.

Told again from architecture.md: brokers gain the leadership without the others noticing, uploads land late,
again or never, leaders skip what lies in their way, flushes are given up, neighbours are merged, old segments
leave the record, garbage is deleted, and the metadata store is lost and rebuilt by the code that is tested.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint
from kafscale.formats.partition_record import ProducerRecord, SegmentReference
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.log.reading.segment_inspection import BatchList, InspectedSegment, SequencedBatch, Span
from kafscale.tools.fsck.record_check import MOST_LEFT_BEHIND as MOST_SEALED
from kafscale.tools.recovery.plan import (
    FoundCheckpoint,
    KnownPartition,
    PartitionContents,
    PartitionPlan,
    plan_partition,
)

NAMESPACE, TOPIC = "default", "walked"
CREATED_MS = 1_700_000_000_000


class Piece(NamedTuple):
    """A batch at its place. Each batch is the only one of an idempotent producer, whose id is the batch's.

    `attempt`: the flush that wrote it. Two never write the same bytes: the time stands in the segment.
    """

    offset: int
    length: int
    epoch: int
    batch: int
    attempt: int


class Stored(NamedTuple):
    """An object in the bucket."""

    pieces: tuple[Piece, ...]
    is_merged: bool = False

    @property
    def base(self) -> int:
        return self.pieces[0].offset

    @property
    def end(self) -> int:
        return self.pieces[-1].offset + self.pieces[-1].length

    @property
    def key(self) -> str:
        if self.is_merged:
            return object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, self.base, self.end - 1)
        return object_keys.segment_key(NAMESPACE, TOPIC, 0, self.base)


class Snapshot(NamedTuple):
    """A checkpoint in the bucket: what was published when it was written, under which epoch."""

    end: int
    epoch: int
    references: tuple[Stored, ...]
    producers: frozenset[tuple[int, int, int]]


class Record(NamedTuple):
    """The partition record. `producers`: batch, length and base offset of everything ever published."""

    epoch: int
    end: int
    references: tuple[Stored, ...] = ()
    producers: frozenset[tuple[int, int, int]] = frozenset()


class Flush(NamedTuple):
    """A segment in flight. `is_there`: None until the store has answered, False when something else is."""

    segment: Stored
    is_there: bool | None = None


class Broker(NamedTuple):
    """A broker's beliefs. `flushes`: the oldest first; `merged`: what it is about to swap in."""

    is_on: bool = False
    record: Record = Record(-1, 0)
    has_published: bool = False
    flushes: tuple[Flush, ...] = ()
    merged: Stored | None = None


class State(NamedTuple):
    record: Record
    brokers: tuple[Broker, ...]
    bucket: frozenset[Stored] = frozenset()
    checkpoint: Snapshot | None = None
    backup: KnownPartition | None = None
    in_flight: frozenset[Stored] = frozenset()
    attempts: int = 0


class Scope(NamedTuple):
    """How far the states go, and which steps there are beside those of publishing."""

    epochs: int
    attempts: int
    lengths: tuple[int, ...]
    offsets: int
    gives_up: bool = False
    collects_garbage: bool = False
    merges: bool = False
    retires: bool = False
    checkpoints: bool = False
    loses_metadata: bool = False
    backs_up: bool = False


def first_state(brokers: int) -> State:
    return State(record=Record(-1, 0), brokers=(Broker(),) * brokers)


def steps(state: State, scope: Scope) -> Iterator[State]:
    """Every state that may follow."""
    for number, broker in enumerate(state.brokers):
        for changed, after in _broker_steps(state, broker, scope):
            brokers = (*state.brokers[:number], after, *state.brokers[number + 1 :])
            yield changed._replace(brokers=brokers)
    taken = {stored.key for stored in state.bucket}
    for upload in state.in_flight:
        if upload.key not in taken:
            yield state._replace(bucket=state.bucket | {upload})  # and it may land once more
        yield state._replace(in_flight=state.in_flight - {upload})
    yield from _keeper_steps(state, scope)


def _broker_steps(state: State, broker: Broker, scope: Scope) -> Iterator[tuple[State, Broker]]:
    record = state.record
    leads = broker.is_on and broker.record.epoch == record.epoch
    if record.epoch + 1 < scope.epochs and not leads:
        gained = record._replace(epoch=record.epoch + 1)
        yield state._replace(record=gained), Broker(True, gained)
    if not broker.is_on:
        return
    yield state, Broker()
    if broker.merged is not None:
        if leads:
            swapped = record._replace(references=_swapped(record.references, broker.merged))
            yield state._replace(record=swapped), broker._replace(record=swapped, merged=None)
        return
    if scope.merges and not broker.flushes:
        yield from _merges(state, broker)
    yield from _begun(state, broker, scope)
    yield from _answered(state, broker)
    if broker.flushes:
        # A broker that gives up more than one goes on with another epoch.
        if scope.gives_up and len(broker.flushes) == 1:
            yield state, broker._replace(flushes=())
        match broker.flushes[0].is_there:
            case True:
                yield from _published_first(state, broker, leads)
            case False:
                yield from _passed_over(state, broker, scope, leads)


def _begun(state: State, broker: Broker, scope: Scope) -> Iterator[tuple[State, Broker]]:
    flushes = broker.flushes
    base = flushes[-1].segment.end if flushes else broker.record.end
    may_begin = not flushes or (broker.has_published and len(flushes) < MOST_SEALED)
    if not may_begin or state.attempts >= scope.attempts or base >= scope.offsets:
        return
    known = {batch for batch, _, _ in broker.record.producers}
    known |= {flush.segment.pieces[0].batch for flush in flushes}
    for batch, length in enumerate(scope.lengths):
        if batch not in known:
            segment = Stored((Piece(base, length, broker.record.epoch, batch, state.attempts),))
            yield (
                state._replace(in_flight=state.in_flight | {segment}, attempts=state.attempts + 1),
                broker._replace(flushes=(*flushes, Flush(segment))),
            )


def _answered(state: State, broker: Broker) -> Iterator[tuple[State, Broker]]:
    for place, flush in enumerate(broker.flushes):
        for found in state.bucket if flush.is_there is None else ():
            if found.key == flush.segment.key:
                told = flush._replace(is_there=found == flush.segment)
                flushes = (*broker.flushes[:place], told, *broker.flushes[place + 1 :])
                yield state, broker._replace(flushes=flushes)


def _published_first(state: State, broker: Broker, leads: bool) -> Iterator[tuple[State, Broker]]:
    if not leads:
        yield state, Broker()
        return
    published = _published(state.record, broker.flushes[0].segment)
    after = Broker(True, published, has_published=True, flushes=broker.flushes[1:])
    yield state._replace(record=published), after
    yield state._replace(record=published), Broker()


def _passed_over(state: State, broker: Broker, scope: Scope, leads: bool) -> Iterator[tuple[State, Broker]]:
    if not leads or broker.has_published:
        yield state, Broker()
        return
    [flush] = broker.flushes
    if flush.segment.base + 1 < scope.offsets:
        piece = flush.segment.pieces[0]
        moved = Stored((piece._replace(offset=piece.offset + 1),))
        yield (
            state._replace(in_flight=state.in_flight | {moved}),
            broker._replace(flushes=(Flush(moved),)),
        )


def _published(record: Record, segment: Stored) -> Record:
    piece = segment.pieces[0]
    return record._replace(
        end=segment.end,
        references=(*record.references, segment),
        producers=record.producers | {(piece.batch, piece.length, piece.offset)},
    )


def _merges(state: State, broker: Broker) -> Iterator[tuple[State, Broker]]:
    """Also by a broker that was replaced: what it merges was published all the same."""
    references = broker.record.references
    for first, second in pairwise(references):
        merged = Stored(first.pieces + second.pieces, is_merged=True)
        yield state._replace(bucket=state.bucket | {merged}), broker._replace(merged=merged)


def _swapped(references: tuple[Stored, ...], merged: Stored) -> tuple[Stored, ...]:
    inside = [one for one in references if merged.base <= one.base < merged.end]
    if sum((one.pieces for one in inside), ()) != merged.pieces:
        return references
    position = references.index(inside[0])
    return (*references[:position], merged, *references[position + len(inside) :])


def _keeper_steps(state: State, scope: Scope) -> Iterator[State]:
    record = state.record
    # Of a partition without a single segment only a checkpoint knows where it ended (docs/recover.md).
    if scope.retires and len(record.references) > 1 and any(b.record == record for b in state.brokers):
        retired = record._replace(references=record.references[1:])
        brokers = tuple(b._replace(record=retired) if b.record == record else b for b in state.brokers)
        yield state._replace(record=retired, brokers=brokers)
    if scope.collects_garbage:
        # What a broker is about to publish is younger than the grace period.
        needed = {*record.references, *(broker.merged for broker in state.brokers)}
        needed |= {flush.segment for broker in state.brokers for flush in broker.flushes}
        for stored in state.bucket:
            if stored not in needed and stored.base < record.end:
                yield state._replace(bucket=state.bucket - {stored})
    if scope.checkpoints and any(b.record == record and b.is_on for b in state.brokers):
        snapshot = Snapshot(record.end, record.epoch, record.references, record.producers)
        yield state._replace(checkpoint=snapshot)
    if scope.backs_up:
        start = record.references[0].base if record.references else record.end
        known = KnownPartition(leader_epoch=record.epoch, log_start_offset=start, log_end_offset=record.end)
        yield state._replace(backup=known)
    if scope.loses_metadata:
        yield rebuilt(state)


def rebuilt(state: State) -> State:
    """All brokers are stopped, the metadata store is lost, and `recover` writes the record anew.

    With the backup that there is, which may be older than another rebuild.
    """
    plan = plan_of(state.bucket, state.checkpoint, state.backup)
    keys = [(r.object_key, r.base_offset) for r in plan.record.segments]
    kept = {(stored.key if stored.is_merged else "", stored.base): stored for stored in state.bucket}
    producers = frozenset(
        (producer.producer_id, batch.last_sequence + 1, batch.base_offset)
        for producer in plan.record.producers
        for batch in producer.batches
    )
    record = Record(
        # The model counts epochs on from the highest that it has, as the passed over ones allow to.
        epoch=max(state.record.epoch, plan.highest_epoch),
        end=plan.record.log_end_offset,
        references=tuple(kept[key] for key in keys),
        producers=producers,
    )
    return state._replace(
        record=record, brokers=tuple(Broker() for _ in state.brokers), in_flight=frozenset()
    )


def plan_of(
    bucket: frozenset[Stored], checkpoint: Snapshot | None, backup: KnownPartition | None
) -> PartitionPlan:
    """The tested code's reading of a bucket, with what a backup of the metadata store says."""
    found = None
    if checkpoint is not None:
        key = object_keys.checkpoint_key(NAMESPACE, TOPIC, 0, checkpoint.end, max(checkpoint.epoch, 0), "x")
        producers = tuple(
            ProducerRecord(
                producer_id=batch,
                producer_epoch=0,
                last_timestamp_ms=CREATED_MS,
                batches=(ProducerBatch(0, length - 1, offset),),
            )
            for batch, length, offset in sorted(checkpoint.producers)
        )
        found = FoundCheckpoint(
            key=key,
            leader_epoch=checkpoint.epoch,
            checkpoint=Checkpoint(
                end_offset=checkpoint.end,
                segments=tuple(referred(stored) for stored in checkpoint.references),
                producers=producers,
            ),
        )
    return plan_partition(
        PartitionContents(
            namespace=NAMESPACE,
            topic=TOPIC,
            partition=0,
            segments=[inspected(stored) for stored in bucket],
            checkpoint=found,
            known=backup,
        )
    )


def referred(stored: Stored) -> SegmentReference:
    """The object as a record or a checkpoint refers to it."""
    return SegmentReference(
        base_offset=stored.base,
        last_offset=stored.end - 1,
        record_count=sum(piece.length for piece in stored.pieces),
        leader_epoch=stored.pieces[-1].epoch,
        size_bytes=100 * len(stored.pieces),
        max_timestamp_ms=CREATED_MS,
        object_key=stored.key if stored.is_merged else "",
    )


def inspected(stored: Stored) -> InspectedSegment:
    """The object as an inspection of its bytes would describe it."""
    spans: list[Span] = []
    for piece in stored.pieces:
        last = piece.offset + piece.length - 1
        if spans and (spans[-1].last_offset + 1, spans[-1].leader_epoch) == (piece.offset, piece.epoch):
            spans[-1] = spans[-1]._replace(last_offset=last)
        else:
            spans.append(Span(piece.offset, last, piece.epoch))
    return InspectedSegment(
        key=stored.key,
        base_offset=stored.base,
        last_offset=stored.end - 1,
        record_count=sum(piece.length for piece in stored.pieces),
        size_bytes=100 * len(stored.pieces),
        max_timestamp_ms=CREATED_MS,
        created_ms=CREATED_MS,
        is_merged=stored.is_merged,
        spans=tuple(spans),
        batches=BatchList.of((piece.offset, piece.batch) for piece in stored.pieces),
        sequenced=tuple(
            SequencedBatch(piece.batch, 0, 0, piece.length - 1, piece.offset) for piece in stored.pieces
        ),
    )


def kept_pieces(state: State, plan: PartitionPlan) -> list[Piece]:
    """Every batch of the rebuilt log, in order."""
    by_place = {(stored.key if stored.is_merged else "", stored.base): stored for stored in state.bucket}
    return [
        piece
        for reference in plan.record.segments
        for piece in by_place[reference.object_key, reference.base_offset].pieces
    ]


def broken_promise(state: State, plan: PartitionPlan, *, batches_are_unique: bool = True) -> str | None:
    """The harm that the rebuild would do to what was published; None if it keeps its promises.

    `batches_are_unique`: whether no batch may be in the rebuilt log twice.
    """
    kept = kept_pieces(state, plan)
    published = [piece for reference in state.record.references for piece in reference.pieces]
    # Which flush wrote a batch does not matter to anybody.
    if lost := {piece[:4] for piece in published} - {piece[:4] for piece in kept}:
        return f"published batches are lost: {sorted(lost)}"
    if any(before.offset + before.length > after.offset for before, after in pairwise(kept)):
        return "kept segments overlap"
    if plan.record.log_end_offset < state.record.end:
        return f"the log ends at {plan.record.log_end_offset}, published was up to {state.record.end}"
    batches = [piece.batch for piece in kept]
    if batches_are_unique and len(batches) > len(set(batches)):
        return f"batches are there twice: {sorted(batches)}"
    remembered = {
        (producer.producer_id, batch.base_offset)
        for producer in plan.record.producers
        for batch in producer.batches
    }
    if forgotten := {(piece.batch, piece.offset) for piece in published} - remembered:
        return f"retries of published batches would not be recognised: {sorted(forgotten)}"
    highest = max((piece.epoch for stored in state.bucket for piece in stored.pieces), default=-1)
    if plan.record.leader_epoch <= highest:
        return f"the next leader's epoch is {plan.record.leader_epoch + 1}, {highest} was used"
    if plan.is_of_later_topic:
        return "a later topic of the name was seen where there is one topic only"
    if state.backup is not None and plan.record.log_start_offset < state.backup.log_start_offset:
        return (
            f"the log starts at {plan.record.log_start_offset}, and {state.backup} says that this was deleted"
        )
    return None
