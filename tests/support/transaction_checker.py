"""Looks for the anomalies of Jepsen's Kafka workload in what transactional clients saw. Pure.

What was read is `read_committed`, the final read of everything included. Every value is written once, so that it
tells its transaction. Names are those of Adya's phenomena, and of jepsen.tests.kafka.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter

from tests.support.history_checker import EXAMPLES
from tests.support.ledger import Place, Record


class Outcome(StrEnum):
    """The end of a transaction, as its client knows it. UNKNOWN: its commit was sent, and no answer came."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"


class Anomaly(StrEnum):
    """The violations. Values are the words of the report."""

    G0 = "G0: two transactions of one producer are in another order in some partition"
    WRITE_CYCLE = "G0: transactions overwrite one another in a circle (isolated writers only)"
    G1A = "G1a: a record of an aborted transaction was read"
    G1B = "G1b: some records of a transaction were read, and others were not"
    G1C = "G1c: transactions read one another's records in a circle"
    LOST_WRITE = "lost write: its transaction was committed, and the final read does not have it"
    DUPLICATE = "duplicate: committed twice"
    PRECOMMITTED_READ = "precommitted read: read before its transaction's commit was sent"
    MOVED = "moved: acknowledged at one offset, read at another"
    FOREIGN = "foreign: no transaction wrote it"
    BACKWARDS = "backwards: a reader saw an offset again, or an earlier one"
    UNPROCESSED = "unprocessed: the group's offset is past an input that no committed transaction processed"
    PROCESSED_TWICE = "processed twice: two committed transactions read one input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A record of a transaction. `offset`: as acknowledged, None without an answer."""

    place: Place
    value: bytes
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A record that a reader got. `moment`: of the whole history's order."""

    moment: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transaction of a producer. `ended_at`: the moment before its commit or abort was sent, None if never.

    `reads`: the records that it processed, whose offsets it commits.
    """

    name: str
    producer: str
    outcome: Outcome
    began_at: int
    ended_at: int | None
    writes: Sequence[Write] = ()
    reads: Sequence[tuple[Place, Record]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedRun:
    """One `read_committed` reader's records of a partition, in order."""

    reader: str
    place: Place
    records: Sequence[Seen]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEvidence:
    """One run of the cluster. `final`: the `read_committed` read of all that transactions wrote, in the end.

    `inputs` and `positions`: of the partitions that transactions read, all their records, and the group's committed
    offsets. `isolates_writers`: nothing but one another's transactions kept these writers apart, so that they may
    not overwrite one another in a circle; Kafka promises nothing of the kind.
    """

    transactions: Sequence[Transaction]
    runs: Sequence[CommittedRun]
    final: Mapping[Place, Sequence[Record]]
    inputs: Mapping[Place, Sequence[Record]] = field(default_factory=dict)
    positions: Mapping[Place, int] = field(default_factory=dict)
    isolates_writers: bool = False


@dataclass(slots=True)
class TransactionReport:
    """The counts of the run, and its anomalies."""

    counts: dict[str, int]
    anomalies: dict[Anomaly, list[str]] = field(default_factory=dict)

    def table(self) -> str:
        """A few lines for people."""
        lines = ["  ".join(f"{name} {number:,}" for name, number in self.counts.items())]
        for kind, found in self.anomalies.items():
            lines.append(f"{len(found)} {kind}")
            lines += [f"    {one}" for one in found[:EXAMPLES]]
        return "\n".join(lines)

    def check(self) -> None:
        """Raises AssertionError with the table if there is an anomaly."""
        assert not self.anomalies, self.table()


def examine_transactions(evidence: TransactionEvidence) -> TransactionReport:
    """All anomalies in the evidence."""
    history = _History(evidence)
    report = TransactionReport(counts=history.counts())
    for kind, complaint in history.complaints():
        report.anomalies.setdefault(kind, []).append(complaint)
    return report


class _History:
    def __init__(self, evidence: TransactionEvidence) -> None:
        self._evidence = evidence
        self._writer = {write.value: one for one in evidence.transactions for write in one.writes}
        self._place = {write.value: write.place for one in evidence.transactions for write in one.writes}
        self._offsets: dict[bytes, list[int]] = {}
        for records in evidence.final.values():
            for offset, value in records:
                self._offsets.setdefault(value or b"", []).append(offset)
        # An answer that was lost: what is read says how the transaction ended.
        self._committed = {
            one.name
            for one in evidence.transactions
            if one.outcome is Outcome.COMMITTED
            or (one.outcome is Outcome.UNKNOWN and any(write.value in self._offsets for write in one.writes))
        }

    def counts(self) -> dict[str, int]:
        transactions = self._evidence.transactions
        return {
            "transactions": len(transactions),
            **{outcome.value: sum(one.outcome is outcome for one in transactions) for outcome in Outcome},
            "of them committed": sum(
                one.outcome is Outcome.UNKNOWN and one.name in self._committed for one in transactions
            ),
            "records": sum(map(len, self._evidence.final.values())),
            "seen": sum(len(run.records) for run in self._evidence.runs),
            "processed": sum(len(one.reads) for one in transactions),
        }

    def complaints(self) -> Iterator[tuple[Anomaly, str]]:
        for one in self._evidence.transactions:
            yield from self._of_transaction(one)
        yield from self._of_final()
        for run in self._evidence.runs:
            yield from self._of_run(run)
        yield from self._of_order()
        yield from self._of_cycles()
        yield from self._of_inputs()

    # --- all or nothing

    def _of_transaction(self, one: Transaction) -> Iterator[tuple[Anomaly, str]]:
        if one.outcome is Outcome.ABORTED:
            return  # What is read of it is complained of where it is read.
        lost = [write for write in one.writes if write.value not in self._offsets]
        if one.outcome is Outcome.COMMITTED:
            for write in lost:
                at = f"{write.place[0]}-{write.place[1]} offset {write.offset}"
                yield Anomaly.LOST_WRITE, f"{write.value!r} of {one.name}, acknowledged at {at}"
        if lost and len(lost) < len(one.writes):
            yield (
                Anomaly.G1B,
                f"{one.name}: {len(lost)} of {len(one.writes)} are not there, as {lost[0].value!r}",
            )
        for write in one.writes:
            found = self._offsets.get(write.value)
            if found and write.offset is not None and write.offset not in found:
                yield (
                    Anomaly.MOVED,
                    f"{write.value!r} of {one.name} acknowledged at {write.offset}, is at {found[0]}",
                )

    def _of_final(self) -> Iterator[tuple[Anomaly, str]]:
        for place, records in self._evidence.final.items():
            for offset, value in records:
                yield from self._of_read("final read", place, offset, value or b"")
        for value, offsets in self._offsets.items():
            if len(offsets) > 1:
                yield Anomaly.DUPLICATE, f"{value!r} at {offsets}"

    def _of_read(self, who: str, place: Place, offset: int, value: bytes) -> Iterator[tuple[Anomaly, str]]:
        writer = self._writer.get(value)
        at = f"{place[0]}-{place[1]} offset {offset}"
        if writer is None or self._place[value] != place:
            yield Anomaly.FOREIGN, f"{value!r} at {at}, by {who}"
        elif writer.outcome is Outcome.ABORTED:
            yield Anomaly.G1A, f"{value!r} of {writer.name} at {at}, by {who}"

    def _of_run(self, run: CommittedRun) -> Iterator[tuple[Anomaly, str]]:
        """The reader gets what the final read has, and nothing before its commit; it passes over nothing."""
        final = self._evidence.final.get(run.place, ())
        previous = -1
        for seen in run.records:
            yield from self._of_read(run.reader, run.place, seen.offset, seen.value)
            writer = self._writer.get(seen.value)
            if writer is not None and (writer.ended_at is None or seen.moment < writer.ended_at):
                yield Anomaly.PRECOMMITTED_READ, f"{seen.value!r} of {writer.name}, by {run.reader}"
            if (
                seen.value not in self._offsets
                and writer is not None
                and writer.outcome is not Outcome.ABORTED
            ):
                yield Anomaly.LOST_WRITE, f"{seen.value!r} of {writer.name}, seen by {run.reader}"
            if seen.offset <= previous:
                yield Anomaly.BACKWARDS, f"{run.reader} saw {seen.offset} after {previous}"
            previous = max(previous, seen.offset)
        if not run.records:
            return
        first, last = run.records[0].offset, previous
        offsets = {seen.offset for seen in run.records}
        for offset, value in final:
            if first < offset < last and offset not in offsets:
                yield Anomaly.G1B, f"{run.reader} passed over {value!r} at {run.place} offset {offset}"

    # --- order

    def _of_order(self) -> Iterator[tuple[Anomaly, str]]:
        """A producer's transactions follow one another in every partition."""
        for place, records in self._evidence.final.items():
            latest: dict[str, Transaction] = {}
            for offset, value in records:
                writer = self._writer.get(value or b"")
                if writer is None:
                    continue
                before = latest.get(writer.producer)
                if before is not None and before.began_at > writer.began_at:
                    yield Anomaly.G0, f"{place} offset {offset}: {writer.name} comes after {before.name}"
                else:
                    latest[writer.producer] = writer

    def _of_cycles(self) -> Iterator[tuple[Anomaly, str]]:
        """`graph`: each transaction, and those that come before it."""
        reads: dict[str, set[str]] = {}
        for one in self._evidence.transactions:
            if one.name not in self._committed:
                continue
            for place, (offset, value) in one.reads:
                writer = self._writer.get(value or b"")
                if writer is None:
                    continue  # An input of another kind of producer.
                yield from self._of_read(one.name, place, offset, value or b"")
                if writer is one:
                    yield Anomaly.PRECOMMITTED_READ, f"{one.name} read its own {value!r}"
                else:
                    reads.setdefault(one.name, set()).add(writer.name)
        graph = {name: set(before) for name, before in reads.items()}
        self._add_sessions(graph)
        if (cycle := _cycle(graph)) is not None:
            yield Anomaly.G1C, " -> ".join(cycle)
        if self._evidence.isolates_writers and (cycle := _cycle(self._overwrites())) is not None:
            yield Anomaly.WRITE_CYCLE, " -> ".join(cycle)

    def _add_sessions(self, graph: dict[str, set[str]]) -> None:
        """A producer's transactions come one after the other."""
        latest: dict[str, str] = {}
        for one in sorted(self._evidence.transactions, key=lambda one: one.began_at):
            if one.name in self._committed:
                if one.producer in latest:
                    graph.setdefault(one.name, set()).add(latest[one.producer])
                latest[one.producer] = one.name

    def _overwrites(self) -> dict[str, set[str]]:
        graph: dict[str, set[str]] = {}
        for records in self._evidence.final.values():
            before: Transaction | None = None
            for _, value in records:
                writer = self._writer.get(value or b"")
                if writer is not None:
                    if before is not None and before is not writer:
                        graph.setdefault(writer.name, set()).add(before.name)
                    before = writer
        return graph

    # --- exactly once

    def _of_inputs(self) -> Iterator[tuple[Anomaly, str]]:
        """Each input below the group's offset was processed by one committed transaction."""
        processed: dict[tuple[Place, int], str] = {}
        for one in self._evidence.transactions:
            if one.name not in self._committed:
                continue
            for place, (offset, _) in one.reads:
                first = processed.setdefault((place, offset), one.name)
                if first != one.name:
                    yield Anomaly.PROCESSED_TWICE, f"{place} offset {offset}, by {first} and {one.name}"
        for place, position in self._evidence.positions.items():
            for offset, value in self._evidence.inputs.get(place, ()):
                if offset < position and (place, offset) not in processed:
                    yield (
                        Anomaly.UNPROCESSED,
                        f"{value!r} at {place} offset {offset}, the group is at {position}",
                    )


def _cycle(graph: Mapping[str, set[str]]) -> list[str] | None:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as found:
        return [str(name) for name in found.args[1]]
    return None
