"""Compares producers' acknowledgements and consumers' records with a final read of everything. Pure."""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum

from tests.support.ledger import Acknowledgement, Place, Record, Sent, origin_of, value_of

EXAMPLES = 5  # of each kind of violation, in the report


# Errors which say that a record is not stored and never will be; clients send it again without a check.
# The names that kafka-python and this project have for it.
REFUSALS = ("NotLeaderForPartitionError", "NOT_LEADER_OR_FOLLOWER")

JAVA_VALUE = re.compile(rb"(\d+)\.(\d+)")  # of Kafka's VerifiableProducer: prefix and number


def java_producer(prefix: int) -> str:
    """The producer's name for the VerifiableProducer with that prefix."""
    return f"java-{prefix}"


class Promise(StrEnum):
    """The guarantees of a producer's way of sending, which limit the possible contents of the log."""

    IDEMPOTENT = "every value at most once, in the order of sending"
    SENT_ONCE = "every value at most once"
    SENT_AGAIN = "a value more than once where its answer was lost"


class Violation(StrEnum):
    """The violations. Values are the words of the report."""

    LOST = "lost: acknowledged, and nowhere in the final read"
    MOVED = "moved: acknowledged at one offset, read at another"
    INCONSISTENT = "inconsistent: two values at one offset, or one value acknowledged at two"
    VANISHED = "vanished: a consumer saw it, the final read does not have it"
    DUPLICATED = "duplicated: stored twice, though its producer sends once"
    REFUSED = "refused: sent once, answered NOT_LEADER_OR_FOLLOWER, and stored"
    REORDERED = "reordered: after a later record of the same idempotent producer"
    SKIPPED = "skipped: a consumer went past a record without seeing it"
    BACKWARDS = "backwards: a consumer saw an offset again, or an earlier one"
    FOREIGN = "foreign: a value that no producer sends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One reader's records of one partition, in order, without a change of position meanwhile.

    `start`: the offset it was put at, None where unknown. Members of a group share their work: between them
    they must have seen everything from offset 0 on.
    """

    reader: str
    place: Place
    start: int | None
    records: Sequence[Record]
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One run of the cluster. `unacknowledged`: reason -> values that producers gave up or left unanswered."""

    promises: Mapping[str, Promise]  # producer -> its guarantees
    acknowledged: Sequence[Acknowledgement]
    unacknowledged: Mapping[str, Sequence[tuple[Place, bytes]]]
    runs: Sequence[Run]
    final: Mapping[Place, Sequence[Record]]
    sent: Mapping[Place, Sequence[Sent]] = field(default_factory=dict)  # of the final read, as far as known


@dataclass(slots=True)
class Report:
    """Counts of the run's contents, and its violations."""

    counts: dict[str, int]
    violations: dict[Violation, list[str]] = field(default_factory=dict)

    def table(self) -> str:
        """A few lines for people."""
        lines = ["  ".join(f"{name} {number:,}" for name, number in self.counts.items())]
        lines.append(
            "  ".join(f"{kind.name.lower()} {len(self.violations.get(kind, ()))}" for kind in Violation)
        )
        for kind, found in self.violations.items():
            lines.append(f"{len(found)} {kind}")
            lines += [f"    {one}" for one in found[:EXAMPLES]]
        return "\n".join(lines)

    def check(self) -> None:
        """Raises AssertionError with the table if there is a violation."""
        assert not self.violations, self.table()


def examine(evidence: Evidence) -> Report:
    """All violations in the evidence."""
    report = Report(counts=_counts(evidence))
    for kind, complaint in _complaints(evidence):
        report.violations.setdefault(kind, []).append(complaint)
    return report


def _complaints(evidence: Evidence) -> Iterator[tuple[Violation, str]]:
    logs = {place: dict(records) for place, records in evidence.final.items()}
    yield from _inconsistent(evidence)
    resent = _sent_again(evidence)
    yield from _of_acknowledgements(evidence, logs, resent)
    for place, records in evidence.final.items():
        yield from _of_the_log(evidence, place, records, resent)
    yield from _of_refusals(evidence)
    yield from _of_sequences(evidence)
    known = _known_offsets(evidence)
    ranks = {place: {offset: rank for rank, offset in enumerate(offsets)} for place, offsets in known.items()}
    for run in evidence.runs:
        yield from _of_a_run(run, known[run.place], ranks[run.place], logs.get(run.place, {}))
    yield from _of_groups(evidence, known)


def _inconsistent(evidence: Evidence) -> Iterator[tuple[Violation, str]]:
    """All evidence about an offset has the same value."""
    first: dict[tuple[Place, int], tuple[bytes | None, str]] = {}
    told: set[tuple[Place, int, bytes | None]] = set()
    for place, offset, value, who in _all_claims(evidence):
        known, first_who = first.setdefault((place, offset), (value, who))
        if known != value and (place, offset, value) not in told:
            told.add((place, offset, value))
            yield (
                Violation.INCONSISTENT,
                f"{_at(place, offset)}: {known!r} ({first_who}), {value!r} ({who})",
            )
    places: dict[tuple[Place, bytes], int] = {}
    for one in evidence.acknowledged:
        place = (one.topic, one.partition)
        offset = places.setdefault((place, one.value), one.offset)
        if offset != one.offset:
            yield (
                Violation.INCONSISTENT,
                f"{one.value!r} acknowledged at {_at(place, offset)} and {one.offset}",
            )


def _all_claims(evidence: Evidence) -> Iterator[tuple[Place, int, bytes | None, str]]:
    for place, records in evidence.final.items():
        for offset, value in records:
            yield place, offset, value, "final read"
    for one in evidence.acknowledged:
        yield (one.topic, one.partition), one.offset, one.value, "acknowledged"
    for run in evidence.runs:
        for offset, value in run.records:
            yield run.place, offset, value, run.reader


def _of_acknowledgements(
    evidence: Evidence,
    logs: Mapping[Place, Mapping[int, bytes | None]],
    resent: Set[tuple[Place, bytes | None]],
) -> Iterator[tuple[Violation, str]]:
    """Every acknowledged value is in the final read, at its offset; no reader saw it elsewhere."""
    found: dict[tuple[Place, bytes | None], int] = {}
    for place, log in logs.items():
        for offset, value in log.items():
            found.setdefault((place, value), offset)
    acknowledged: dict[tuple[Place, bytes | None], int] = {}
    for one in evidence.acknowledged:
        place = (one.topic, one.partition)
        acknowledged[place, one.value] = one.offset
        if logs.get(place, {}).get(one.offset) == one.value:
            continue
        elsewhere = found.get((place, one.value))
        if elsewhere is None:
            yield Violation.LOST, f"{one.value!r} acknowledged at {_at(place, one.offset)}"
        else:
            yield (
                Violation.MOVED,
                f"{one.value!r} acknowledged at {_at(place, one.offset)}, is at {elsewhere}",
            )
    for run in evidence.runs:
        for offset, value in run.records:
            promised = acknowledged.get((run.place, value), offset)
            if promised != offset and not _may_repeat(evidence, value) and (run.place, value) not in resent:
                at = _at(run.place, promised)
                yield Violation.MOVED, f"{value!r} acknowledged at {at}, seen by {run.reader} at {offset}"


def _of_the_log(
    evidence: Evidence, place: Place, records: Sequence[Record], resent: Set[tuple[Place, bytes | None]]
) -> Iterator[tuple[Violation, str]]:
    """A partition's log has only what its producers can have sent, as often and in the order they sent it."""
    seen: dict[bytes | None, int] = {}
    highest: dict[str, tuple[int, int]] = {}  # producer -> its highest number, and its place
    previous = -1
    for offset, value in records:
        if offset <= previous:
            yield Violation.BACKWARDS, f"final read of {_at(place, offset)} after {previous}"
        previous = offset
        producer, number = _sender(evidence, value)
        if producer is None:
            yield Violation.FOREIGN, f"{value!r} at {_at(place, offset)}"
            continue
        promise = evidence.promises[producer]
        if value in seen:
            if promise != Promise.SENT_AGAIN and (place, value) not in resent:
                yield Violation.DUPLICATED, f"{value!r} at {_at(place, seen[value])} and {offset}"
            continue
        seen[value] = offset
        last, at = highest.get(producer, (-1, -1))
        if number > last:
            highest[producer] = (number, offset)
        elif promise == Promise.IDEMPOTENT:
            yield Violation.REORDERED, f"{value!r} at {_at(place, offset)} after number {last} at {at}"


def _of_refusals(evidence: Evidence) -> Iterator[tuple[Violation, str]]:
    """A record that a leader refused for good is not in the log, unless its producer sent it again."""
    stored = {
        (place, value): offset for place, records in evidence.final.items() for offset, value in records
    }
    for place, value in itertools.chain.from_iterable(
        evidence.unacknowledged.get(reason, ()) for reason in REFUSALS
    ):
        producer, _ = _sender(evidence, value)
        offset = stored.get((place, value))
        if offset is not None and producer and evidence.promises[producer] == Promise.SENT_ONCE:
            yield Violation.REFUSED, f"{value!r} at {_at(place, offset)}"


def _of_sequences(evidence: Evidence) -> Iterator[tuple[Violation, str]]:
    """A partition has each sequence number of a producer's epoch once, with any value."""
    for place, sent in evidence.sent.items():
        first: dict[tuple[int, int, int], int] = {}
        for one in sent:
            if one.producer_id >= 0:
                at = first.setdefault((one.producer_id, one.producer_epoch, one.sequence), one.offset)
                if at != one.offset:
                    yield (
                        Violation.DUPLICATED,
                        f"sequence {one.sequence} of producer {one.producer_id}, epoch {one.producer_epoch}, "
                        f"at {_at(place, at)} and {one.offset}",
                    )


def _sent_again(evidence: Evidence) -> set[tuple[Place, bytes | None]]:
    """Records that an idempotent producer stored under one epoch of its own and again under a later one.

    librdkafka does that when it takes a new epoch while it has batches whose answers were lost, or said that
    nothing is known (rd_kafka_idemp_drain_epoch_bump): no broker can tell such a batch from a new one.
    """
    epochs: dict[tuple[Place, bytes | None, int], set[int]] = {}
    for place, sent in evidence.sent.items():
        for one in sent:
            if one.producer_id >= 0:
                epochs.setdefault((place, one.value, one.producer_id), set()).add(one.producer_epoch)
    return {(place, value) for (place, value, _), found in epochs.items() if len(found) > 1}


def _of_a_run(
    run: Run, known: Sequence[int], ranks: Mapping[int, int], log: Mapping[int, bytes | None]
) -> Iterator[tuple[Violation, str]]:
    """A reader goes forward, over every record that there is. `ranks`: of each offset among the known."""
    due = None if run.start is None else bisect.bisect_left(known, run.start)
    previous = None if run.start is None else run.start - 1
    for offset, value in run.records:
        rank = ranks[offset]
        if previous is not None and offset <= previous:
            yield Violation.BACKWARDS, f"{run.reader} saw {_at(run.place, offset)} after {previous}"
        elif due is not None and rank > due:
            yield (
                Violation.SKIPPED,
                f"{run.reader} saw {_at(run.place, offset)} after {previous}: {rank - due} missed, "
                f"{known[due]} the first",
            )
        if log.get(offset) != value:
            yield Violation.VANISHED, f"{value!r}, seen by {run.reader} at {_at(run.place, offset)}"
        previous, due = offset, rank + 1


def _of_groups(evidence: Evidence, known: Mapping[Place, Sequence[int]]) -> Iterator[tuple[Violation, str]]:
    """A group's members skip nothing between them."""
    seen: dict[tuple[str, Place], set[int]] = {}
    for run in evidence.runs:
        if run.group is not None:
            seen.setdefault((run.group, run.place), set()).update(offset for offset, _ in run.records)
    for (group, place), offsets in seen.items():
        below = known[place][: bisect.bisect_left(known[place], max(offsets, default=-1))]
        missed = [offset for offset in below if offset not in offsets]
        if missed:
            yield (
                Violation.SKIPPED,
                f"no member of group {group} saw {len(missed)} records of {_at(place, missed[0])} and on, "
                f"though {max(offsets)} was seen",
            )


def _known_offsets(evidence: Evidence) -> dict[Place, list[int]]:
    """Every offset that is known to have a record, in order."""
    known: dict[Place, set[int]] = {run.place: set() for run in evidence.runs}
    for place, offset, _, _ in _all_claims(evidence):
        known.setdefault(place, set()).add(offset)
    return {place: sorted(offsets) for place, offsets in known.items()}


def _sender(evidence: Evidence, value: bytes | None) -> tuple[str | None, int]:
    """The producer of the value and its number; None if no producer can have sent it."""
    java = JAVA_VALUE.fullmatch(value or b"")
    if java:
        producer, number, intact = java_producer(int(java[1])), int(java[2]), True
    else:
        try:
            producer, number = origin_of(value or b"")
        except ValueError:
            return None, -1
        intact = value_of(producer, number) == value
    return (producer, number) if intact and producer in evidence.promises else (None, -1)


def _may_repeat(evidence: Evidence, value: bytes | None) -> bool:
    producer, _ = _sender(evidence, value)
    return producer is not None and evidence.promises[producer] == Promise.SENT_AGAIN


def _at(place: Place, offset: int) -> str:
    return f"{place[0]}-{place[1]} offset {offset}"


def _counts(evidence: Evidence) -> dict[str, int]:
    stored = {(place, value) for place, records in evidence.final.items() for _, value in records}
    doubtful = list(itertools.chain.from_iterable(evidence.unacknowledged.values()))
    values = Counter(one for one in _stored_values(evidence))
    return {
        "acknowledged": len(evidence.acknowledged),
        "unacknowledged": len(doubtful),
        "of them stored": sum(one in stored for one in doubtful),
        "records": sum(values.values()),
        "repeated": sum(count - 1 for count in values.values()),
        "sent again": len(_sent_again(evidence)),
        "offset gaps": sum(_gaps(records) for records in evidence.final.values()),
        "readers": len({run.reader for run in evidence.runs}),
        "runs": len(evidence.runs),
        "seen": sum(len(run.records) for run in evidence.runs),
    }


def _stored_values(evidence: Evidence) -> Iterator[tuple[Place, bytes | None]]:
    for place, records in evidence.final.items():
        for _, value in records:
            yield place, value


def _gaps(records: Sequence[Record]) -> int:
    offsets = [-1, *(offset for offset, _ in records)]
    return sum(after > before + 1 for before, after in itertools.pairwise(offsets))
