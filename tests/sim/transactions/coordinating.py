"""The steps of the transaction's coordinator, and of any broker that takes itself for it."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from uuid import UUID

from kafscale.formats.transaction_record import TransactionRecord, TransactionState, TransactionTopic
from kafscale.transactions import events as happenings
from kafscale.transactions.decisions import Decision, NeedProducerId, Reply, Store
from kafscale.transactions.events import ProducerIdAndEpoch
from kafscale.transactions.machine import decide
from kafscale.transactions.markers import PREPARING
from tests.sim.transactions.mistakes import Mistake
from tests.sim.transactions.states import (
    GROUP,
    Add,
    Client,
    End,
    Marker,
    Record,
    Scope,
    State,
    marker_at,
    replaced,
    with_marker,
)

Step = tuple[str, State]

S = TransactionState
COMPLETE = (S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
IDLE = (S.EMPTY, *COMPLETE)
NEWEST_VERSION = 2
TOPIC_ID = UUID(int=1)


# --- what a record becomes


def topics_of(places: tuple[int, ...]) -> tuple[TransactionTopic, ...]:
    """The partitions as a transaction has them."""
    partitions = tuple(place for place in places if place != GROUP)
    return (TransactionTopic("t", TOPIC_ID, partitions),) if partitions else ()


def groups_of(places: tuple[int, ...]) -> tuple[str, ...]:
    """The group, if it is among the places."""
    return ("g",) if GROUP in places else ()


@cache
def decision_on(record: Record, event: happenings.Event) -> Decision:
    """The machine's, with a new producer id where it needs one. Times are of no account."""
    decision = decide(record.value, event)
    if isinstance(decision, NeedProducerId):
        assert isinstance(event, happenings.InitProducer | happenings.End | happenings.TimePassed)
        decision = decide(record.value, replace(event, new_producer_id=record.value.producer_id + 1))
    return decision


def after_store(record: Record, value: TransactionRecord, transaction: int) -> Record:
    """The record once the value is stored."""
    value = replace(value, updated_ms=0, started_ms=0)
    return Record(record.revision + 1, value, max(record.transaction, transaction))


@cache
def added(
    record: Record, places: tuple[int, ...], transaction: int, version: int, producer: ProducerIdAndEpoch
) -> Record | None:
    """The record with the places in its transaction, which begins with them; None: it is refused."""
    event = happenings.Add(
        now_ms=0,
        producer=producer,
        transaction_version=version,
        topics=topics_of(places),
        groups=groups_of(places),
    )
    match decision_on(record, event):
        case Store(value):
            return after_store(record, value, transaction)
        case Reply():
            return record
    return None


def stored(state: State, record: Record, scope: Scope) -> State:
    """The decision, with a marker key for each place, or without where these come in pieces."""
    if record.value.state not in PREPARING:
        return state._replace(record=record, put=frozenset())
    if scope.in_pieces:
        return state._replace(record=record, put=frozenset())
    state = state._replace(record=_with_markers(record), put=frozenset())
    for place in record.places:
        state = with_marker(state, place, marker_of(record, 0))
    return state


def _with_markers(record: Record) -> Record:
    return record._replace(value=replace(record.value, markers_stored=True))


def marker_of(record: Record, reloads: int) -> Marker:
    """The marker of a decided transaction."""
    is_commit = record.value.state is S.PREPARE_COMMIT
    return Marker((record.revision, reloads), is_commit, record.producer, 0, record.transaction)


# --- steps


def steps(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    """The next steps of all coordinators."""
    record = state.record
    for request in state.flying:
        if isinstance(request, Add):
            after = added(record, scope.places, request.transaction, 1, request.producer)
            if after not in (None, record):
                yield f"{request} is stored", state._replace(record=after)
        elif isinstance(request, End):
            yield from _ends(state, request, scope, mistake)
    if record.value.state is S.ONGOING and state.timeouts < scope.timeouts:
        yield from _times_out(state, scope, mistake)
    if record.value.state in PREPARING:
        yield from _puts_markers(state, scope)
        yield from _completes(state, mistake)
    for index, client in enumerate(state.clients):
        if client.producer is None or client.must_init:
            yield from _initializes(state, index, client, scope, mistake)
    if state.coordinator < scope.coordinators:
        yield "the coordinator is replaced", state._replace(coordinator=state.coordinator + 1)
    if mistake is Mistake.DECISION_NOT_COMPARED and state.cached != record:
        yield "a coordinator reads the record", state._replace(cached=record)


def _times_out(state: State, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    match decision_on(state.record, happenings.TimePassed(now_ms=1, transaction_version=NEWEST_VERSION)):
        case Store(value):
            if mistake is Mistake.NO_BUMP_AT_TIMEOUT:
                value = replace(value, producer_epoch=state.record.value.producer_epoch)
            after = stored(state, after_store(state.record, value, -1), scope)
            yield "the transaction's time is over", after._replace(timeouts=state.timeouts + 1)


def _ends(state: State, request: End, scope: Scope, mistake: Mistake | None) -> Iterator[Step]:
    record = state.record
    is_replaced = request.version == 1 and request.coordinator != state.coordinator
    if is_replaced and mistake is not Mistake.ENDED_BY_A_REPLACED_COORDINATOR:
        return
    if mistake is Mistake.DECISION_NOT_COMPARED and state.cached is not None:
        known = state.cached
        if known.value.state is S.ONGOING and known.revision < record.revision:
            for what, end, reply in _decisions(known, request, mistake):
                put = end._replace(revision=record.revision + 1)
                yield from _answers(stored(state, put, scope), request, reply, f"{what} without a compare")
    for what, after, reply in _decisions(record, request, mistake):
        if (
            mistake is Mistake.MARKERS_BEFORE_THE_DECISION
            and after.value.state in PREPARING
            and not any(marker_at(state, place) for place in after.places)
        ):
            early = state
            for place in after.places:
                early = with_marker(early, place, marker_of(after, 0))
            yield f"the markers of {request} are put", early
        decided = state if after is record else stored(state, after, scope)
        yield from _answers(decided, request, reply, what)


def _decisions(
    record: Record, request: End, mistake: Mistake | None
) -> Iterator[tuple[str, Record, ProducerIdAndEpoch]]:
    """The record after the request, and the producer in the answer."""
    producer = record.producer if mistake is Mistake.END_WITHOUT_EPOCH else request.producer
    event = happenings.End(
        now_ms=0, producer=producer, commit=request.is_commit, transaction_version=request.version
    )
    match decision_on(record, event):
        case Store(value, Reply(reply)):
            if mistake is Mistake.NO_BUMP_AT_END:
                value = replace(value, producer_epoch=record.value.producer_epoch)
                reply = request.producer
            yield f"{request} is stored", after_store(record, value, request.transaction), reply
        case Reply(reply):
            yield f"{request} is answered again", record, reply


def _answers(state: State, request: End, reply: ProducerIdAndEpoch, what: str) -> Iterator[Step]:
    """The answer arrives, or is lost."""
    yield f"{what}, the answer is lost", state
    for index, client in enumerate(state.clients):
        if client.ending != request:
            continue
        flying = state.flying
        if request.version == 1:
            # Late at the same coordinator it may end the next transaction: the known hazard of the old protocol
            # (KAFKA-17754). What was sent to one before may still arrive there.
            flying -= {request}
        producer = reply if request.version == NEWEST_VERSION else request.producer
        sequences = client.sequences if producer == request.producer else (0,) * len(client.sequences)
        after = client._replace(
            producer=producer, made=client.made + 1, transaction=None, ending=None, sequences=sequences
        )
        answered = state.answered | {request.transaction} if request.is_commit else state.answered
        clients = replaced(state.clients, index, after)
        yield f"{what} and answered", state._replace(clients=clients, flying=flying, answered=answered)


def _puts_markers(state: State, scope: Scope) -> Iterator[Step]:
    """Where there are too many keys for one write: one by one, again after a reload, then the record."""
    record = state.record
    if record.value.markers_stored:
        return
    if state.put and state.reloads < scope.reloads:
        yield (
            "another coordinator loads the record",
            state._replace(put=frozenset(), reloads=state.reloads + 1),
        )
    for place in record.places:
        if place not in state.put:
            put = with_marker(state, place, marker_of(record, state.reloads))
            yield f"the marker key of {place} is put", put._replace(put=state.put | {place})
    if state.put == frozenset(record.places):
        match decision_on(record, happenings.MarkersStored()):
            case Store(value):
                # The revision stays, by which the model names the decision's markers.
                after = after_store(record, value, -1)._replace(revision=record.revision)
                yield "all marker keys are put", state._replace(record=after, put=frozenset())


def _completes(state: State, mistake: Mistake | None) -> Iterator[Step]:
    """By what the watch shows: one that lags only delays it, since keys are put before they are deleted."""
    record = state.record
    waits = any(marker_at(state, place) is not None for place in record.places)
    if waits and mistake is not Mistake.COMPLETE_EARLY:
        return
    if not record.value.markers_stored and mistake is not Mistake.COMPLETE_UNSTORED:
        return
    match decision_on(record, happenings.MarkersGone(now_ms=0)):
        case Store(value):
            after = after_store(record, value, -1)
            yield "the transaction is complete", state._replace(record=after, put=frozenset())


def _initializes(
    state: State, index: int, client: Client, scope: Scope, mistake: Mistake | None
) -> Iterator[Step]:
    """InitProducerId: it aborts what is open first, and the client sends it again."""
    record = state.record
    event = happenings.InitProducer(
        now_ms=0, timeout_ms=0, transaction_version=NEWEST_VERSION, expected=client.producer
    )
    match decision_on(record, event):
        case Store(value, Reply(reply)):
            if mistake is Mistake.NO_BUMP_AT_INIT:
                value, reply = replace(value, producer_epoch=record.value.producer_epoch), record.producer
            begun = Client(reply, client.made, None, None, (0,) * len(client.sequences), False)
            after = state._replace(clients=replaced(state.clients, index, begun))
            yield f"client {index} is {reply}", stored(after, after_store(record, value, -1), scope)
        case Store(value):
            if mistake is Mistake.NO_BUMP_AT_INIT:
                value = replace(value, producer_epoch=record.value.producer_epoch)
            yield f"client {index} fences", stored(state, after_store(record, value, -1), scope)
