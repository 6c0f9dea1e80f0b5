"""The checker of share groups sees what it is there to see: one that passes anything proves nothing."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.share_checker import Delivery, ShareEvidence, Word, examine, wish
from tests.support.share_journal import ShareJournal

LIMIT, LOCK_S = 4, 5.0
VALUES = {0: "good-1:0", 1: "bad-1:1", 2: "poison-1:2", 3: "again-1:3"}


def delivered(
    member: str,
    offset: int,
    count: int,
    at_s: float,
    *,
    round_: int = 0,
    answered: bool = True,
    told: bool = True,
    error: str = "",
    value: str = "",
) -> Delivery:
    return Delivery(
        member=member,
        round=round_,
        partition=0,
        offset=offset,
        value=value or VALUES[offset],
        count=count,
        at_s=at_s,
        told_s=at_s + 0.1 if told else None,
        answered_s=at_s + 0.2 if answered else None,
        error=error,
    )


def evidence(*deliveries: Delivery, late: Sequence[Delivery] = ()) -> ShareEvidence:
    return ShareEvidence(
        deliveries=deliveries,
        log={0: [(offset, value.encode()) for offset, value in VALUES.items()]},
        limit=LIMIT,
        lock_s=LOCK_S,
        late=late,
    )


ACCEPTED = delivered("a", 0, 1, 1.0)
REST = [
    delivered("a", 1, 1, 1.0),
    *(delivered("a", 2, count, float(count), round_=count - 1) for count in range(1, LIMIT + 1)),
    delivered("a", 3, 1, 1.0),
    delivered("a", 3, 2, 2.0, round_=1),
]
GOOD = evidence(ACCEPTED, *REST)
PAUSED = dataclasses.replace(GOOD, pauses={"b": [(0.5, 20.0)]})


def test_checker_accepts_a_correct_group() -> None:
    report = examine(GOOD)
    assert report.problems == []
    assert report.ends == {"accepted": 2, "rejected": 1, "deliveries used up": 1}
    report.check()


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(
            dataclasses.replace(PAUSED, deliveries=[*GOOD.deliveries, delivered("b", 0, 1, 21.0)]),
            id="a stopped member works on what it had",
        ),
        pytest.param(
            evidence(delivered("b", 0, 1, 0.5, answered=False), *GOOD.deliveries[1:]),
            id="a word whose answer was lost",
        ),
        pytest.param(
            evidence(delivered("b", 0, 1, 0.5, told=False, answered=False), *GOOD.deliveries),
            id="a member that was killed, and nothing was stored of its delivery",
        ),
        pytest.param(
            evidence(ACCEPTED, *REST[:3], *REST[5:]),
            id="the last deliveries went to a member that was killed",
        ),
        pytest.param(
            evidence(*GOOD.deliveries, delivered("b", 0, 1, 1.25, error="INVALID_RECORD_STATE")),
            id="a member that had it before is refused",
        ),
    ],
)
def test_checker_accepts_what_a_group_may_do(given: ShareEvidence) -> None:
    assert examine(given).problems == []


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        pytest.param(
            evidence(*REST), "0:0 b'good-1:0' is not finished by any word: delivered to no", id="lost"
        ),
        pytest.param(
            evidence(delivered("a", 0, 1, 1.0, told=False, answered=False), *REST),
            "0:0 .* is not finished by any word: a 0:0 delivery 1",
            id="finished with its member",
        ),
        pytest.param(
            evidence(delivered("a", 0, 1, 1.0, error="InvalidRecordStateException"), *REST),
            "0:0 .* is not finished by any word",
            id="refused, and not delivered again",
        ),
        pytest.param(
            evidence(ACCEPTED, *REST[:6]),
            "0:3 b'again-1:3' is not finished",
            id="released, and not delivered again",
        ),
        pytest.param(
            evidence(ACCEPTED, *REST[:2], *REST[5:]), "0:2 .* is not finished", id="archived too soon"
        ),
        pytest.param(
            evidence(*GOOD.deliveries, delivered("b", 0, 2, 1.5)),
            "finished by a 0:0 delivery 1 .*; but a later delivery: b 0:0 delivery 2",
            id="delivered again",
        ),
        pytest.param(
            evidence(*GOOD.deliveries, delivered("b", 0, 1, 1.5)),
            "finished by a 0:0 delivery 1 .*; and again by b 0:0 delivery 1",
            id="finished twice",
        ),
        pytest.param(
            evidence(
                *GOOD.deliveries,
                delivered("b", 1, 1, 0.9),
                delivered("b", 0, 1, 9.0, answered=False),
            ),
            "finished by a 0:0 .*; but delivered afterwards: b",
            id="delivered again long after",
        ),
        pytest.param(
            evidence(*GOOD.deliveries, delivered("b", 3, 1, 1.5)),
            "released by a 0:3 delivery 1 .*; and afterwards not one delivery more: b 0:3 delivery 1",
            id="a count that does not grow",
        ),
        pytest.param(
            evidence(*GOOD.deliveries, delivered("a", 2, LIMIT + 1, 9.0)),
            "the limit is 4 deliveries",
            id="one delivery too many",
        ),
        pytest.param(
            evidence(*GOOD.deliveries, delivered("b", 0, 1, 0.5, value="good-2:7", answered=False)),
            "not what the log has, b'good-1:0': 'good-2:7'",
            id="another record",
        ),
        pytest.param(
            evidence(*GOOD.deliveries, late=[delivered("z", 0, 1, 90.0)]),
            "delivered after the group had finished all: z 0:0",
            id="delivered at the end",
        ),
    ],
)
def test_the_checker_complains(given: ShareEvidence, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        examine(given).check()


@pytest.mark.parametrize(
    ("value", "count", "word"),
    [
        ("good-1:0", 3, Word.ACCEPT),
        ("bad-1:0", 1, Word.REJECT),
        ("poison-1:0", 3, Word.RELEASE),
        ("again-1:0", 1, Word.RELEASE),
        ("again-1:0", 2, Word.ACCEPT),
    ],
)
def test_word_is_what_the_value_asks_for(value: str, count: int, word: Word) -> None:
    assert wish(value, count) is word


def test_journal_matches_answers_with_deliveries(tmp_path: Path) -> None:
    path = tmp_path / "member.log"
    journal = ShareJournal("m", path)
    assert journal.read() == 0
    record = {"event": "record", "partition": 0, "offset": 7, "value": "again-1:7", "at": 10**9}
    rows = [
        {"event": "started"},
        {**record, "deliveries": 1},
        {"event": "telling", "at": 2 * 10**9},
        {"event": "acknowledged", "partition": 0, "offsets": [7], "error": "lost", "at": 3 * 10**9},
        {**record, "deliveries": 2},
        {"event": "telling", "at": 5 * 10**9},
        {"event": "acknowledged", "partition": 0, "offsets": [7], "error": "", "at": 6 * 10**9},
        {**record, "offset": 8, "deliveries": 1},
    ]
    text = "a line of its client's\n" + "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(text[:-5])
    assert journal.read() == 2
    first, second = journal.deliveries
    assert (first.told_s, first.answered_s, first.error, first.is_durable) == (2, 3, "lost", False)
    assert (second.round, second.answered_s, second.is_durable) == (1, 6, True)
    path.write_text(text)
    assert journal.read() == 1
    assert journal.deliveries[-1].told_s is None
    assert (journal.has_started, journal.has_ended) == (True, False)
