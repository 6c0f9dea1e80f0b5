"""The steps of partition leaders: verify, append, commit, handle markers; and their replacement."""

from collections.abc import Iterator

from kafscale.formats.partition_transactions import NO_TRANSACTIONS, OpenTransaction, after_events
from tests.sim.transactions.coordinating import PREPARED, S, Step, added
from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.states import (
    PRODUCER_ID,
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
        if index == 0 or not scope.own_claims:
            yield from _is_replaced(state, index, partition, scope, mistake)


def opened(log: Log) -> OpenTransaction | None:
    """The producer's transaction that the log has open."""
    found = after_events(NO_TRANSACTIONS, events(log)).open
    return next((one for one in found if one.producer_id == PRODUCER_ID), None)


def verified(record: Record, place: int, epoch: int, mistake: Mistake | None) -> bool:
    """True if the producer's transaction is open and has the place."""
    if mistake is Mistake.NO_VERIFICATION:
        return True
    is_open = record.state is S.ONGOING or (
        mistake is Mistake.VERIFIED_AFTER_DECISION and record.state in PREPARED
    )
    has_place = place in record.places or mistake is Mistake.VERIFIED_WITHOUT_PARTITION
    return is_open and has_place and (epoch == record.epoch or mistake is Mistake.VERIFIED_WITHOUT_EPOCH)


# --- append


def _fits(log: Log, batch: Batch) -> bool:
    """True if the producer's epoch and sequence allow the batch, as with idempotent producers."""
    epoch = log[-1].epoch if log else -1
    known = [one for one in log if isinstance(one, Batch) and one.epoch == batch.epoch]
    return batch.epoch >= epoch and batch.sequence == len(known)


def _receives(
    state: State, index: int, partition: Partition, request: Produce, mistake: Mistake | None
) -> Iterator[Step]:
    leader, batch = partition.leader, request.batch
    if not _fits(leader.log, batch):
        return
    found = opened(leader.log)
    if found is not None and found.producer_epoch == batch.epoch:
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
    elif verified(state.record, index, batch.epoch, mistake):
        yield f"{index}: {batch} is verified", asking


def adds(state: State, asking: State, place: int, request: Produce, mistake: Mistake | None) -> Iterator[Step]:
    """The new protocol: a leader or a group's coordinator adds its place by itself. Its answer may be lost."""
    record, batch = state.record, request.batch
    if verified(record, place, batch.epoch, mistake):
        yield f"{place}: {batch} is verified", asking
        return
    after = added(record, (place,), batch.transaction, 2, batch.epoch)
    if after is None and mistake is Mistake.ADD_AFTER_DECISION and batch.epoch == record.epoch - 1:
        places = tuple(sorted({*record.places, place}))
        after = record._replace(revision=record.revision + 1, places=places)
    if after is not None:
        yield f"{place}: is added for {batch}", asking._replace(record=after)
        yield f"{place}: is added for {batch}, which is not appended", state._replace(record=after)


def _adds_to_what_it_read(state: State, index: int, leader: Leader, request: Produce) -> Iterator[Step]:
    if leader.read is None:
        read = with_partition(state, index, leader=leader._replace(read=state.record))
        yield f"{index}: reads the record", read
    else:
        after = added(leader.read, (index,), request.batch.transaction, 2, request.batch.epoch)
        if after is not None:
            asking = leader._replace(asked=request.batch, read=None)
            put = after._replace(revision=state.record.revision + 1)
            yield f"{index}: is added without a compare", with_partition(state, index, leader=asking)._replace(
                record=put
            )


def _appends_verified(state: State, index: int, leader: Leader, batch: Batch) -> Step:
    after = leader._replace(asked=None)
    if _fits(leader.log, batch):
        after = after._replace(log=(*leader.log, batch))
    return f"{index}: appends {batch}, which was verified", with_partition(state, index, leader=after)


# --- markers


def _handles_marker(state: State, index: int, partition: Partition, mistake: Mistake | None) -> Iterator[Step]:
    leader, marker = partition.leader, partition.leader.view
    if marker != partition.marker:
        seen = leader._replace(view=partition.marker)
        yield f"{index}: reads the marker key: {partition.marker}", with_partition(state, index, leader=seen)
    if marker is None:
        return
    is_settled = len(partition.log) == len(leader.log)
    if leader.handled == marker.revision:
        if is_settled or mistake is Mistake.DELETE_BEFORE_COMMIT:
            yield from _deletes(state, index, partition, leader, marker, mistake)
        if mistake is not Mistake.MARKER_TWICE:
            return
    asked = leader.asked if mistake is Mistake.VERIFICATION_OUTLIVES_MARKER else None
    done = leader._replace(handled=marker.revision, asked=asked)
    if opened(leader.log) is not None:
        if opened(partition.log) is None and mistake is Mistake.DELETE_BESIDE_APPEND:
            yield from _deletes(state, index, partition, done, marker, mistake)
            return
        log = (*leader.log, Ended(marker.is_commit, marker.epoch, marker.transaction))
        yield f"{index}: appends {marker}", with_partition(state, index, leader=done._replace(log=log))
    elif is_settled:
        yield f"{index}: has nothing for {marker}", with_partition(state, index, leader=done)
    elif mistake is Mistake.DELETE_BESIDE_MARKER:
        yield from _deletes(state, index, partition, done, marker, mistake)


def _deletes(
    state: State, index: int, partition: Partition, leader: Leader, marker: Marker, mistake: Mistake | None
) -> Iterator[Step]:
    """One write that compares the marker key and the leader key; its answer may be lost."""
    known = with_partition(state, index, leader=leader._replace(view=None))
    if partition.marker is None or (
        partition.marker.revision != marker.revision and mistake is not Mistake.DELETE_ANY_MARKER
    ):
        yield f"{index}: finds {marker} gone", known
        return
    lost = with_partition(state, index, leader=leader, marker=None)
    yield f"{index}: deletes {marker}, the answer is lost", lost
    yield f"{index}: deletes {marker}", with_partition(lost, index, leader=leader._replace(view=None))


# --- who leads


def _is_replaced(
    state: State, index: int, partition: Partition, scope: Scope, mistake: Mistake | None
) -> Iterator[Step]:
    if partition.claims == scope.claims:
        return
    if not partition.is_fenced:
        yield f"{index}: the leader's journal has ended", with_partition(state, index, is_fenced=True)
        return
    view = partition.leader.view if mistake is Mistake.OLD_VIEW else None
    yield (
        f"{index}: another leader",
        with_partition(
            state,
            index,
            leader=Leader(partition.log, view),
            old=partition.leader,
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
            if _fits(old.log, request.batch) and opened(old.log) is None:
                yield from adds(state, state, index, request, mistake)
    if mistake is not Mistake.DELETE_WITHOUT_LEADER:
        return
    if old.view != partition.marker:
        seen = old._replace(view=partition.marker)
        yield f"{index}: the old leader reads the marker key", with_partition(state, index, old=seen)
    if old.view is not None and old.view == partition.marker and opened(old.log) is None:
        deleted = with_partition(state, index, marker=None)
        yield f"{index}: the old leader deletes {old.view}", deleted
