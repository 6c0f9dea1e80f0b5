"""Compares the events of a group's members with the promises of a group; made to find violations.

The clocks of all processes are the machine's one monotonic clock, so times of different journals compare.
Nothing here forbids that a record is processed twice: a group promises at least once.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.group_journal import (
    NO_GENERATION,
    Assigned,
    CommitFailed,
    Committed,
    Committing,
    Event,
    Processed,
    Revoked,
)
from tests.support.ledger import Acknowledgement, Record

NOTHING_COMMITTED = -1


class WitnessError(AssertionError):
    """The group broke a promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """The answer of OffsetFetch: partition -> offset, -1 if nothing is committed."""

    began_s: float
    ended_s: float
    offsets: Mapping[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All evidence about one group on one topic.

    `journals` are by process, `log` has each partition's records at the end, in order of offsets.
    """

    journals: Mapping[str, Sequence[Event]]
    log: Mapping[int, Sequence[Record]]
    acknowledged: Sequence[Acknowledgement]
    observations: Sequence[Observation]


@dataclass(slots=True, kw_only=True)
class Period:
    """The time during which a member owned a partition, with the offsets that it processed, in its order.

    `was_there_before`: it was in the member's assignment before, too.
    """

    member: str
    partition: int
    generation: int
    began_s: float
    ended_s: float = float("inf")
    was_there_before: bool = False
    offsets: list[int] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.member}, partition {self.partition}, generation {self.generation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One attempt for one partition. `ended_s` is None unless it was acknowledged."""

    member: str
    partition: int
    offset: int
    began_s: float
    ended_s: float | None


def check(evidence: Evidence) -> None:
    """All checks. Raises `WitnessError`."""
    check_everything_is_processed(evidence)
    check_periods(evidence)
    check_owners(evidence)
    check_old_owners(evidence)
    check_commits_grow(evidence)
    check_observations(evidence)
    check_drained(evidence)


def check_everything_is_processed(evidence: Evidence) -> None:
    """Every acknowledged record was processed by a member, at its offset."""
    processed = {
        (event.partition, event.offset, event.value)
        for _, event in _events(evidence)
        if isinstance(event, Processed)
    }
    lost = [
        one
        for one in evidence.acknowledged
        if (one.partition, one.offset, one.value.decode()) not in processed
    ]
    _require(not lost, f"{len(lost)} acknowledged records were processed by no member: {lost[:5]}")


def check_periods(evidence: Evidence) -> None:
    """In each period: the log's records in order, without gaps, from the group's position."""
    commits = _commits(evidence)
    log = {partition: [offset for offset, _ in records] for partition, records in evidence.log.items()}
    stopped_at: dict[tuple[str, int], int] = {}
    for period in periods(evidence):
        if not period.offsets:
            continue
        offsets = log[period.partition]
        _check_order(period, offsets)
        own = stopped_at.get((period.member, period.partition), 0)
        _check_start(period, offsets, own, [one for one in commits if one.partition == period.partition])
        stopped_at[period.member, period.partition] = period.offsets[-1] + 1


def _check_order(period: Period, log: Sequence[int]) -> None:
    first = bisect_left(log, period.offsets[0])
    expected = log[first : first + len(period.offsets)]
    for n, offset in enumerate(period.offsets):
        _require(
            expected[n : n + 1] == [offset],
            f"{period}: processed {period.offsets[max(0, n - 3) : n + 3]} "
            f"where {list(expected[max(0, n - 3) : n + 3])} was due",
        )


def _check_start(period: Period, log: Sequence[int], own: int, commits: Sequence[Commit]) -> None:
    """It starts at a committed offset, and not before those acknowledged by then.

    Or where this member itself had come to: kafka-python keeps the position of a partition that is in two of its
    assignments, one after the other. One that was stopped, and missed a generation, starts there whatever another
    owner has committed in it, and works twice.
    """
    start = period.offsets[0]
    keeps_position = period.member.startswith("kafka-python") and period.was_there_before
    stayed = keeps_position and start in log[bisect_left(log, own) :][:1]
    for one in commits:
        acknowledged = one.ended_s is not None and one.ended_s < period.began_s
        _require(
            stayed or not acknowledged or start >= one.offset,
            f"{period}: started at {start} although {one.member}'s commit of {one.offset} was acknowledged",
        )
    places = {log[0], own, *(one.offset for one in commits)}
    possible = {log[n] for place in places if (n := bisect_left(log, place)) < len(log)}
    _require(start in possible, f"{period}: started at {start}, which no member committed")


def check_owners(evidence: Evidence) -> None:
    """In one generation a partition has one owner."""
    owners: dict[tuple[int, int], str] = {}
    for member, event in _events(evidence):
        if not isinstance(event, Assigned) or event.generation == NO_GENERATION:
            continue
        for partition in event.owned:
            owner = owners.setdefault((event.generation, partition), member)
            _require(
                owner == member,
                f"generation {event.generation}: {owner} and {member} both own partition {partition}",
            )


def check_old_owners(evidence: Evidence) -> None:
    """Once a partition has another owner, of a later generation, no commit of the one before is accepted.

    A member that was fenced works on until it hears of it, in Kafka, too; but what it says is not taken for the
    owner's word. So two may process a partition at once, and only one of them owns it.
    """
    given = sorted(
        (event.time_s, partition, event.generation, member)
        for member, event in _events(evidence)
        if isinstance(event, Assigned) and event.generation != NO_GENERATION
        for partition in event.partitions
    )
    accepted = [one for one in _commits(evidence) if one.ended_s is not None]
    for period in periods(evidence):
        if period.generation == NO_GENERATION:
            continue
        others = [
            one
            for one in given
            if one[0] > period.began_s
            and one[1] == period.partition
            and one[2] > period.generation
            and one[3] != period.member
        ]
        own = [
            one.began_s
            for one in accepted
            if one.member == period.member
            and one.partition == period.partition
            and period.began_s < one.began_s < period.ended_s
        ]
        for given_s, _, generation, other in others:
            late = [began_s for began_s in own if began_s > given_s]
            _require(
                not late,
                f"{period}: its commits at {late[:3]} were accepted although {other} had the partition "
                f"from {given_s} on, in generation {generation}",
            )


def check_commits_grow(evidence: Evidence) -> None:
    """No commit is accepted that begins after a higher one was acknowledged."""
    accepted = [(one, one.ended_s) for one in _commits(evidence) if one.ended_s is not None]
    for partition in evidence.log:
        by_begin = sorted((one for one in accepted if one[0].partition == partition), key=_began)
        by_end = sorted(by_begin, key=lambda one: one[1])
        done, highest = 0, NOTHING_COMMITTED
        for commit, _ in by_begin:
            while by_end[done][1] < commit.began_s:
                highest = max(highest, by_end[done][0].offset)
                done += 1
            _require(
                commit.offset >= highest,
                f"partition {partition}: {commit.member}'s commit of {commit.offset} was accepted "
                f"after one of {highest}",
            )


def _began(commit: tuple[Commit, float]) -> float:
    return commit[0].began_s


def check_observations(evidence: Evidence) -> None:
    """Committed offsets never go backwards, include acknowledged ones, and only committed ones."""
    commits = _commits(evidence)
    for partition in evidence.log:
        own = [one for one in commits if one.partition == partition]
        by_begin = sorted(own, key=lambda one: one.began_s)
        by_end = sorted(
            ((one.ended_s, one.offset) for one in own if one.ended_s is not None), key=lambda one: one[0]
        )
        begun, ended, last, promised = 0, 0, NOTHING_COMMITTED, NOTHING_COMMITTED
        asked_for = {NOTHING_COMMITTED}
        for observation in evidence.observations:
            seen = observation.offsets[partition]
            while begun < len(by_begin) and by_begin[begun].began_s < observation.ended_s:
                asked_for.add(by_begin[begun].offset)
                begun += 1
            while ended < len(by_end) and by_end[ended][0] < observation.began_s:
                promised = max(promised, by_end[ended][1])
                ended += 1
            _require(seen >= last, f"partition {partition}: committed {last}, later {seen}")
            _require(
                seen >= promised,
                f"partition {partition}: a commit of {promised} was acknowledged, then {seen} was found",
            )
            _require(seen in asked_for, f"partition {partition}: found {seen}, which no member committed")
            last = seen


def check_drained(evidence: Evidence) -> None:
    """The last observation is the end of each partition's log."""
    _require(bool(evidence.observations), "no observation of the committed offsets")
    last = evidence.observations[-1].offsets
    for partition, records in evidence.log.items():
        if records:
            end = records[-1][0] + 1
            _require(last[partition] == end, f"partition {partition}: committed {last[partition]} of {end}")


def periods(evidence: Evidence) -> list[Period]:
    """Every member's periods. Raises `WitnessError` if a record was processed outside of one."""
    found: list[Period] = []
    for member, events in evidence.journals.items():
        current: dict[int, Period] = {}
        before: tuple[int, ...] = ()
        for event in events:
            if isinstance(event, Assigned):
                for partition in event.partitions:
                    if partition in current:
                        current[partition].ended_s = event.time_s
                    current[partition] = Period(
                        member=member,
                        partition=partition,
                        generation=event.generation,
                        began_s=event.time_s,
                        was_there_before=partition in before,
                    )
                    found.append(current[partition])
                before = event.owned
            elif isinstance(event, Revoked):
                for partition in event.partitions:
                    if partition in current:
                        current.pop(partition).ended_s = event.time_s
            elif isinstance(event, Processed):
                _require(
                    event.partition in current,
                    f"{member} processed {event.partition}:{event.offset}, which it does not own",
                )
                current[event.partition].offsets.append(event.offset)
    return found


def _events(evidence: Evidence) -> Iterator[tuple[str, Event]]:
    for member, events in evidence.journals.items():
        for event in events:
            yield member, event


def _commits(evidence: Evidence) -> list[Commit]:
    """Every attempt of every member; the answer to an attempt is the next one in the journal."""
    found: list[Commit] = []
    for member, events in evidence.journals.items():
        asked: Committing | None = None
        for event in events:
            if isinstance(event, Committing):
                found += _attempts(member, asked, None)
                asked = event
            elif isinstance(event, Committed | CommitFailed):
                acknowledged_s = event.time_s if isinstance(event, Committed) else None
                found += _attempts(member, asked, acknowledged_s)
                asked = None
        found += _attempts(member, asked, None)
    return found


def _attempts(member: str, asked: Committing | None, acknowledged_s: float | None) -> list[Commit]:
    if asked is None:
        return []
    return [
        Commit(
            member=member,
            partition=partition,
            offset=offset,
            began_s=asked.time_s,
            ended_s=acknowledged_s,
        )
        for partition, offset in asked.offsets.items()
    ]


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise WitnessError(problem)
