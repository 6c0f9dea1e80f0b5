"""The steps of partition leaders: verify, append, commit, handle markers; and their replacement."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from kafscale.formats.partition_transactions import NO_TRANSACTIONS, OpenTransaction, after_events
from kafscale.log.transactions.marker_step import MarkerStep, next_step
from kafscale.transactions import events as happenings
from kafscale.transactions.decisions import Reply
from kafscale.transactions.events import ProducerIdAndEpoch
from kafscale.transactions.markers import PREPARING
from tests.sim.transactions.coordinating import S, Step, added, decision_on, groups_of, topics_of
from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.states import (
    Batch,
    Ended,
    Leader,
    Log,
    Marker,
    Partition,
    Produce,
    Record,
    Scope,
    State,
    events,
    with_partition,
)


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    """The next steps of all leaders, and of those who replace them."""
    for index, partition in enumerate(state.partitions):
        for request in state.flying:
            if isinstance(request, Produce) and request.place == index:
                yield from _receives(state, index, partition, request, mistake)
        if partition.leader.asked is not None:
            yield _appends_verified(state, index, partition.leader, partition.leader.asked)
        if not partition.is_fenced and len(partition.log) < len(partition.leader.log):
            log = partition.leader.log[: len(partition.log) + 1]
            yield f"{index}: {log[-1]} is committed", with_partition(state, index, log=log)
        yield from _handles_marker(state, index, partition, mistake)
        if partition.old is not None:
            yield from _is_late(state, index, partition, partition.old, mistake)
        if index == 0 or scope.claims_all:
            yield from _is_replaced(state, index, partition, scope, mistake)


@cache
def opened(log: Log, producer_id: int) -> OpenTransaction | None:
    """The producer's transaction that the log has open."""
    found = after_events(NO_TRANSACTIONS, events(log)).open
    return next((one for one in found if one.producer_id == producer_id), None)


@cache
def verified(record: Record, place: int, producer: ProducerIdAndEpoch, mistake: Mistake | None) -> bool:
    """True if the producer's transaction is open and has the place."""
    if mistake is Mistake.NO_VERIFICATION:
        return True
    if mistake is Mistake.VERIFIED_WITHOUT_EPOCH:
        producer = record.producer
    if mistake is Mistake.VERIFIED_AFTER_DECISION and record.value.state in PREPARING:
        record = record._replace(value=replace(record.value, state=S.ONGOING))
    places = () if mistake is Mistake.VERIFIED_WITHOUT_PARTITION else (place,)
    if record.value.state is not S.ONGOING:
        places = (place,)
    event = happenings.Verify(producer=producer, topics=topics_of(places), groups=groups_of(places))
    return isinstance(decision_on(record, event), Reply)


# --- append


@cache
def _fits(log: Log, batch: Batch) -> bool:
    """True if the producer's epoch and sequence allow the batch, as with idempotent producers."""
    of_producer = [one for one in log if one.producer.producer_id == batch.producer.producer_id]
    epoch = of_producer[-1].producer.epoch if of_producer else -1
    known = [one for one in of_producer if isinstance(one, Batch) and one.producer == batch.producer]
    return batch.producer.epoch >= epoch and batch.sequence == len(known)


def _receives(
    state: State, index: int, partition: Partition, request: Produce, mistake: Mistake | None
) -> Iterator[Step]:
    leader, batch = partition.leader, request.batch
    if not _fits(leader.log, batch):
        return
    found = opened(leader.log, batch.producer.producer_id)
    if found is not None and found.producer_epoch == batch.producer.epoch:
        after = leader._replace(log=(*leader.log, batch))
        yield f"{index}: appends {batch}", with_partition(state, index, leader=after)
        return
    if leader.asked is not None:
        return
    asking = with_partition(state, index, leader=leader._replace(asked=batch))
    if request.version == 2:
        yield from adds(state, asking, index, request, mistake)
        if mistake is Mistake.ADD_WITHOUT_COMPARE:
            yield from _adds_to_what_it_read(state, index, leader, request)
    elif verified(state.record, index, batch.producer, mistake):
        yield f"{index}: {batch} is verified", asking


def adds(
    state: State, asking: State, place: int, request: Produce, mistake: Mistake | None
) -> Iterator[Step]:
    """The new protocol: a leader or a group's coordinator adds its place by itself. Its answer may be lost."""
    record, batch = state.record, request.batch
    if verified(record, place, batch.producer, mistake):
        yield f"{place}: {batch} is verified", asking
        return
    after = added(record, (place,), batch.transaction, 2, batch.producer)
    is_late = record.value.state in PREPARING and batch.producer.epoch == record.value.producer_epoch - 1
    if mistake is Mistake.ADD_AFTER_DECISION and is_late:
        # Added to a transaction that is decided, whose markers are put.
        open_value = replace(record.value, state=S.ONGOING, producer_epoch=batch.producer.epoch)
        begun = added(record._replace(value=open_value), (place,), batch.transaction, 2, batch.producer)
        assert begun is not None
        value = replace(begun.value, state=record.value.state, producer_epoch=record.value.producer_epoch)
        after = begun._replace(value=value)
    if after is not None:
        yield f"{place}: is added for {batch}", asking._replace(record=after)
        yield f"{place}: is added for {batch}, which is not appended", state._replace(record=after)


def _adds_to_what_it_read(state: State, index: int, leader: Leader, request: Produce) -> Iterator[Step]:
    if leader.read is None:
        read = with_partition(state, index, leader=leader._replace(read=state.record))
        yield f"{index}: reads the record", read
        return
    after = added(leader.read, (index,), request.batch.transaction, 2, request.batch.producer)
    if after is not None:
        asking = with_partition(state, index, leader=leader._replace(asked=request.batch, read=None))
        put = after._replace(revision=state.record.revision + 1)
        yield f"{index}: is added without a compare", asking._replace(record=put)


def _appends_verified(state: State, index: int, leader: Leader, batch: Batch) -> Step:
    after = leader._replace(asked=None)
    if _fits(leader.log, batch):
        after = after._replace(log=(*leader.log, batch))
    return f"{index}: appends {batch}, which was verified", with_partition(state, index, leader=after)


# --- markers


def _handles_marker(
    state: State, index: int, partition: Partition, mistake: Mistake | None
) -> Iterator[Step]:
    leader, marker = partition.leader, partition.leader.view
    if marker != partition.marker:
        seen = leader._replace(view=partition.marker)
        yield f"{index}: its watch shows {partition.marker}", with_partition(state, index, leader=seen)
    if leader.deleting is not None:
        yield from _deletes(state, index, partition, leader.deleting, mistake)
        if mistake is not Mistake.MARKER_TWICE:
            return
    if marker is None:
        return
    match _next_step(partition, leader, marker, mistake):
        case MarkerStep.READ_BACK if partition.marker == marker:
            confirmed = leader._replace(confirmed=marker.revision)
            yield f"{index}: reads {marker} back", with_partition(state, index, leader=confirmed)
        case MarkerStep.APPEND:
            asked = leader.asked if mistake is Mistake.VERIFICATION_OUTLIVES_MARKER else None
            log = (*leader.log, Ended(marker.is_commit, marker.producer, marker.transaction))
            after = leader._replace(asked=asked, log=log)
            yield f"{index}: appends {marker}", with_partition(state, index, leader=after)
        case MarkerStep.DELETE:
            asked = leader.asked if mistake is Mistake.VERIFICATION_OUTLIVES_MARKER else None
            after = leader._replace(asked=asked, deleting=marker)
            yield f"{index}: has nothing open for {marker}", with_partition(state, index, leader=after)


def _next_step(partition: Partition, leader: Leader, marker: Marker, mistake: Mistake | None) -> MarkerStep:
    """The real one. Revisions: a term begins at an even number, and a key that was put in it has the odd one."""
    producer_id = marker.producer.producer_id
    in_flight = leader.log[len(partition.log) :]
    known = partition.log if mistake is Mistake.DELETE_BESIDE_APPEND else leader.log
    found = opened(known, producer_id)
    return next_step(
        marker_epoch=marker.producer.epoch,
        revision=2 * marker.claims + 1,
        led_since_revision=2 * partition.claims,
        is_read_back=leader.confirmed == marker.revision or mistake is Mistake.OLD_VIEW,
        is_in_flight=any(isinstance(one, Ended) for one in in_flight)
        and mistake is not Mistake.DELETE_BEFORE_COMMIT,
        open_epoch=None if found is None else found.producer_epoch,
    )


def _deletes(
    state: State, index: int, partition: Partition, marker: Marker, mistake: Mistake | None
) -> Iterator[Step]:
    """One write that compares the marker key and the leader key; tried again while its answer is lost."""
    leader, now = partition.leader, partition.marker
    forgets = leader.view is not None and leader.view.revision == marker.revision
    ended = leader._replace(deleting=None, view=None if forgets else leader.view)
    if now is None or (now.revision != marker.revision and mistake is not Mistake.DELETE_ANY_MARKER):
        yield f"{index}: finds {marker} gone", with_partition(state, index, leader=ended)
        return
    lost = leader._replace(deleting=None) if mistake is Mistake.MARKER_TWICE else leader
    yield (
        f"{index}: deletes {marker}, the answer is lost",
        with_partition(state, index, leader=lost, marker=None),
    )
    yield f"{index}: deletes {marker}", with_partition(state, index, leader=ended, marker=None)


# --- who leads


def _is_replaced(
    state: State, index: int, partition: Partition, scope: Scope, mistake: Mistake | None
) -> Iterator[Step]:
    if partition.claims == scope.claims:
        return
    if not partition.is_fenced:
        yield f"{index}: the leader's journal has ended", with_partition(state, index, is_fenced=True)
        return
    # Its watch may lag. The one before may lead again, which is why a question is a term's.
    old = partition.leader
    asked = None
    if mistake is Mistake.VERIFICATION_OUTLIVES_TERM and partition.old is not None:
        asked = partition.old.asked
    yield (
        f"{index}: another leader",
        with_partition(
            state,
            index,
            leader=Leader(partition.log, view=old.view, asked=asked),
            old=old,
            claims=partition.claims + 1,
            is_fenced=False,
        ),
    )


def _is_late(
    state: State, index: int, partition: Partition, old: Leader, mistake: Mistake | None
) -> Iterator[Step]:
    """A leader that was replaced. What it appends is never committed; it may still add its partition."""
    for request in state.flying:
        if isinstance(request, Produce) and (request.place, request.version) == (index, 2):
            producer_id = request.batch.producer.producer_id
            if _fits(old.log, request.batch) and opened(old.log, producer_id) is None:
                yield from adds(state, state, index, request, mistake)
    if mistake is not Mistake.DELETE_WITHOUT_LEADER:
        return
    if old.view != partition.marker:
        seen = old._replace(view=partition.marker)
        yield f"{index}: the old leader's watch shows the key", with_partition(state, index, old=seen)
    if old.view is None or old.view != partition.marker:
        return
    if opened(old.log, old.view.producer.producer_id) is None:
        deleted = with_partition(state, index, marker=None)
        yield f"{index}: the old leader deletes {old.view}", deleted
