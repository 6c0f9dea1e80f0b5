"""The coordinator's table: Kafka's answers to every request in every state, for both protocols."""

from dataclasses import replace

import pytest

from kafscale.formats.transaction_record import (
    MAX_TRANSACTION_RECORD_BYTES,
    TransactionRecord,
    TransactionState,
    TransactionTopic,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.transactions.decisions import Decision, Ignore, NeedProducerId, Refuse, Remove, Reply, Store
from kafscale.transactions.epochs import LAST_USABLE_EPOCH, MAX_EPOCH, TV2
from kafscale.transactions.events import (
    EVENTS,
    Event,
    Expire,
    MarkersGone,
    MarkersStored,
    ProducerIdAndEpoch,
)
from kafscale.transactions.machine import TABLE, decide
from tests.transactions.values import (
    EMPTY,
    NOW,
    ONGOING,
    ORDERS,
    ORDERS_ID,
    PRODUCER,
    TIMEOUT_MS,
    TV1,
    add,
    at_epoch,
    end,
    init,
    time_passed,
    verify,
)

STATES = [state for state in TransactionState if state is not TransactionState.PREPARE_EPOCH_FENCE]
NEXT_EPOCH = ProducerIdAndEpoch(PRODUCER.producer_id, PRODUCER.epoch + 1)
LAST_EPOCH = ProducerIdAndEpoch(PRODUCER.producer_id, PRODUCER.epoch - 1)
OTHER_ID = ProducerIdAndEpoch(1, PRODUCER.epoch)
EXHAUSTED = ProducerIdAndEpoch(PRODUCER.producer_id, LAST_USABLE_EPOCH)

FENCED = ErrorCode.PRODUCER_FENCED
UNKNOWN = ErrorCode.INVALID_PRODUCER_ID_MAPPING
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE


def in_state(state: TransactionState, **changes: int) -> TransactionRecord:
    record = replace(EMPTY if state in (0, 4, 5) else ONGOING, state=state)
    return replace(record, **changes)  # type: ignore[arg-type]


COMMITTED = in_state(TransactionState.COMPLETE_COMMIT)
ABORTED = in_state(TransactionState.COMPLETE_ABORT)
COMMITTING = in_state(TransactionState.PREPARE_COMMIT)
ABORTING = in_state(TransactionState.PREPARE_ABORT)


def code(decision: Decision) -> ErrorCode:
    match decision:
        case Refuse(refusal, _):
            return refusal
        case Reply() | Store(_, Reply()):
            return ErrorCode.NONE
        case Store(_, Refuse(refusal, _)):
            return refusal
    raise AssertionError(f"{decision} answers nobody")


def stored(decision: Decision) -> TransactionRecord:
    assert isinstance(decision, Store)
    return decision.record


def answered(decision: Decision) -> ProducerIdAndEpoch:
    then = decision.then if isinstance(decision, Store) else decision
    assert isinstance(then, Reply)
    return then.producer


def test_the_table_has_a_row_for_every_state_and_event() -> None:
    assert set(TABLE) == {(state, event) for state in STATES for event in EVENTS}
    assert all(row.meaning for row in TABLE.values())


# InitProducerId


def test_a_new_transactional_id_gets_a_new_producer() -> None:
    assert decide(None, init(new_id=None)) == NeedProducerId()
    decision = decide(None, init(PRODUCER))
    assert stored(decision).state is TransactionState.EMPTY
    assert stored(decision).timeout_ms == 30_000
    assert answered(decision) == (9000, 0)


@pytest.mark.parametrize("record", [EMPTY, COMMITTED, ABORTED])
def test_a_client_that_begins_bumps_the_epoch(record: TransactionRecord) -> None:
    decision = decide(record, init())
    assert answered(decision) == NEXT_EPOCH
    after = stored(decision)
    assert (after.state, after.last_producer_epoch, after.timeout_ms) == (TransactionState.EMPTY, -1, 30_000)


@pytest.mark.parametrize("record", [EMPTY, COMMITTED, ABORTED])
def test_a_client_that_goes_on_bumps_once_however_often_it_asks(record: TransactionRecord) -> None:
    first = decide(record, init(PRODUCER))
    assert answered(first) == NEXT_EPOCH
    again = decide(stored(first), init(PRODUCER))
    assert answered(again) == NEXT_EPOCH


@pytest.mark.parametrize("expected", [LAST_EPOCH, OTHER_ID, ProducerIdAndEpoch(1, LAST_USABLE_EPOCH)])
@pytest.mark.parametrize("record", [EMPTY, COMMITTED, ONGOING])
def test_a_client_that_was_replaced_is_fenced(
    record: TransactionRecord, expected: ProducerIdAndEpoch
) -> None:
    assert code(decide(record, init(expected))) is FENCED


def test_used_up_epochs_give_a_new_producer_id() -> None:
    record = at_epoch(COMMITTED, LAST_USABLE_EPOCH)
    assert decide(record, init(new_id=None)) == NeedProducerId()
    assert answered(decide(record, init())) == (9000, 0)
    first = decide(record, init(EXHAUSTED))
    assert answered(first) == (9000, 0)
    assert answered(decide(stored(first), init(EXHAUSTED))) == (9000, 0)


@pytest.mark.parametrize("record", [COMMITTING, ABORTING])
def test_a_client_waits_for_the_transaction_before(record: TransactionRecord) -> None:
    assert code(decide(record, init())) is CONCURRENT
    assert code(decide(record, init(PRODUCER))) is CONCURRENT
    assert code(decide(record, init(OTHER_ID))) is FENCED


@pytest.mark.parametrize(("version", "last_epoch"), [(TV1, -1), (TV2, PRODUCER.epoch)])
@pytest.mark.parametrize("expected", [None, PRODUCER])
def test_a_new_client_fences_the_ongoing_transaction_in_one_step(
    version: int, last_epoch: int, expected: ProducerIdAndEpoch | None
) -> None:
    decision = decide(ONGOING, init(expected, version=version))
    assert code(decision) is CONCURRENT
    after = stored(decision)
    assert after.state is TransactionState.PREPARE_ABORT
    assert (after.producer_epoch, after.last_producer_epoch) == (PRODUCER.epoch + 1, last_epoch)
    assert (after.topics, after.groups, after.timeout_ms) == (ONGOING.topics, ONGOING.groups, TIMEOUT_MS)


def test_a_fence_uses_the_last_epoch_up() -> None:
    record = at_epoch(ONGOING, LAST_USABLE_EPOCH)
    tv1 = stored(decide(record, init(version=TV1)))
    assert (tv1.producer_epoch, tv1.next_producer_id) == (MAX_EPOCH, -1)
    complete = stored(decide(tv1, MarkersGone(now_ms=NOW)))
    assert answered(decide(complete, init())) == (9000, 0)
    tv2 = stored(decide(record, init()))
    assert (tv2.producer_epoch, tv2.next_producer_id) == (MAX_EPOCH, 9000)
    complete = stored(decide(tv2, MarkersGone(now_ms=NOW)))
    assert (complete.producer_id, complete.producer_epoch) == (9000, 0)


# Additions and verification


@pytest.mark.parametrize("record", [EMPTY, COMMITTED, ABORTED])
def test_the_first_addition_begins_a_transaction(record: TransactionRecord) -> None:
    after = stored(decide(record, add(groups=("billing",), version=TV1)))
    assert after.state is TransactionState.ONGOING
    assert (after.started_ms, after.transaction_version) == (NOW, TV1)
    assert (after.topics, after.groups) == (ORDERS, ("billing",))


def test_additions_join_what_is_there() -> None:
    payments = TransactionTopic("payments", ORDERS_ID, (3,))
    after = stored(
        decide(ONGOING, add(topics=(TransactionTopic("orders", ORDERS_ID, (1, 4)), payments), groups=("a",)))
    )
    assert after.topics == (TransactionTopic("orders", ORDERS_ID, (0, 1, 4)), payments)
    assert after.groups == ("a", "billing")
    assert after.started_ms == ONGOING.started_ms


def test_a_topic_that_was_created_again_replaces_the_old_one() -> None:
    again = TransactionTopic("orders", PAYMENTS_ID, (7,))
    assert stored(decide(ONGOING, add(topics=(again,)))).topics == (again,)
    assert code(decide(ONGOING, verify(topics=(TransactionTopic("orders", PAYMENTS_ID, (0,)),)))) is ABORTABLE


PAYMENTS_ID = ORDERS_ID.__class__(int=7)


def test_an_addition_that_changes_nothing_is_not_stored() -> None:
    assert decide(ONGOING, add(groups=("billing",))) == Reply()


def test_a_transaction_too_large_for_its_record_is_refused() -> None:
    many = TransactionTopic("many", ORDERS_ID, tuple(range(MAX_TRANSACTION_RECORD_BYTES // 4)))
    assert code(decide(ONGOING, add(topics=(many,)))) is ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("topics", "groups", "answer"),
    [
        (ORDERS, ("billing",), ErrorCode.NONE),
        ((TransactionTopic("orders", ORDERS_ID, (1,)),), (), ErrorCode.NONE),
        ((TransactionTopic("orders", ORDERS_ID, (2,)),), (), ABORTABLE),
        ((TransactionTopic("others", ORDERS_ID, (0,)),), (), ABORTABLE),
        ((), ("others",), ABORTABLE),
    ],
)
def test_verification_finds_what_is_in_the_transaction(
    topics: tuple[TransactionTopic, ...], groups: tuple[str, ...], answer: ErrorCode
) -> None:
    assert code(decide(ONGOING, verify(topics=topics, groups=groups))) is answer


@pytest.mark.parametrize("record", [EMPTY, COMMITTED, ABORTED])
def test_verification_without_a_transaction_fails(record: TransactionRecord) -> None:
    assert code(decide(record, verify())) is ABORTABLE


@pytest.mark.parametrize("ask", [add, verify])
@pytest.mark.parametrize(
    ("record", "producer", "answer"),
    [
        (None, PRODUCER, UNKNOWN),
        (ONGOING, OTHER_ID, UNKNOWN),
        (EMPTY, OTHER_ID, UNKNOWN),
        (ONGOING, LAST_EPOCH, FENCED),
        (ONGOING, NEXT_EPOCH, FENCED),
        (COMMITTING, PRODUCER, CONCURRENT),
        (ABORTING, PRODUCER, CONCURRENT),
        (ABORTING, LAST_EPOCH, FENCED),
        (replace(ABORTING, next_producer_id=9000), (9000, 0), CONCURRENT),
        (replace(ABORTING, next_producer_id=9000), (9001, 0), UNKNOWN),
    ],
)
def test_additions_and_verifications_of_others_are_refused(
    ask: type, record: TransactionRecord | None, producer: tuple[int, int], answer: ErrorCode
) -> None:
    event = ask(ProducerIdAndEpoch(*producer))
    assert code(decide(record, event)) is answer


# EndTxn


@pytest.mark.parametrize(
    ("commit", "state"), [(True, TransactionState.PREPARE_COMMIT), (False, TransactionState.PREPARE_ABORT)]
)
def test_a_decision_keeps_the_epoch_in_tv1_and_bumps_it_in_tv2(commit: bool, state: TransactionState) -> None:
    tv1 = decide(ONGOING, end(commit=commit, version=TV1))
    assert (stored(tv1).state, stored(tv1).producer_epoch) == (state, PRODUCER.epoch)
    assert answered(tv1) == (-1, -1)
    tv2 = decide(ONGOING, end(commit=commit))
    assert (stored(tv2).state, stored(tv2).producer_epoch) == (state, PRODUCER.epoch + 1)
    assert stored(tv2).last_producer_epoch == PRODUCER.epoch
    assert answered(tv2) == NEXT_EPOCH


def test_used_up_epochs_give_a_new_producer_id_at_the_end_in_tv2() -> None:
    record = at_epoch(ONGOING, LAST_USABLE_EPOCH)
    assert decide(record, end(EXHAUSTED, new_id=None)) == NeedProducerId()
    decided = decide(record, end(EXHAUSTED))
    assert answered(decided) == (9000, 0)
    after = stored(decided)
    assert (after.producer_id, after.producer_epoch) == (PRODUCER.producer_id, MAX_EPOCH)
    assert code(decide(after, end(EXHAUSTED))) is CONCURRENT
    complete = stored(decide(after, MarkersGone(now_ms=NOW)))
    assert (complete.producer_id, complete.producer_epoch) == (9000, 0)
    assert (complete.previous_producer_id, complete.next_producer_id) == (PRODUCER.producer_id, -1)
    again = decide(complete, end(EXHAUSTED))
    assert again == Reply(ProducerIdAndEpoch(9000, 0))
    assert code(decide(complete, end(EXHAUSTED, commit=False))) is INVALID


_TV2_AFTER_AN_END = [  # The table of TransactionCoordinator.scala: retry and current, abort and commit.
    (EMPTY, LAST_EPOCH, False, FENCED, False),
    (EMPTY, PRODUCER, False, ErrorCode.NONE, True),
    (EMPTY, LAST_EPOCH, True, FENCED, False),
    (EMPTY, PRODUCER, True, INVALID, False),
    (ABORTED, LAST_EPOCH, False, ErrorCode.NONE, False),
    (ABORTED, PRODUCER, False, ErrorCode.NONE, True),
    (ABORTED, LAST_EPOCH, True, INVALID, False),
    (ABORTED, PRODUCER, True, INVALID, False),
    (COMMITTED, LAST_EPOCH, False, INVALID, False),
    (COMMITTED, PRODUCER, False, ErrorCode.NONE, True),
    (COMMITTED, LAST_EPOCH, True, ErrorCode.NONE, False),
    (COMMITTED, PRODUCER, True, INVALID, False),
]


@pytest.mark.parametrize(("record", "producer", "commit", "answer", "bumps"), _TV2_AFTER_AN_END)
def test_an_end_without_a_transaction_in_tv2(
    record: TransactionRecord, producer: ProducerIdAndEpoch, commit: bool, answer: ErrorCode, bumps: bool
) -> None:
    decision = decide(record, end(producer, commit=commit))
    assert code(decision) is answer
    assert isinstance(decision, Store) is bumps
    if bumps:
        assert answered(decision) == NEXT_EPOCH
        assert stored(decision).state is TransactionState.COMPLETE_ABORT
    elif answer is ErrorCode.NONE:
        assert answered(decision) == PRODUCER


def test_an_abort_of_nothing_uses_the_last_epoch_up() -> None:
    record = at_epoch(COMMITTED, LAST_USABLE_EPOCH)
    assert decide(record, end(EXHAUSTED, commit=False, new_id=None)) == NeedProducerId()
    decision = decide(record, end(EXHAUSTED, commit=False))
    assert answered(decision) == (9000, 0)
    assert decide(stored(decision), end(EXHAUSTED, commit=False)) == Reply(ProducerIdAndEpoch(9000, 0))


@pytest.mark.parametrize(
    ("record", "producer", "commit", "answer"),
    [
        (EMPTY, PRODUCER, True, INVALID),
        (EMPTY, PRODUCER, False, INVALID),
        (COMMITTED, PRODUCER, True, ErrorCode.NONE),
        (COMMITTED, PRODUCER, False, INVALID),
        (ABORTED, PRODUCER, False, ErrorCode.NONE),
        (ABORTED, PRODUCER, True, INVALID),
        (COMMITTED, LAST_EPOCH, True, FENCED),
        (COMMITTING, PRODUCER, True, CONCURRENT),
        (COMMITTING, PRODUCER, False, INVALID),
        (ABORTING, PRODUCER, False, CONCURRENT),
        (ABORTING, PRODUCER, True, INVALID),
        (ABORTING, LAST_EPOCH, False, FENCED),
        (ONGOING, LAST_EPOCH, True, FENCED),
        (ONGOING, NEXT_EPOCH, True, FENCED),
        (ONGOING, OTHER_ID, True, UNKNOWN),
        (COMMITTED, OTHER_ID, True, UNKNOWN),
        (EMPTY, OTHER_ID, True, UNKNOWN),
        (None, PRODUCER, True, UNKNOWN),
    ],
)
def test_refused_and_repeated_ends_in_tv1(
    record: TransactionRecord | None, producer: ProducerIdAndEpoch, commit: bool, answer: ErrorCode
) -> None:
    decision = decide(record, end(producer, commit=commit, version=TV1))
    assert code(decision) is answer
    assert not isinstance(decision, Store)


@pytest.mark.parametrize(
    ("record", "producer", "commit", "answer"),
    [
        (ONGOING, LAST_EPOCH, True, FENCED),
        (ONGOING, OTHER_ID, True, UNKNOWN),
        (COMMITTING, LAST_EPOCH, True, CONCURRENT),
        (COMMITTING, LAST_EPOCH, False, INVALID),
        (COMMITTING, PRODUCER, True, FENCED),
        (ABORTING, LAST_EPOCH, False, CONCURRENT),
        (ABORTING, LAST_EPOCH, True, INVALID),
        (ABORTING, OTHER_ID, True, UNKNOWN),
        (COMMITTED, NEXT_EPOCH, True, FENCED),
        (None, PRODUCER, True, UNKNOWN),
    ],
)
def test_refused_ends_in_tv2(
    record: TransactionRecord | None, producer: ProducerIdAndEpoch, commit: bool, answer: ErrorCode
) -> None:
    decision = decide(record, end(producer, commit=commit))
    assert code(decision) is answer
    assert not isinstance(decision, Store)


# What the coordinator finds by itself


def test_a_transaction_times_out_after_its_time() -> None:
    over = ONGOING.started_ms + TIMEOUT_MS
    assert decide(ONGOING, time_passed(over)) == Ignore()
    after = stored(decide(ONGOING, time_passed(over + 1)))
    assert (after.state, after.producer_epoch) == (TransactionState.PREPARE_ABORT, PRODUCER.epoch + 1)
    assert code(decide(after, end(PRODUCER, version=TV1))) is FENCED
    assert code(decide(after, end(PRODUCER, commit=True))) is INVALID
    assert code(decide(after, end(PRODUCER, commit=False))) is CONCURRENT


def test_a_client_of_tv2_recovers_from_a_timeout_by_its_abort() -> None:
    after = stored(decide(ONGOING, time_passed()))
    complete = stored(decide(after, MarkersGone(now_ms=NOW)))
    assert decide(complete, end(PRODUCER, commit=False)) == Reply(NEXT_EPOCH)


@pytest.mark.parametrize(
    ("record", "state"),
    [(COMMITTING, TransactionState.COMPLETE_COMMIT), (ABORTING, TransactionState.COMPLETE_ABORT)],
)
def test_a_transaction_is_complete_when_its_markers_are_gone(
    record: TransactionRecord, state: TransactionState
) -> None:
    noted = stored(decide(record, MarkersStored()))
    assert noted == replace(record, markers_stored=True)
    assert decide(noted, MarkersStored()) == Ignore()
    after = stored(decide(noted, MarkersGone(now_ms=NOW)))
    assert (after.state, after.topics, after.groups, after.markers_stored) == (state, (), (), False)
    assert (after.producer_id, after.producer_epoch) == PRODUCER


@pytest.mark.parametrize("record", [EMPTY, COMMITTED, ABORTED])
def test_a_transactional_id_expires_when_it_was_unused(record: TransactionRecord) -> None:
    assert decide(record, Expire(now_ms=record.updated_ms + 6, expiration_ms=7)) == Ignore()
    assert decide(record, Expire(now_ms=record.updated_ms + 7, expiration_ms=7)) == Remove()


_SILENT: list[tuple[TransactionRecord | None, Event]] = [
    *((record, Expire(now_ms=NOW * 2, expiration_ms=7)) for record in (None, ONGOING, COMMITTING, ABORTING)),
    *((record, time_passed(NOW * 2)) for record in (None, EMPTY, COMMITTING, ABORTING, COMMITTED, ABORTED)),
    *((record, MarkersGone(now_ms=NOW)) for record in (None, EMPTY, ONGOING, COMMITTED, ABORTED)),
    *((record, MarkersStored()) for record in (None, EMPTY, ONGOING, COMMITTED, ABORTED)),
]


@pytest.mark.parametrize(("record", "event"), _SILENT)
def test_what_comes_too_late_has_no_effect(record: TransactionRecord | None, event: Event) -> None:
    assert decide(record, event) == Ignore()
