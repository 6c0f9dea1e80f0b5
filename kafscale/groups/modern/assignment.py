"""Assignments: partitions by topic id. A topic without partitions is not in them."""

import uuid
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

Assignment = Mapping[uuid.UUID, frozenset[int]]

TopicIdPartition = tuple[uuid.UUID, int]

NO_PARTITIONS: Final[Assignment] = MappingProxyType({})


def partitions_of(assignment: Assignment) -> Iterator[TopicIdPartition]:
    """Each partition."""
    return ((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)


def union(first: Assignment, second: Assignment) -> Assignment:
    """The partitions that are in either."""
    together = dict(first)
    for topic_id, partitions in second.items():
        together[topic_id] = together.get(topic_id, frozenset()) | partitions
    return together


def intersection(first: Assignment, second: Assignment) -> Assignment:
    """The partitions that are in both."""
    return {
        topic_id: both
        for topic_id, partitions in first.items()
        if (both := partitions & second.get(topic_id, frozenset()))
    }


def difference(first: Assignment, second: Assignment) -> Assignment:
    """The partitions of `first` that are not in `second`."""
    remaining = {
        topic_id: partitions - second.get(topic_id, frozenset()) for topic_id, partitions in first.items()
    }
    return {topic_id: partitions for topic_id, partitions in remaining.items() if partitions}


def count(assignment: Assignment) -> int:
    """The number of partitions in all topics."""
    return sum(map(len, assignment.values()))


def is_subset(part: Assignment, whole: Assignment) -> bool:
    """True if `whole` has every partition of `part`."""
    return all(partitions <= whole.get(topic_id, frozenset()) for topic_id, partitions in part.items())
