"""Partitions that are handed over: a few at a time, and one that fails does not keep the others."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

import pytest

from kafscale.cluster.leadership import TopicPartition
from kafscale.log import partition_moves
from kafscale.log.partition_moves import PartitionMoves
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

MOST = 4


class _Partition:
    led_since_revision = 7

    def __init__(self, item: TopicPartition) -> None:
        self.id = item


class _Logs:
    """Partitions of which each is resigned when the test says so."""

    partition_count = 0

    def __init__(self, items: Iterable[TopicPartition]) -> None:
        self._led = {item: _Partition(item) for item in items}
        self.resigning: dict[TopicPartition, asyncio.Future[bool]] = {}
        self.most_at_once = 0

    def partition(self, *item: Any) -> _Partition | None:
        return self._led.get(cast(TopicPartition, item))

    async def resign(self, partition: _Partition) -> bool:
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.resigning[partition.id] = future
        self.most_at_once = max(self.most_at_once, len(self.resigning))
        try:
            return await future
        finally:
            del self.resigning[partition.id]


class _Leadership:
    def __init__(self) -> None:
        self.released: list[TopicPartition] = []

    async def release(self, revisions: dict[TopicPartition, int]) -> None:
        self.released += revisions

    async def release_records(self, items: list[TopicPartition]) -> None:
        self.released += [("record of", index) for _, index in items]


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_moves, "LEAST_AT_ONCE", MOST)


def _moves(leadership: _Leadership, logs: _Logs) -> PartitionMoves:
    return PartitionMoves(cast(Any, leadership), cast(Any, logs), ItemFailures(BackgroundWork.CLAIMS))


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_few_partitions_pause_at_once(few_at_once: None) -> None:
    items = {("topic", index) for index in range(3 * MOST)}
    leadership, logs = _Leadership(), _Logs(items)
    resigning = asyncio.create_task(_moves(leadership, logs).resign(items | {("not led here", 0)}))
    await _turns()
    assert sorted(logs.resigning) == [("topic", index) for index in range(MOST)]
    logs.resigning["topic", 2].set_result(True)
    await _turns()
    assert leadership.released == [("topic", 2)]
    assert sorted(logs.resigning) == [("topic", index) for index in (0, 1, 3, 4)]
    while logs.resigning:
        next(iter(logs.resigning.values())).set_result(True)
        await _turns()
    await resigning
    assert set(leadership.released) == items
    assert logs.most_at_once == MOST


@pytest.mark.parametrize(("items", "at_once"), [(40, 32), (3_300, 33), (10_000, 100), (20_000, 128)])
async def test_of_many_partitions_a_hundredth_pauses_at_once(items: int, at_once: int) -> None:
    all_items = {("topic", index) for index in range(items)}
    logs = _Logs(all_items)
    resigning = asyncio.create_task(_moves(_Leadership(), logs).resign(all_items))
    await _turns()
    assert len(logs.resigning) == at_once
    resigning.cancel()
    await asyncio.gather(resigning, return_exceptions=True)


async def test_one_that_fails_keeps_no_other(few_at_once: None) -> None:
    items = {("topic", index) for index in range(2 * MOST)}
    leadership, logs = _Leadership(), _Logs(items)
    resigning = asyncio.create_task(_moves(leadership, logs).resign(items))
    await _turns()
    logs.resigning["topic", 0].set_exception(ValueError("a defect"))
    logs.resigning["topic", 1].set_result(False)
    while True:
        await _turns()
        if not logs.resigning:
            break
        next(iter(logs.resigning.values())).set_result(True)
    await resigning
    assert items <= set(leadership.released)
    assert ("record of", 1) in leadership.released


async def test_none_to_hand_over_ends_at_once() -> None:
    leadership = _Leadership()
    await _moves(leadership, _Logs([])).resign({("topic", 0)})
    assert not leadership.released
