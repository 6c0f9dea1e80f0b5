"""Assignments as sets of partitions."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from kafscale.groups.modern.assignment import (
    NO_PARTITIONS,
    Assignment,
    count,
    difference,
    is_subset,
    union,
)

ASSIGNMENTS = st.dictionaries(
    st.sampled_from([uuid.UUID(int=number) for number in range(3)]),
    st.frozensets(st.integers(0, 3), min_size=1),
)


def pairs(assignment: Assignment) -> set[tuple[uuid.UUID, int]]:
    assert all(assignment.values()), "a topic without partitions"
    return {(topic_id, partition) for topic_id, partitions in assignment.items() for partition in partitions}


@given(ASSIGNMENTS, ASSIGNMENTS)
def test_assignments_behave_as_sets_of_partitions(first: Assignment, second: Assignment) -> None:
    assert pairs(union(first, second)) == pairs(first) | pairs(second)
    assert pairs(difference(first, second)) == pairs(first) - pairs(second)
    assert count(first) == len(pairs(first))
    assert is_subset(first, second) == (pairs(first) <= pairs(second))
    assert is_subset(difference(first, second), first)


@given(ASSIGNMENTS)
def test_no_partitions_are_neutral(assignment: Assignment) -> None:
    assert union(assignment, NO_PARTITIONS) == assignment == difference(assignment, NO_PARTITIONS)
    assert is_subset(NO_PARTITIONS, assignment)
    assert count(NO_PARTITIONS) == 0
