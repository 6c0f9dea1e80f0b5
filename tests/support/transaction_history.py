"""Collects the history of a run's transactions, and of its `read_committed` readers."""

import itertools
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.ledger import Place, Record
from tests.support.transaction_checker import (
    CommittedRun,
    Outcome,
    Seen,
    Transaction,
    TransactionEvidence,
    Write,
)


@dataclass(eq=False, kw_only=True)
class OpenTransaction:
    """A transaction as its client makes it. Written by one thread. ABORTED unless its commit was sent."""

    name: str
    producer: str
    began_at: int
    ended_at: int | None = None
    outcome: Outcome = Outcome.ABORTED
    writes: dict[bytes, Write] = field(default_factory=dict)
    reads: list[tuple[Place, Record]] = field(default_factory=list)

    def write(self, place: Place, value: bytes) -> None:
        """A record that is sent soon."""
        self.writes[value] = Write(place=place, value=value)

    def acknowledge(self, value: bytes, offset: int | None) -> None:
        """The record's offset."""
        self.writes[value] = Write(place=self.writes[value].place, value=value, offset=offset)


class CommittedReader:
    """The records of one `read_committed` reader of one partition. Written by one thread."""

    def __init__(self, name: str, place: Place, history: "TransactionHistory") -> None:
        self.name = name
        self.place = place
        self.seen: list[Seen] = []
        self._history = history

    def see(self, offset: int, value: bytes) -> None:
        """The next record."""
        self.seen.append(Seen(moment=self._history.moment(), offset=offset, value=value))


class TransactionHistory:
    """All transactions and readers of a run. Thread-safe."""

    def __init__(self) -> None:
        self._moments = itertools.count()
        self._transactions: list[OpenTransaction] = []
        self._readers: list[CommittedReader] = []
        self._lock = threading.Lock()

    def moment(self) -> int:
        """The next moment of the history."""
        return next(self._moments)

    def begin(self, producer: str) -> OpenTransaction:
        """A transaction of a producer begins, after all that the producer began before."""
        with self._lock:
            one = OpenTransaction(
                name=f"{producer}/{len(self._transactions)}", producer=producer, began_at=self.moment()
            )
            self._transactions.append(one)
            return one

    def end(self, one: OpenTransaction, *, commit: bool) -> None:
        """Its commit or abort is sent now. A commit has an unknown outcome until its answer is noted."""
        one.ended_at = self.moment()
        one.outcome = Outcome.UNKNOWN if commit else Outcome.ABORTED

    def reader(self, name: str, place: Place) -> CommittedReader:
        """Add a reader."""
        reader = CommittedReader(name, place, self)
        with self._lock:
            self._readers.append(reader)
        return reader

    def count(self, outcome: Outcome) -> int:
        """The transactions that are known to have ended so."""
        with self._lock:
            return sum(one.outcome is outcome for one in self._transactions)

    def evidence(
        self,
        final: Mapping[Place, Sequence[Record]],
        inputs: Mapping[Place, Sequence[Record]],
        positions: Mapping[Place, int],
    ) -> TransactionEvidence:
        """All of it, after everybody has stopped. See `TransactionEvidence`."""
        with self._lock:
            return TransactionEvidence(
                transactions=[
                    Transaction(
                        name=one.name,
                        producer=one.producer,
                        outcome=one.outcome,
                        began_at=one.began_at,
                        ended_at=one.ended_at,
                        writes=list(one.writes.values()),
                        reads=one.reads,
                    )
                    for one in self._transactions
                ],
                runs=[
                    CommittedRun(reader=reader.name, place=reader.place, records=reader.seen)
                    for reader in self._readers
                ],
                final=final,
                inputs=inputs,
                positions=positions,
            )
