"""Small splits share a task, large ones have their own, and none is lost or out of order."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from kafscale.reader.splits import REQUEST_BYTES, Split
from spark_jobs.source.packing import packed

MIB = 1024 * 1024
TOPIC_ID = UUID(int=1)
TASK_BYTES = 8 * MIB


def split(partition: int, size_bytes: int) -> Split:
    return Split(
        topic="t", topic_id=TOPIC_ID, partition=partition, pieces=(), size_bytes=size_bytes, epochs=()
    )


@given(st.lists(st.integers(0, 3 * TASK_BYTES), max_size=50), st.none() | st.integers(1, 100))
def test_every_split_is_in_one_task_in_order(sizes: list[int], least: int | None) -> None:
    splits = [split(number, size) for number, size in enumerate(sizes)]
    tasks = packed(splits, TASK_BYTES, least)
    assert [one for task in tasks for one in task] == splits
    assert all(tasks)
    for task in tasks:
        assert len(task) == 1 or sum(max(one.size_bytes, REQUEST_BYTES) for one in task) <= TASK_BYTES


def test_a_hundred_small_partitions_are_one_task() -> None:
    assert len(packed([split(number, 2_000) for number in range(100)], TASK_BYTES, None)) == 1


def test_many_requests_are_several_tasks() -> None:
    """A task that reads thousands of small objects would take longer than all others together."""
    assert len(packed([split(number, 10) for number in range(1_000)], TASK_BYTES, None)) == 8


def test_large_splits_stay_tasks_of_their_own() -> None:
    assert len(packed([split(number, 64 * MIB) for number in range(5)], TASK_BYTES, None)) == 5


def test_a_wanted_number_of_tasks_is_about_kept() -> None:
    assert len(packed([split(number, MIB // 2) for number in range(16)], TASK_BYTES, 8)) == 8


def test_without_a_size_each_split_is_a_task() -> None:
    assert len(packed([split(number, 10) for number in range(100)], None, None)) == 100
