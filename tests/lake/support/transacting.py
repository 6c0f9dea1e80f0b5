"""Topics with transactions, written straight into the stores step by step, and what a consumer finds in them.

The steps are those of coordinator and leaders: a decision puts the markers' keys, each leader writes its marker into
the log and deletes the key, at any time later.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafscale.formats.marker_record import MarkerRecord, encode_marker_record
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, Put
from kafscale.settings.broker import Settings
from tests.spark_jobs.support.sent_records import Batch, Sent, Stored, marker, sent
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(slots=True)
class Transaction:
    """One transaction. `decision`: 0 while it is open. `unmarked`: the partitions that wait for their marker."""

    producer_id: int
    records: list[Stored] = field(default_factory=list)
    decision: int = 0
    is_commit: bool = False
    unmarked: list[Place] = field(default_factory=list)

    @property
    def places(self) -> list[Place]:
        """The partitions that it has records in."""
        return sorted({(one.topic, one.partition) for one in self.records})


class TransactingTopics:
    """Some topics of one cluster with embedded stores, whose logs are led by one broker."""

    def __init__(self, folder: Path, *topics: str, partitions: int = 2) -> None:
        self.settings: Settings = embedded(folder)
        self.writers = {topic: TopicWriter(self.settings, topic, partitions=partitions) for topic in topics}
        self._ids = {topic: writer.topic_id() for topic, writer in self.writers.items()}
        self.all: list[Transaction] = []
        self.plain: list[Stored] = []
        self._numbers = itertools.count()
        for writer in self.writers.values():
            writer.lead()

    @property
    def places(self) -> list[Place]:
        return [(topic, one) for topic, writer in self.writers.items() for one in range(writer.partitions)]

    def begin(self, producer_id: int) -> Transaction:
        assert all(not one.unmarked and one.decision for one in self.all if one.producer_id == producer_id)
        one = Transaction(producer_id)
        self.all.append(one)
        return one

    def send(self, transaction: Transaction | None, place: Place, count: int = 2) -> None:
        """A batch of the transaction, or of none."""
        records: Sequence[Sent] = sent(count, first=next(self._numbers) * 100)
        batch = Batch(records=records, producer_id=-1 if transaction is None else transaction.producer_id)
        stored = self.writers[place[0]].append_batches(place[1], [batch])
        (self.plain if transaction is None else transaction.records).extend(stored)

    def decide(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Put the markers' keys, as the coordinator does with its decision."""
        transaction.is_commit, transaction.unmarked = is_commit, transaction.places

        def value_of(topic: str) -> bytes:
            return encode_marker_record(
                MarkerRecord(
                    transactional_id=f"id-{transaction.producer_id}",
                    commit=is_commit,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    transaction_version=2,
                    decided_ms=0,
                    topic_id=self._ids[topic],
                )
            )

        puts = [
            Put(keys.partition_marker(*place, transaction.producer_id), value_of(place[0]))
            for place in transaction.unmarked
        ]

        async def put(topic: StoredTopic) -> int:
            done = await topic.metadata.transact([], puts)
            return done.revision

        transaction.decision = next(iter(self.writers.values())).run(put)

    def mark(self, transaction: Transaction, place: Place) -> None:
        """Write the marker of one partition, and delete its key."""
        transaction.unmarked.remove(place)
        batch = marker(
            transaction.producer_id, is_commit=transaction.is_commit, decision=transaction.decision
        )
        self.writers[place[0]].append_batches(place[1], [batch])

        async def delete(topic: StoredTopic) -> None:
            await topic.metadata.transact(
                [], [Delete(keys.partition_marker(*place, transaction.producer_id))]
            )

        self.writers[place[0]].run(delete)

    def end(self, transaction: Transaction, *, is_commit: bool) -> None:
        """Decide, and write all markers."""
        self.decide(transaction, is_commit=is_commit)
        for place in transaction.places:
            self.mark(transaction, place)

    def last_stable_offset(self, place: Place) -> int:
        """By the model."""
        undecided = [
            record.offset
            for one in self.all
            if not one.decision or place in one.unmarked
            for record in one.records
            if (record.topic, record.partition) == place
        ]
        return min(undecided, default=self.writers[place[0]].log_end_offset(place[1]))

    def committed(self) -> list[dict[str, Any]]:
        """The rows that a `read_committed` consumer of all topics finds."""
        ends = {place: self.last_stable_offset(place) for place in self.places}
        there = [one for one in self._decided() if one.offset < ends[one.topic, one.partition]]
        return rows_of(there)

    def _decided(self) -> Iterator[Stored]:
        yield from self.plain
        for one in self.all:
            if one.is_commit:
                yield from one.records

    def written(self) -> list[dict[str, Any]]:
        """The rows that a `read_uncommitted` consumer finds."""
        return rows_of([*self.plain, *(record for one in self.all for record in one.records)])


def rows_of(records: Iterable[Stored]) -> list[dict[str, Any]]:
    """Rows by topic, partition and offset."""
    ordered = sorted(records, key=lambda one: (one.topic, one.partition, one.offset))
    return [one.row() for one in ordered]
