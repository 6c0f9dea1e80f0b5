"""The history checker is content with what may happen, and finds each kind of what must not."""

import dataclasses
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.history import History
from tests.support.history_checker import Evidence, Promise, Run, Violation, examine
from tests.support.ledger import Acknowledgement, Place, Record, Sent, value_of

PLACE: Place = ("t", 0)
OTHER: Place = ("t", 1)
PROMISES = {
    "idempotent": Promise.IDEMPOTENT,
    "once": Promise.SENT_ONCE,
    "again": Promise.SENT_AGAIN,
}


@st.composite
def good_evidence(draw: st.DrawFn) -> Evidence:
    """Two logs with gaps, and all that producers and readers can truthfully say of them."""
    final: dict[Place, list[Record]] = {PLACE: [], OTHER: []}
    acknowledged: list[Acknowledgement] = []
    doubtful: list[tuple[Place, bytes]] = []
    for place, records in final.items():
        offset = 0
        senders = draw(st.lists(st.sampled_from(sorted(PROMISES)), min_size=6, max_size=20))
        for number, producer in enumerate(senders):
            offset += draw(st.sampled_from([0, 0, 0, 1, 3]))
            records.append((offset, value_of(producer, number)))
            if draw(st.booleans()):
                acknowledged.append(promised(place, records[-1]))
            else:
                doubtful.append((place, value_of(producer, number)))
            offset += 1
            if producer == "again" and draw(st.booleans()):  # it lost the first answer and sent again
                records.append((offset, value_of(producer, number)))
                offset += 1
        doubtful.append((place, value_of("once", len(senders))))  # never stored
    return Evidence(
        promises=PROMISES,
        acknowledged=acknowledged,
        unacknowledged={"no answer": doubtful},
        runs=draw_runs(draw, final),
        final=final,
    )


def draw_runs(draw: st.DrawFn, final: dict[Place, list[Record]]) -> list[Run]:
    """Readers that started somewhere and got somewhere, and a group that hands partitions on."""
    runs = []
    for place, records in final.items():
        for number in range(2):
            first = draw(st.integers(0, len(records) - 1))
            seen = records[first : draw(st.integers(first, len(records)))]
            start = draw(st.sampled_from([None, records[first][0]]))
            runs.append(Run(reader=f"reader-{number}", place=place, start=start, records=seen))
        committed = 0
        for member in ("member-a", "member-b", "member-a"):
            end = draw(st.integers(committed, len(records)))
            taken = records[committed:end]
            runs.append(Run(reader=member, place=place, start=None, records=taken, group="g"))
            committed = draw(st.integers(committed, end))  # the next one sees again what was not committed
    return runs


def promised(place: Place, record: Record) -> Acknowledgement:
    offset, value = record
    assert value is not None
    return Acknowledgement(topic=place[0], partition=place[1], offset=offset, value=value)


@given(good_evidence())
def test_a_history_in_which_all_is_well_passes(evidence: Evidence) -> None:
    report = examine(evidence)
    report.check()
    assert report.counts["records"] == sum(len(records) for records in evidence.final.values())


# --- planted: each is a change to this history, in which every record was acknowledged and read

LOG: list[Record] = [(n + (n > 4), value_of(producer, n)) for n, producer in enumerate(sorted(PROMISES) * 4)]
EXAMPLE = Evidence(
    promises=PROMISES,
    acknowledged=[promised(PLACE, record) for record in LOG],
    unacknowledged={},
    runs=[
        Run(reader="from-the-start", place=PLACE, start=0, records=LOG),
        Run(reader="from-anywhere", place=PLACE, start=None, records=LOG[3:]),
        Run(reader="member-a", place=PLACE, start=None, records=LOG[:6], group="g"),
        Run(reader="member-b", place=PLACE, start=None, records=LOG[5:], group="g"),
    ],
    final={PLACE: LOG},
)
LAST = LOG[-1][0]


def with_final(change: Callable[[list[Record]], object], evidence: Evidence = EXAMPLE) -> Evidence:
    records = list(LOG)
    change(records)
    return dataclasses.replace(evidence, final={PLACE: records})


def with_acknowledged(change: Callable[[list[Record]], object], evidence: Evidence = EXAMPLE) -> Evidence:
    records = list(LOG)
    change(records)
    return dataclasses.replace(evidence, acknowledged=[promised(PLACE, record) for record in records])


def with_run(index: int, records: Sequence[Record], start: int | None = None) -> Evidence:
    runs = list(EXAMPLE.runs)
    runs[index] = dataclasses.replace(runs[index], records=records, start=start)
    return dataclasses.replace(EXAMPLE, runs=runs)


def with_sent(*sent: Sent, evidence: Evidence) -> Evidence:
    return dataclasses.replace(evidence, sent={PLACE: sent})


UNREAD = dataclasses.replace(EXAMPLE, runs=[])
NOTHING = dataclasses.replace(UNREAD, acknowledged=[])

PLANTED = [
    pytest.param(with_final(lambda log: log.pop(3), UNREAD), {Violation.LOST}, id="lost in the middle"),
    pytest.param(with_final(lambda log: log.pop(), UNREAD), {Violation.LOST}, id="lost at the end"),
    pytest.param(with_final(lambda log: log.clear(), UNREAD), {Violation.LOST}, id="all lost"),
    pytest.param(
        with_final(lambda log: log.pop()), {Violation.LOST, Violation.VANISHED}, id="lost after it was read"
    ),
    pytest.param(
        dataclasses.replace(with_final(lambda log: log.pop()), acknowledged=[]),
        {Violation.VANISHED},
        id="read, never acknowledged, and gone",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, log.pop()[1])), UNREAD), {Violation.MOVED}, id="moved"
    ),
    pytest.param(
        with_run(1, [(LAST + 1, LOG[1][1])]),  # "idempotent", acknowledged at 1
        {Violation.MOVED, Violation.VANISHED},
        id="seen elsewhere than acknowledged",
    ),
    pytest.param(
        with_final(lambda log: log.__setitem__(3, (3, value_of("again", 99))), UNREAD),
        {Violation.INCONSISTENT, Violation.LOST},
        id="overwritten",
    ),
    pytest.param(
        with_run(1, [(3, value_of("again", 99))]),
        {Violation.INCONSISTENT, Violation.VANISHED},
        id="a reader saw another value there",
    ),
    pytest.param(
        with_acknowledged(lambda log: log.append((2, value_of("again", 99))), UNREAD),
        {Violation.INCONSISTENT, Violation.LOST},
        id="one offset acknowledged for two",
    ),
    pytest.param(
        with_acknowledged(lambda log: log.append((LAST + 1, log[0][1])), UNREAD),
        {Violation.INCONSISTENT, Violation.MOVED},
        id="one value acknowledged at two offsets",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, log[1][1])), UNREAD),
        {Violation.DUPLICATED},
        id="an idempotent producer's value twice",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, log[2][1])), UNREAD),
        {Violation.DUPLICATED},
        id="a value twice that was sent once",
    ),
    pytest.param(
        with_sent(Sent(1, b"a", 7, 0, 3), Sent(2, b"b", 7, 0, 3), evidence=EXAMPLE),
        {Violation.DUPLICATED},
        id="a sequence twice",
    ),
    pytest.param(
        with_sent(
            Sent(1, LOG[1][1], 7, 0, 3),
            Sent(LAST + 1, LOG[1][1], 8, 1, 0),
            evidence=with_final(lambda log: log.append((LAST + 1, log[1][1])), UNREAD),
        ),
        {Violation.DUPLICATED},
        id="a value twice, from two producer ids",
    ),
    pytest.param(
        dataclasses.replace(NOTHING, unacknowledged={"NOT_LEADER_OR_FOLLOWER": [(PLACE, LOG[2][1] or b"")]}),
        {Violation.REFUSED},
        id="a value that was refused and is there",
    ),
    pytest.param(
        dataclasses.replace(NOTHING, final={PLACE: [(0, LOG[4][1]), (1, LOG[1][1])]}),
        {Violation.REORDERED},
        id="an idempotent producer's values out of order",
    ),
    pytest.param(with_run(0, LOG[1:], 0), {Violation.SKIPPED}, id="the first record skipped"),
    pytest.param(with_run(0, LOG[:3] + LOG[4:], 0), {Violation.SKIPPED}, id="skipped in the middle"),
    pytest.param(with_run(1, [LOG[3], LOG[-1]]), {Violation.SKIPPED}, id="many skipped"),
    pytest.param(with_run(2, LOG[:3]), {Violation.SKIPPED}, id="a hole between a group's members"),
    pytest.param(with_run(1, [LOG[4], LOG[3]]), {Violation.BACKWARDS}, id="backwards"),
    pytest.param(with_run(1, [LOG[3], LOG[3]]), {Violation.BACKWARDS}, id="the same again"),
    pytest.param(with_run(0, LOG[3:], 5), {Violation.BACKWARDS}, id="before where it was put"),
    pytest.param(
        with_final(lambda log: log.reverse(), UNREAD),
        {Violation.BACKWARDS, Violation.REORDERED},
        id="a final read out of order",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, b"stranger:00000001:x")), UNREAD),
        {Violation.FOREIGN},
        id="a producer that does not exist",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, value_of("once", 77)[:-1])), UNREAD),
        {Violation.FOREIGN},
        id="a value cut short",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, b"8.1")), UNREAD),
        {Violation.FOREIGN},
        id="a Java producer that does not exist",
    ),
    pytest.param(
        with_final(lambda log: log.append((LAST + 1, None)), UNREAD), {Violation.FOREIGN}, id="no value"
    ),
]


def test_the_example_is_good() -> None:
    examine(EXAMPLE).check()


@pytest.mark.parametrize(("evidence", "kinds"), PLANTED)
def test_what_is_planted_is_found(evidence: Evidence, kinds: set[Violation]) -> None:
    report = examine(evidence)
    assert set(report.violations) == kinds, report.table()
    with pytest.raises(AssertionError, match=next(iter(kinds)).name.lower()):
        report.check()


def test_verifiable_producer_records_are_known_by_prefix() -> None:
    evidence = dataclasses.replace(
        NOTHING, promises={"java-7": Promise.IDEMPOTENT}, final={PLACE: [(0, b"7.1"), (1, b"7.10")]}
    )
    examine(evidence).check()
    twice = dataclasses.replace(evidence, final={PLACE: [(0, b"7.2"), (1, b"7.1"), (2, b"7.2")]})
    assert set(examine(twice).violations) == {Violation.REORDERED, Violation.DUPLICATED}


def test_every_kind_of_violation_was_planted() -> None:
    planted: set[Violation] = set()
    for parameters in PLANTED:
        kinds = parameters.values[1]
        assert isinstance(kinds, set)
        planted |= kinds
    assert planted == set(Violation)


@given(good_evidence(), st.data())
def test_any_acknowledged_record_that_is_gone_is_missed(evidence: Evidence, data: st.DataObject) -> None:
    if not evidence.acknowledged:
        return
    one = data.draw(st.sampled_from(evidence.acknowledged))
    place = (one.topic, one.partition)
    final = {**evidence.final, place: [r for r in evidence.final[place] if r[0] != one.offset]}
    kinds = examine(dataclasses.replace(evidence, final=final)).violations
    assert Violation.LOST in kinds or Violation.MOVED in kinds  # moved: where it had been sent twice


@given(good_evidence(), st.data())
def test_any_record_that_a_reader_left_out_is_missed(evidence: Evidence, data: st.DataObject) -> None:
    long = [index for index, run in enumerate(evidence.runs) if len(run.records) > 2]
    if not long:
        return
    index = data.draw(st.sampled_from(long))
    run = evidence.runs[index]
    hole = data.draw(st.integers(1, len(run.records) - 2))
    shorter = dataclasses.replace(run, records=[*run.records[:hole], *run.records[hole + 1 :]])
    runs = [*evidence.runs[:index], shorter, *evidence.runs[index + 1 :]]
    assert Violation.SKIPPED in examine(dataclasses.replace(evidence, runs=runs)).violations


def test_table_shows_run_contents_and_violations() -> None:
    evidence = dataclasses.replace(
        with_final(lambda log: log.pop(3)), unacknowledged={"timed out": [(PLACE, LOG[0][1] or b"")]}
    )
    lines = examine(evidence).table().splitlines()
    assert lines[0] == (
        "acknowledged 12  unacknowledged 1  of them stored 1  records 11  repeated 0  sent again 0  offset gaps 2  "
        "readers 4  runs 4  seen 34"
    )
    assert lines[1].startswith("lost 1  moved 0  inconsistent 0  vanished 3  ")
    assert "1 lost: acknowledged, and nowhere in the final read" in lines


def test_a_history_that_is_collected_becomes_evidence() -> None:
    history = History()
    history.promise("once", Promise.SENT_ONCE)
    history.acknowledge(*PLACE, 0, value_of("once", 0))
    history.doubt(*PLACE, value_of("once", 1), "timed out")
    reader, member = history.reader("r"), history.reader("m", "g")
    reader.begin(PLACE, 0)
    reader.see(PLACE, 0, value_of("once", 0))
    member.see(PLACE, 0, value_of("once", 0))
    member.begin(PLACE)
    assert (reader.last(PLACE), member.last(OTHER), history.reasons()) == (0, -1, {"timed out": 1})
    evidence = history.evidence({PLACE: [(0, value_of("once", 0))]})
    assert evidence == Evidence(
        promises={"once": Promise.SENT_ONCE},
        acknowledged=[promised(PLACE, (0, value_of("once", 0)))],
        unacknowledged={"timed out": [(PLACE, value_of("once", 1))]},
        runs=[
            Run(reader="r", place=PLACE, start=0, records=[(0, value_of("once", 0))]),
            Run(reader="m", place=PLACE, start=None, records=[(0, value_of("once", 0))], group="g"),
            Run(reader="m", place=PLACE, start=None, records=[], group="g"),
        ],
        final={PLACE: [(0, value_of("once", 0))]},
    )
    examine(evidence).check()


def test_value_acknowledged_without_offset_is_lost_if_absent() -> None:
    history = History()
    history.promise("p", Promise.SENT_ONCE)
    history.acknowledge_somewhere(*PLACE, value_of("p", 0))
    examine(history.evidence({PLACE: [(3, value_of("p", 0))]})).check()
    report = examine(history.evidence({PLACE: []}))
    assert set(report.violations) == {Violation.LOST}


def test_value_resent_under_new_epoch_is_counted() -> None:
    """librdkafka does so when it takes a new epoch with an answer outstanding."""
    evidence = with_sent(
        Sent(1, LOG[1][1], 7, 0, 3),
        Sent(LAST + 1, LOG[1][1], 7, 1, 0),
        evidence=with_final(lambda log: log.append((LAST + 1, log[1][1])), UNREAD),
    )
    report = examine(evidence)
    report.check()
    assert report.counts["sent again"] == 1
