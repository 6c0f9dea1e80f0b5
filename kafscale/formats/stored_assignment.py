"""Assignments and lists of topics, as the records of groups' members have them.

Stored format: docs/format/consumer-group-records.md. All integers are big-endian; strings are Kafka's.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from typing import Final

from kafscale.protocol.wire import MalformedRequestError, check_count, read_string, string

Assignment = Mapping[uuid.UUID, frozenset[int]]
"""Partitions by topic id. No topic without partitions."""

NO_PARTITIONS: Final[Assignment] = {}

COUNT: Final = Struct(">i")
MIN_STRING_BYTES: Final = 2
MAX_TOPICS: Final = 1_000_000

_TOPIC = Struct(">16si")
_RUN = Struct(">ii")
_MAX_PARTITIONS = 1_000_000


def encode_names(names: Iterable[str]) -> Iterator[bytes]:
    """Topics by name, in ascending order."""
    ascending = sorted(names)
    yield COUNT.pack(len(ascending))
    yield from map(string, ascending)


def encode_assignment(assignment: Assignment) -> Iterator[bytes]:
    """Each topic with runs of partitions."""
    yield COUNT.pack(len(assignment))
    for topic_id in sorted(assignment):
        runs = list(_runs(sorted(assignment[topic_id])))
        yield _TOPIC.pack(topic_id.bytes, len(runs))
        yield from (_RUN.pack(first, count) for first, count in runs)


def _runs(ascending: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = count = 0
    for number in ascending:
        if count and number == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count


def decode_count(data: bytes, position: int, smallest_bytes: int, most: int) -> tuple[int, int]:
    """A count, at most `most`, and where what is counted begins. Raises `MalformedRequestError`, and at the end."""
    (count,) = COUNT.unpack_from(data, position)
    position += COUNT.size
    check_count(count, smallest_bytes, data, position, most)
    return count, position


def decode_names(data: bytes, position: int) -> tuple[frozenset[str], int]:
    """The topics, and where they end. Raises as `decode_count`."""
    count, position = decode_count(data, position, MIN_STRING_BYTES, MAX_TOPICS)
    names = []
    for _ in range(count):
        topic, position = read_string(data, position, "a subscribed topic")
        names.append(topic)
    return frozenset(names), position


def decode_assignment(data: bytes, position: int) -> tuple[Assignment, int]:
    """The assignment, and where it ends. Raises as `decode_count`."""
    count, position = decode_count(data, position, _TOPIC.size, MAX_TOPICS)
    assignment: dict[uuid.UUID, frozenset[int]] = {}
    total = 0
    for _ in range(count):
        topic_id, run_count = _TOPIC.unpack_from(data, position)
        position += _TOPIC.size
        check_count(run_count, _RUN.size, data, position, _MAX_PARTITIONS)
        partitions: set[int] = set()
        for first, length in _RUN.iter_unpack(data[position : position + run_count * _RUN.size]):
            total += length
            if first < 0 or length < 1 or total > _MAX_PARTITIONS:
                raise MalformedRequestError(f"{length} partitions from {first} on")
            partitions.update(range(first, first + length))
        position += run_count * _RUN.size
        if not partitions:
            raise MalformedRequestError("a topic without partitions")
        assignment[uuid.UUID(bytes=topic_id)] = frozenset(partitions)
    return assignment, position
