"""What producers were told, and the comparison with what is read: nothing lost, moved, doubled or reordered."""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Place = tuple[str, int]  # topic, partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A broker's promise: this value is at this offset."""

    topic: str
    partition: int
    offset: int
    value: bytes


def value_of(producer: str, number: int) -> bytes:
    """The value that a producer sends as its `number`th to a partition; says who sent it and when."""
    return b"%s:%08d:" % (producer.encode(), number) + b"x" * (number % 50)


def origin_of(value: bytes) -> tuple[str, int]:
    """The producer and the number in a value."""
    producer, number, _ = value.split(b":")
    return producer.decode(), int(number)


class Ledger:
    """Acknowledgements of several producers, and what went wrong with them for good. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acknowledged: list[Acknowledgement] = []
        self._failures: list[str] = []

    def acknowledge(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        entry = Acknowledgement(topic=topic, partition=partition, offset=offset, value=value)
        with self._lock:
            self._acknowledged.append(entry)

    def fail(self, what: str) -> None:
        """Something that no crash excuses."""
        with self._lock:
            self._failures.append(what)

    def count(self) -> int:
        with self._lock:
            return len(self._acknowledged)

    def acknowledged(self) -> list[Acknowledgement]:
        with self._lock:
            return list(self._acknowledged)

    def check(self, read: Mapping[Place, Sequence[tuple[int, bytes | None]]]) -> None:
        """Compare with (offset, value) of every partition, in the order read. Raises AssertionError."""
        assert not self._failures, self._failures[:5]
        for place, records in read.items():
            offsets = [offset for offset, _ in records]
            assert offsets == sorted(set(offsets)), f"{place}: offsets are not strictly increasing"
            _check_order(place, [value for _, value in records if value is not None])
        stored = {place: dict(records) for place, records in read.items()}
        lost = [
            one
            for one in self.acknowledged()
            if stored.get((one.topic, one.partition), {}).get(one.offset) != one.value
        ]
        assert not lost, f"{len(lost)} acknowledged records are not where they were promised: {lost[:5]}"


def _check_order(place: Place, values: list[bytes]) -> None:
    """Every producer's numbers grow: no value twice, none before an earlier one."""
    last: dict[str, int] = {}
    for value in values:
        producer, number = origin_of(value)
        assert number > last.get(producer, -1), (
            f"{place}: {producer}'s number {number} comes after its number {last[producer]}"
        )
        last[producer] = number
