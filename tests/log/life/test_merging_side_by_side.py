"""Merges side by side: the same result as one after the other, no partition twice, and none stops the others."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from kafscale.errors import StoreRefusedError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life import merge_windows, merger
from kafscale.log.life.merge_windows import PlannedMerge
from kafscale.log.life.merge_work import MergeWork, Result
from kafscale.log.life.merger import Merger
from kafscale.log.life.source_reads import WindowReads
from kafscale.log.partition import Partition
from kafscale.ops.metrics import MergeOutcome
from tests.formats.segments import parse_segment
from tests.log.life.backlog import NAMESPACE, TOPIC, Backlog, Shape
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until

SETTINGS: dict[str, Any] = {"merge_min_segments": 4, "merge_check_interval_ms": 3_600_000}
SHAPES = [
    Shape(),
    Shape(partitions=9, gathered=12),
    Shape(partitions=5, segments=20, gathered=8, largest_value=3000),
    Shape(partitions=3, segments=40, gathered=40),
]


@contextlib.asynccontextmanager
async def broker_on(backlog: Backlog, **settings: Any) -> AsyncIterator[InProcessBroker]:
    async with in_process_broker(
        metadata=backlog.metadata, objects=backlog.objects, **{**SETTINGS, **settings}
    ) as broker:
        await until(
            lambda: all(
                broker.process.serving.logs.partition(TOPIC, index)
                for index in range(backlog.shape.partitions)
            ),
            "every partition is led",
        )
        yield broker


def merger_of(broker: InProcessBroker) -> Merger:
    return broker.process.serving.segment_life.merger


async def merge_all(broker: InProcessBroker) -> None:
    while await merger_of(broker)._look():
        pass


async def references(broker: InProcessBroker, index: int) -> list[SegmentReference]:
    partition = broker.partition(TOPIC, index)
    await broker.process.serving.logs.load(partition)
    assert partition.references is not None
    return list(partition.references)


async def body(broker: InProcessBroker, index: int) -> bytes:
    """The batches of the partition's segments, in order."""
    found = []
    for one in await references(broker, index):
        key = object_keys.key_of_reference(NAMESPACE, TOPIC, index, one)
        data = await broker.objects.get_range(key, one.start, one.size_bytes)
        found.append(bytes(parse_segment(key, data).body))
    return b"".join(found)


async def merged_objects(broker: InProcessBroker) -> dict[str, bytes]:
    return {
        info.key: await broker.objects.get(info.key)
        async for info in broker.objects.list(f"{NAMESPACE}/{TOPIC}/")
        if "-" in info.key.rpartition("/")[2].removeprefix("segment-")
    }


async def settled(
    shape: Shape, seed: int, at_once: int
) -> tuple[dict[str, bytes], dict[int, list[SegmentReference]]]:
    """The merged objects and the references of every partition, after everything was merged."""
    backlog = Backlog(shape, seed)
    await backlog.write()
    async with broker_on(backlog, merge_concurrency=at_once) as broker:
        await merge_all(broker)
        assert merger_of(broker).debt.segments == merger_of(broker).debt.size_bytes == 0
        partitions = range(shape.partitions)
        for index in partitions:
            assert await body(broker, index) == backlog.bodies[index]
        return await merged_objects(broker), {index: await references(broker, index) for index in partitions}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(3))
async def test_merges_side_by_side_write_the_same_bytes(
    shape: Shape, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafscale.log.life.merge_debt.SOURCES_OF_A_LANE", 1)
    alone = await settled(shape, seed, at_once=1)
    assert alone[0]
    assert await settled(shape, seed, at_once=8) == alone


async def test_streamed_sources_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = replace(SHAPES[2], largest_value=100_000)
    whole = await settled(shape, 1, at_once=4)
    monkeypatch.setattr(merge_windows, "WINDOW_BYTES", 1)
    monkeypatch.setattr("kafscale.log.life.source_reads.PIECE_BYTES", 60_000)
    backlog = Backlog(shape, 1)
    await backlog.write()
    async with broker_on(backlog) as broker:
        await until_merged(broker)
        assert await merged_objects(broker) == whole[0]


async def until_merged(broker: InProcessBroker) -> None:
    """Large merges are made beside the looks."""
    found = merger_of(broker)
    while await found._look() or found._active:
        await found._streams.settled()


async def test_large_merges_of_a_partition_follow_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.log.life.merge_planner.MAX_SOURCES", 5)
    monkeypatch.setattr(merge_windows, "WINDOW_BYTES", 1)
    backlog = Backlog(Shape(partitions=1, segments=43))
    await backlog.write()
    async with broker_on(backlog) as broker:
        # The broker's own look is an hour away.
        await merger_of(broker)._look()
        await until(lambda: broker.metrics.merges.sources >= 40, "all is merged")


class Watch:
    """Counts the merges in progress, of each partition and of all."""

    def __init__(self, seed: int) -> None:
        self.most = 0
        self.twice: set[str] = set()
        self._running: set[str] = set()
        self._rng = random.Random(seed)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        make = MergeWork.make

        async def watched(
            work: MergeWork,
            planned: PlannedMerge[Partition],
            reads: WindowReads | None = None,
            first: int = 0,
        ) -> Result:
            name = str(planned.owner.id)
            if name in self._running:
                self.twice.add(name)
            self._running.add(name)
            self.most = max(self.most, len(self._running))
            for _ in range(self._rng.randint(0, 30)):
                await asyncio.sleep(0)
            try:
                return await make(work, planned, reads, first)
            finally:
                self._running.discard(name)

        monkeypatch.setattr(MergeWork, "make", watched)


@pytest.mark.parametrize("seed", range(4))
async def test_no_partition_is_merged_twice_at_a_time(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(seed)
    watch.install(monkeypatch)
    monkeypatch.setattr("kafscale.log.life.merge_debt.SOURCES_OF_A_LANE", 1)
    if seed % 2:
        monkeypatch.setattr(merge_windows, "WINDOW_BYTES", 1500)
    backlog = Backlog(Shape(partitions=12, segments=30, gathered=seed * 5), seed)
    await backlog.write()
    async with broker_on(backlog, merge_concurrency=3) as broker:
        merging = asyncio.create_task(merge_all(broker))
        while not merging.done():
            partitions = [broker.partition(TOPIC, index) for index in (seed, seed, 11)]
            await asyncio.gather(*map(merger_of(broker).consider, partitions))
            await asyncio.sleep(0)
        await merging
        await until_merged(broker)
        assert watch.twice == set()
        # Lanes, the queue of large ones, and those asked for here.
        assert 2 <= watch.most <= 3 + 1 + 2


async def test_debt_falls_with_each_look_and_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.log.life.merge_planner.MAX_SOURCES", 5)
    backlog = Backlog(Shape(segments=23))
    await backlog.write()
    async with broker_on(backlog) as broker:
        gauges = broker.metrics.readings
        debts = []
        while await merger_of(broker)._look():
            debts.append(gauges["kafscale_merge_debt_segments"][()]())
        assert debts[0] == 6 * 15
        assert debts == sorted(debts, reverse=True)
        for name in ("segments", "bytes", "oldest_seconds"):
            assert gauges[f"kafscale_merge_debt_{name}"][()]() == 0


async def test_each_partition_is_merged_once_in_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.log.life.merge_planner.MAX_SOURCES", 5)
    backlog = Backlog(Shape(segments=43))
    await backlog.write()
    async with broker_on(backlog) as broker:
        assert await merger_of(broker)._look()
        assert [len(await references(broker, index)) for index in range(6)] == [39] * 6


async def test_a_refused_write_stops_no_other_partition() -> None:
    backlog = Backlog(Shape())
    await backlog.write()
    refused = [StoreRefusedError("no")] * 50
    backlog.objects.fail("put_if_absent_streamed", f"{NAMESPACE}/{TOPIC}/2/*", *refused)
    async with broker_on(backlog) as broker:
        for _ in range(3):
            await merger_of(broker)._look()
        counts = [len(await references(broker, index)) for index in range(6)]
        assert counts == [4, 4, 12, 4, 4, 4]
        # It is not tried again at once without end: looks go on for the others.
        assert broker.metrics.merges.outcomes[MergeOutcome.FAILED] == 2
        assert merger_of(broker).debt.segments == 9


@pytest.mark.parametrize("position", ["batch", "footer"])
async def test_a_corrupt_source_stops_no_other_partition(position: str) -> None:
    backlog = Backlog(Shape(gathered=12))
    await backlog.write()
    key = f"_kafscale/{NAMESPACE}/gathered/{4:020d}.test"
    content = bytearray(await backlog.objects.get(key))
    content[40 if position == "batch" else backlog.sizes[0][4] - 12] ^= 1  # In the first partition's slice.
    await backlog.objects.inner.put(key, [bytes(content)])
    async with broker_on(backlog) as broker:
        await merge_all(broker)
        counts = [len(await references(broker, index)) for index in range(6)]
        assert counts[1:] == [4] * 5
        damaged = [(one.object_key, one.start) for one in await references(broker, 0)]
        assert (key, 0) in damaged and counts[0] < 12


async def test_a_lost_shared_object_stops_no_other_merge() -> None:
    backlog = Backlog(Shape(partitions=4, segments=14, gathered=6))
    await backlog.write()
    lost = f"_kafscale/{NAMESPACE}/gathered/{0:020d}.test"
    await backlog.objects.inner.delete([lost])
    async with broker_on(backlog) as broker:
        await merge_all(broker)
        for index in range(4):
            found = await references(broker, index)
            assert found[0].object_key == lost
            assert len(found) == 1 + 1 + 3


async def test_a_look_ends_while_the_store_is_away() -> None:
    backlog = Backlog(Shape(partitions=40))
    await backlog.write()
    away = [StoreUnavailableError("away")] * 10_000
    backlog.objects.fail("get_range", "*", *away)
    async with broker_on(backlog) as broker:
        assert not await merger_of(broker)._look()
        failed = broker.metrics.merges.outcomes[MergeOutcome.FAILED]
        assert merger._FAILURES_IN_A_ROW <= failed < 10


async def test_neighbours_in_shared_objects_cost_one_get_each() -> None:
    backlog = Backlog(Shape(partitions=30, segments=10, gathered=10))
    await backlog.write()
    async with broker_on(backlog) as broker:
        assert await merger_of(broker)._look()
        assert broker.metrics.merges.outcomes[MergeOutcome.PUBLISHED] == 30
        assert backlog.objects.count("get_range") == 7


async def test_a_shared_object_outlives_a_merge_of_its_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.log.life.removals.GRACE_SEC", 0.0)
    backlog = Backlog(Shape(partitions=2, segments=14, gathered=5))
    await backlog.write()
    async with broker_on(backlog) as broker:
        await merge_all(broker)
        gone = object_keys.segment_key(NAMESPACE, TOPIC, 0, backlog.base_offsets[0][5])
        await until(lambda: broker.objects.count("delete"), "sources are removed")
        await until_gone(broker, gone)
        kept = [info.key async for info in broker.objects.list(f"_kafscale/{NAMESPACE}/gathered/")]
        assert len(kept) == 5


async def until_gone(broker: InProcessBroker, key: str) -> None:
    async with asyncio.timeout(30):
        while key in [info.key async for info in broker.objects.list(key)]:  # noqa: ASYNC110 - a look at a store
            await asyncio.sleep(0)
