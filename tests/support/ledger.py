"""Producers' acknowledgements, and the comparison with a read: nothing lost, moved, doubled or reordered."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Place = tuple[str, int]  # topic, partition
Record = tuple[int, bytes | None]  # offset, value


@dataclass(frozen=True, slots=True)
class Sent:
    """A record of the final read with what its producer gave it; -1 without idempotence."""

    offset: int
    value: bytes | None
    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A broker's promise: this value is at this offset."""

    topic: str
    partition: int
    offset: int
    value: bytes


def value_of(producer: str, number: int) -> bytes:
    """The value that a producer sends as its `number`th to a partition; it names the producer and the number."""
    return b"%s:%08d:" % (producer.encode(), number) + b"x" * (number % 50)


def origin_of(value: bytes) -> tuple[str, int]:
    """The producer and the number in a value."""
    producer, number, _ = value.split(b":")
    return producer.decode(), int(number)


class Ledger:
    """Acknowledgements of several producers, and their fatal errors. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: list[Acknowledgement] = []
        self._acknowledged_somewhere: list[tuple[Place, bytes]] = []
        self._failures: list[str] = []

    def acknowledge(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        entry = Acknowledgement(topic=topic, partition=partition, offset=offset, value=value)
        with self._lock:
            self._acknowledged.append(entry)

    def acknowledge_somewhere(self, topic: str, partition: int, value: bytes) -> None:
        """A promise without an offset.

        librdkafka says that a record was delivered, and not where, when its request failed or was not answered
        and a later one of the same producer succeeded: its sequence tells that the earlier one was stored.
        """
        with self._lock:
            self._acknowledged_somewhere.append(((topic, partition), value))

    def fail(self, what: str) -> None:
        """Record an error that no crash excuses."""
        with self._lock:
            self._failures.append(what)

    def count(self) -> int:
        with self._lock:
            return len(self._acknowledged)

    def producers(self, since: int = 0) -> set[str]:
        """The producers with an acknowledgement since there were `since` of them."""
        with self._lock:
            return {origin_of(one.value)[0] for one in self._acknowledged[since:]}

    def acknowledged(self) -> list[Acknowledgement]:
        with self._lock:
            return list(self._acknowledged)

    def all_acknowledged(self, stored: Mapping[Place, Sequence[Record]]) -> list[Acknowledgement]:
        """Those without an offset, too: at the value's offset, or at -1 if it is not stored."""
        with self._lock:
            without = list(self._acknowledged_somewhere)
        offsets = {
            place: {value: offset for offset, value in stored.get(place, ())}
            for place in {p for p, _ in without}
        }
        return self.acknowledged() + [
            Acknowledgement(
                topic=place[0], partition=place[1], offset=offsets[place].get(value, -1), value=value
            )
            for place, value in without
        ]

    def check(self, read: Mapping[Place, Sequence[Record]]) -> None:
        """Compare with every partition's records in the order read. Raises AssertionError."""
        self.check_producers()
        for place, records in read.items():
            offsets = [offset for offset, _ in records]
            assert offsets == sorted(set(offsets)), f"{place}: offsets are not strictly increasing"
            _check_order(place, records)
        self.check_promises(read)

    def check_producers(self) -> None:
        """No producer met an error that no crash excuses. Raises AssertionError."""
        with self._lock:
            assert not self._failures, self._failures[:5]

    def check_promises(self, stored: Mapping[Place, Sequence[Record]]) -> None:
        """Every acknowledged value is at its offset. Raises AssertionError."""
        by_offset = {place: dict(records) for place, records in stored.items()}
        lost = [
            one
            for one in self.all_acknowledged(stored)
            if by_offset.get((one.topic, one.partition), {}).get(one.offset) != one.value
        ]
        assert not lost, f"{len(lost)} acknowledged records are not where they were promised: {lost[:5]}"


def _check_order(place: Place, records: Sequence[Record]) -> None:
    """Every producer's numbers grow: no value twice, none before an earlier one."""
    last: dict[str, tuple[int, int]] = {}
    for offset, value in records:
        assert value is not None
        producer, number = origin_of(value)
        previous, at = last.get(producer, (-1, -1))
        assert number > previous, (
            f"{place}: {producer}'s number {number} at offset {offset} comes after its number {previous} "
            f"at offset {at}"
        )
        last[producer] = (number, offset)
