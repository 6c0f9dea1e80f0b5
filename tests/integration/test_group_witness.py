"""The witness of the group tests sees what it is there to see: one that passes anything proves nothing."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.group_journal import (
    Assigned,
    CommitFailed,
    Committed,
    Committing,
    Ended,
    Event,
    Journal,
    JournalReader,
    Processed,
    Revoked,
    decode,
    encode,
)
from tests.support.group_witness import Evidence, Observation, WitnessError, check, periods
from tests.support.ledger import Acknowledgement

# partition 0 has a gap at 3, as a skipped offset leaves one
OFFSETS = {0: [0, 1, 2, 4, 5], 1: [0, 1]}


def assigned(
    time_s: float, generation: int, *partitions: int, owned: Sequence[int] | None = None
) -> Assigned:
    return Assigned(
        time_s=time_s,
        generation=generation,
        member_id="id",
        partitions=partitions,
        owned=partitions if owned is None else tuple(owned),
    )


def revoked(time_s: float, *partitions: int) -> Revoked:
    return Revoked(time_s=time_s, partitions=partitions, lost=False)


def value(partition: int, offset: int) -> str:
    return f"load:{partition}.{offset}"


def processed(time_s: float, partition: int, *offsets: int) -> list[Event]:
    return [
        Processed(time_s=time_s, partition=partition, offset=one, value=value(partition, one))
        for one in offsets
    ]


def committed(time_s: float, offsets: dict[int, int]) -> list[Event]:
    """Asked for at that time, acknowledged half a second later."""
    return [Committing(time_s=time_s, offsets=offsets), Committed(time_s=time_s + 0.5, offsets=offsets)]


def seen(time_s: float, first: int, second: int) -> Observation:
    return Observation(began_s=time_s, ended_s=time_s + 0.1, offsets={0: first, 1: second})


# One member has all, works, and is killed after it processed 0:4; another goes on from what was committed.
FIRST: list[Event] = [
    assigned(1, 1, 0, 1),
    *processed(2, 0, 0, 1),
    *committed(3, {0: 2}),
    *processed(4, 0, 2, 4),
]
SECOND: list[Event] = [
    revoked(1),  # nothing, as some clients say before they join
    assigned(10, 2, 0, 1),
    *processed(11, 1, 0, 1),
    *processed(11, 0, 2, 4, 5),
    *committed(12, {0: 6, 1: 2}),
    revoked(14, 0, 1),
    Ended(time_s=15),
]
SEEN = [seen(0, -1, -1), seen(3.2, -1, -1), seen(5, 2, -1), seen(12.2, 6, 2), seen(13, 6, 2)]
GOOD = Evidence(
    journals={"first": FIRST, "second": SECOND},
    log={
        partition: [(one, value(partition, one).encode()) for one in OFFSETS[partition]]
        for partition in OFFSETS
    },
    acknowledged=[
        Acknowledgement(topic="t", partition=partition, offset=one, value=value(partition, one).encode())
        for partition in OFFSETS
        for one in OFFSETS[partition]
    ],
    observations=SEEN,
)


def with_second(*events: Event | list[Event]) -> Evidence:
    """The second member did this instead."""
    flat = [one for event in events for one in (event if isinstance(event, list) else [event])]
    return dataclasses.replace(GOOD, journals={"first": FIRST, "second": flat})


def with_third(*events: Event | list[Event]) -> Evidence:
    """Somebody else did this as well."""
    flat = [one for event in events for one in (event if isinstance(event, list) else [event])]
    return dataclasses.replace(GOOD, journals={**GOOD.journals, "third": flat})


def with_seen(*observations: Observation) -> Evidence:
    return dataclasses.replace(GOOD, observations=list(observations))


def test_witness_accepts_a_correct_group() -> None:
    check(GOOD)


def test_the_witness_accepts_what_a_group_may_do() -> None:
    """A stopped member works on what it had, is refused, and gets a partition back where it was."""
    check(
        with_third(
            assigned(1.5, -1, 0),
            processed(12, 0, 0, 1, 2),
            Committing(time_s=12.1, offsets={0: 4}),
            CommitFailed(time_s=12.2, offsets={0: 4}, error="UNKNOWN_MEMBER_ID"),
            revoked(12.3, 0),
        )
    )
    check(
        with_second(
            assigned(10, 2, 0, 1),
            processed(11, 1, 0, 1),
            processed(11, 0, 2, 4),
            revoked(11.1, 0, 1),
            assigned(11.2, 3, 0, 1),
            processed(11.3, 0, 5),  # where it was, although that was not committed
            committed(12, {0: 6, 1: 2}),
        )
    )


@pytest.mark.parametrize(
    ("evidence", "complaint"),
    [
        pytest.param(
            with_second(assigned(10, 2, 0, 1), processed(11, 0, 2, 4, 5), committed(12, {0: 6, 1: 2})),
            "2 acknowledged records were processed by no member",
            id="lost",
        ),
        pytest.param(
            dataclasses.replace(
                GOOD,
                acknowledged=[Acknowledgement(topic="t", partition=0, offset=5, value=b"load:other")],
            ),
            "1 acknowledged records were processed by no member",
            id="another record where one was promised",
        ),
        pytest.param(
            with_third(assigned(1, 1, owned=(0,)), assigned(2, 1, owned=())),
            "generation 1: first and third both own partition 0",
            id="two owners",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), processed(6, 0, 2, 5)),
            r"third, partition 0, generation 9: processed \[2, 5\] where \[2, 4\] was due",
            id="a gap",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), processed(6, 0, 2, 4, 2)),
            r"processed \[2, 4, 2\] where \[2, 4, 5\] was due",
            id="out of order",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), processed(6, 0, 2, 2)),
            r"processed \[2, 2\] where \[2, 4\] was due",
            id="twice in one period",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), processed(6, 0, 2, 3)),
            r"processed \[2, 3\] where \[2, 4\] was due",
            id="an offset that does not exist",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), processed(6, 0, 0, 1)),
            "started at 0 although first's commit of 2 was acknowledged",
            id="a committed offset that was forgotten",
        ),
        pytest.param(
            with_third(assigned(20, 3, 0), processed(21, 0, 4, 5)),
            "started at 4 although second's commit of 6 was acknowledged",
            id="a newer committed offset that was forgotten",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), processed(6, 0, 4, 5)),
            "started at 4, which no member committed",
            id="records skipped at the start",
        ),
        pytest.param(
            with_third(assigned(5, 9, 1), processed(6, 0, 2)),
            "third processed 0:2, which it does not own",
            id="not its partition",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), revoked(6, 0), processed(7, 0, 2)),
            "third processed 0:2, which it does not own",
            id="not its partition any more",
        ),
        pytest.param(
            with_third(assigned(5, 0, 0), processed(6, 0, 2), committed(11, {0: 2})),
            r"third, partition 0, generation 0: its commits at \[11\] were accepted although second had",
            id="an owner that was replaced",
        ),
        pytest.param(
            with_third(assigned(5, 9, 0), committed(13, {0: 4})),
            "third's commit of 4 was accepted after one of 6",
            id="an old commit accepted",
        ),
        pytest.param(
            with_seen(*SEEN[:4], seen(13, 2, 2), seen(14, 6, 2)),
            "partition 0: committed 6, later 2",
            id="backwards",
        ),
        pytest.param(
            with_seen(*SEEN[:3], seen(5.5, -1, -1), *SEEN[3:]),
            "partition 0: committed 2, later -1",
            id="backwards to nothing",
        ),
        pytest.param(
            with_seen(seen(0, -1, -1), seen(5, -1, -1), *SEEN[3:]),
            "partition 0: a commit of 2 was acknowledged, then -1 was found",
            id="acknowledged before it could be read",
        ),
        pytest.param(
            with_seen(*SEEN[:3], seen(6, 4, -1), *SEEN[3:]),
            "partition 0: found 4, which no member committed",
            id="an offset out of nowhere",
        ),
        pytest.param(
            with_seen(seen(0, -1, -1), seen(1, 2, -1), *SEEN[3:]),
            "partition 0: found 2, which no member committed",
            id="an offset before its commit",
        ),
        pytest.param(with_seen(*SEEN[:3]), "partition 0: committed 2 of 6", id="not drained"),
        pytest.param(with_seen(), "no observation", id="nothing observed"),
    ],
)
def test_the_witness_complains(evidence: Evidence, complaint: str) -> None:
    with pytest.raises(WitnessError, match=complaint):
        check(evidence)


def returned(name: str, *meanwhile: Event) -> Evidence:
    """The first member comes back in generation 3, where it was in generation 1."""
    journal = [*FIRST, *meanwhile, assigned(20, 3, 0, 1), *processed(21, 0, 5)]
    return dataclasses.replace(GOOD, journals={name: journal, "second": SECOND})


def test_kafka_python_stays_where_it_was_and_no_other_client() -> None:
    check(returned("kafka-python-1"))
    overtaken = "started at 5 although second's commit of 6 was acknowledged"
    with pytest.raises(WitnessError, match=overtaken):
        check(returned("librdkafka-1"))
    with pytest.raises(WitnessError, match=overtaken):  # it had lost the partition, and knew it
        check(returned("kafka-python-1", revoked(9, 0, 1), assigned(10, 2)))


def test_an_assignment_that_comes_again_begins_a_period() -> None:
    found = periods(with_third(assigned(1, 3, 0), processed(2, 0, 0), assigned(3, 4, 0), processed(4, 0, 1)))
    own = [(one.generation, one.partition, one.offsets) for one in found if one.member == "third"]
    assert own == [(3, 0, [0]), (4, 0, [1])]


@pytest.mark.parametrize(
    "event", [*FIRST, *SECOND, CommitFailed(time_s=1.5, offsets={3: 4}, error="E")], ids=repr
)
def test_a_journal_keeps_events_as_they_are(event: Event) -> None:
    assert decode(encode(event)) == event


def test_a_reader_takes_whole_lines_of_a_journal_that_grows(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    reader = JournalReader(path)
    assert reader.read() == []
    journal = Journal(path)
    journal.write(FIRST[0])
    assert reader.read() == [FIRST[0]]
    with path.open("ab") as file:
        file.write(encode(FIRST[1])[:10])
        file.flush()
        assert reader.read() == []
        file.write(encode(FIRST[1])[10:])
    assert reader.read() == [FIRST[1]]
    assert reader.events == [FIRST[0], FIRST[1]]
    journal.close()
