"""The checker of transactional histories is content with what may happen, and finds each anomaly."""

import dataclasses
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.ledger import Place, Record
from tests.support.transaction_checker import (
    Anomaly,
    CommittedRun,
    Outcome,
    Seen,
    Transaction,
    TransactionEvidence,
    Write,
    examine_transactions,
)

A: Place = ("t", 0)
B: Place = ("t", 1)
INPUT: Place = ("in", 0)


@st.composite
def good_evidence(draw: st.DrawFn) -> TransactionEvidence:
    """Two producers whose transactions interleave as they like, a reader, and inputs processed once."""
    final: dict[Place, list[Record]] = {A: [], B: []}
    ends = {A: 0, B: 0}
    transactions, inputs = [], []
    position = 0
    moment = 0
    for number in range(draw(st.integers(2, 12))):
        outcome = draw(st.sampled_from(list(Outcome)))
        is_there = outcome is Outcome.COMMITTED or (outcome is Outcome.UNKNOWN and draw(st.booleans()))
        writes = []
        for count in range(draw(st.integers(1, 4))):
            place, value = draw(st.sampled_from([A, B])), b"%d.%d" % (number, count)
            writes.append(Write(place=place, value=value, offset=draw(st.sampled_from([None, ends[place]]))))
            if is_there:
                final[place].append((ends[place], value))
            ends[place] += 1 + draw(st.booleans())
        reads: list[tuple[Place, Record]] = []
        if draw(st.booleans()):
            record = (position, b"input %d" % position)
            reads.append((INPUT, record))
            if is_there:
                inputs.append(record)
                position += 1
        transactions.append(
            Transaction(
                name=f"t{number}",
                producer=draw(st.sampled_from(["p", "q"])),
                outcome=outcome,
                began_at=moment,
                ended_at=moment + 1,
                writes=writes,
                reads=reads,
            )
        )
        moment += 2
    runs = []
    for place, records in final.items():
        seen = [Seen(moment=moment, offset=offset, value=value or b"") for offset, value in records]
        first = draw(st.integers(0, len(seen)))
        runs.append(
            CommittedRun(reader="r", place=place, records=seen[first : draw(st.integers(first, len(seen)))])
        )
    return TransactionEvidence(
        transactions=transactions,
        runs=runs,
        final=final,
        inputs={INPUT: [*inputs, (position, b"not processed")]},
        positions={INPUT: position},
    )


@settings(max_examples=50)
@given(good_evidence())
def test_a_history_in_which_all_is_well_passes(evidence: TransactionEvidence) -> None:
    report = examine_transactions(evidence)
    report.check()
    assert report.counts["transactions"] == len(evidence.transactions)


# --- planted: each is a change to this history


def transaction(number: int, outcome: Outcome = Outcome.COMMITTED, producer: str = "p") -> Transaction:
    """It writes to both partitions, at its number, and processes the input of its number."""
    return Transaction(
        name=f"t{number}",
        producer=producer,
        outcome=outcome,
        began_at=10 * number,
        ended_at=10 * number + 5,
        writes=[Write(place=place, value=value_of(place, number), offset=number) for place in (A, B)],
        reads=[(INPUT, (number, b"input %d" % number))] if outcome is Outcome.COMMITTED else [],
    )


def value_of(place: Place, number: int) -> bytes:
    return b"%d of %d" % (number, place[1])


NUMBERS = (0, 1, 3)
LOGS: dict[Place, list[Record]] = {
    place: [(number, value_of(place, number)) for number in NUMBERS] for place in (A, B)
}
EXAMPLE = TransactionEvidence(
    transactions=[
        transaction(0),
        transaction(1, producer="q"),
        transaction(2, Outcome.ABORTED),
        dataclasses.replace(transaction(3, Outcome.UNKNOWN), reads=[(INPUT, (2, b"input 2"))]),
    ],
    runs=[
        CommittedRun(
            reader="r",
            place=A,
            records=[Seen(moment=100, offset=number, value=value_of(A, number)) for number in NUMBERS],
        )
    ],
    final=LOGS,
    inputs={INPUT: [(number, b"input %d" % number) for number in range(4)]},
    positions={INPUT: 3},
)

Change = Callable[[TransactionEvidence], TransactionEvidence]


def with_final(place: Place, change: Callable[[list[Record]], object]) -> Change:
    def changed(evidence: TransactionEvidence) -> TransactionEvidence:
        records = list(evidence.final[place])
        change(records)
        return dataclasses.replace(evidence, final={**evidence.final, place: records})

    return changed


def with_transaction(number: int, **changes: object) -> Change:
    def changed(evidence: TransactionEvidence) -> TransactionEvidence:
        transactions = list(evidence.transactions)
        transactions[number] = dataclasses.replace(transactions[number], **changes)  # type: ignore[arg-type]
        return dataclasses.replace(evidence, transactions=transactions)

    return changed


def with_run(change: Callable[[list[Seen]], object]) -> Change:
    def changed(evidence: TransactionEvidence) -> TransactionEvidence:
        run = evidence.runs[0]
        records = list(run.records)
        change(records)
        return dataclasses.replace(evidence, runs=[dataclasses.replace(run, records=records)])

    return changed


def reads_of(number: int, *places: tuple[Place, int]) -> Change:
    """The transaction reads what others wrote."""
    reads = [(place, (offset, value_of(place, offset))) for place, offset in places]
    return with_transaction(number, reads=reads)


def overwrites_in_a_circle(evidence: TransactionEvidence) -> TransactionEvidence:
    swapped = [(0, value_of(B, 1)), (1, value_of(B, 0)), (3, value_of(B, 3))]
    anywhere = [
        dataclasses.replace(one, writes=[dataclasses.replace(write, offset=None) for write in one.writes])
        for one in evidence.transactions
    ]
    return dataclasses.replace(
        evidence, transactions=anywhere, final={**evidence.final, B: swapped}, isolates_writers=True
    )


def one_after_the_other_turned_round(evidence: TransactionEvidence) -> TransactionEvidence:
    turned = [(1, value_of(A, 1)), (3, value_of(A, 3)), (4, value_of(A, 0))]
    return with_transaction(0, writes=[dataclasses.replace(evidence.transactions[0].writes[0], offset=4)])(
        dataclasses.replace(evidence, final={A: turned, B: evidence.final[B][1:]}, runs=[])
    )


def both(*changes: Change) -> Change:
    def changed(evidence: TransactionEvidence) -> TransactionEvidence:
        for change in changes:
            evidence = change(evidence)
        return evidence

    return changed


PLANTED: dict[str, tuple[Change, set[Anomaly]]] = {
    "a committed record is gone": (
        both(
            with_final(A, lambda log: log.pop(0)),
            with_final(B, lambda log: log.pop(0)),
            with_run(lambda run: run.pop(0)),
        ),
        {Anomaly.LOST_WRITE},
    ),
    "half of a committed transaction": (
        with_final(B, lambda log: log.pop(0)),
        {Anomaly.LOST_WRITE, Anomaly.G1B},
    ),
    "half of one that was not answered": (with_final(B, lambda log: log.pop(2)), {Anomaly.G1B}),
    "an aborted record in the log": (
        with_final(B, lambda log: log.insert(2, (2, value_of(B, 2)))),
        {Anomaly.G1A},
    ),
    "an aborted record at a reader": (
        with_run(lambda run: run.insert(2, Seen(moment=100, offset=2, value=value_of(A, 2)))),
        {Anomaly.G1A},
    ),
    "a record twice": (with_final(B, lambda log: log.append((9, value_of(B, 1)))), {Anomaly.DUPLICATE}),
    "a record before its commit": (
        with_run(lambda run: run.__setitem__(0, dataclasses.replace(run[0], moment=4))),
        {Anomaly.PRECOMMITTED_READ},
    ),
    "a record that a later read lacks": (
        both(
            with_final(A, lambda log: log.pop(2)),
            with_final(B, lambda log: log.pop(2)),
            with_transaction(3, reads=[]),
            lambda evidence: dataclasses.replace(evidence, positions={INPUT: 2}),
        ),
        {Anomaly.LOST_WRITE},
    ),
    "a reader passes over a record": (with_run(lambda run: run.pop(1)), {Anomaly.G1B}),
    "a reader goes back": (with_run(lambda run: run.append(run[0])), {Anomaly.BACKWARDS}),
    "a record elsewhere": (
        with_final(B, lambda log: log.__setitem__(2, (7, log[2][1]))),
        {Anomaly.MOVED},
    ),
    "a record of no transaction": (with_final(B, lambda log: log.append((9, b"whose?"))), {Anomaly.FOREIGN}),
    "two transactions read each other": (
        both(reads_of(0, (A, 1)), reads_of(1, (B, 0)), lambda one: dataclasses.replace(one, positions={})),
        {Anomaly.G1C},
    ),
    "a transaction reads a later one of its producer": (
        both(reads_of(0, (A, 3)), lambda one: dataclasses.replace(one, positions={})),
        {Anomaly.G1C},
    ),
    "a transaction reads its own record": (
        both(reads_of(1, (A, 1)), lambda one: dataclasses.replace(one, positions={})),
        {Anomaly.PRECOMMITTED_READ},
    ),
    "an input that two processed": (
        with_transaction(1, reads=[(INPUT, (number, b"input %d" % number)) for number in (0, 1)]),
        {Anomaly.PROCESSED_TWICE},
    ),
    "an input that none processed": (with_transaction(1, reads=[]), {Anomaly.UNPROCESSED}),
    "an aborted one's input": (
        with_transaction(1, outcome=Outcome.ABORTED),
        {Anomaly.G1A, Anomaly.UNPROCESSED},
    ),
    "writes in a circle": (overwrites_in_a_circle, {Anomaly.WRITE_CYCLE}),
    "a producer's transactions turned round": (one_after_the_other_turned_round, {Anomaly.G0}),
}


def test_the_example_is_well() -> None:
    examine_transactions(EXAMPLE).check()


@pytest.mark.parametrize(("change", "anomalies"), PLANTED.values(), ids=PLANTED)
def test_it_finds(change: Change, anomalies: set[Anomaly]) -> None:
    report = examine_transactions(change(EXAMPLE))
    assert set(report.anomalies) == anomalies, report.table()
    with pytest.raises(AssertionError, match="transactions 4"):
        report.check()


def test_every_anomaly_is_planted() -> None:
    assert set().union(*(anomalies for _, anomalies in PLANTED.values())) == set(Anomaly)


def test_writes_in_a_circle_are_legal_in_kafka() -> None:
    examine_transactions(dataclasses.replace(overwrites_in_a_circle(EXAMPLE), isolates_writers=False)).check()
