"""Nothing acknowledged is lost, doubled or moved, whatever stores, networks and leaders do."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from kafscale.errors import CorruptDataError, ObjectExistsError
from kafscale.formats.partition_record import PartitionRecord, epoch_of
from kafscale.log import partition_log
from kafscale.log.writing.flush_times import FlushTimes
from kafscale.log.writing.uploads import Uploader
from kafscale.metadata.store import Compare, Operation, TransactionResult
from kafscale.protocol.types import Buffer
from kafscale.tools.fsck import dropping
from tests.sim.cluster import World, disturb, produce, published_values
from tests.sim.seed_search import SeedSearch
from tests.sim.unreliable import UnreliableMetadata
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually

SEEDS_PER_RUN = by_day(150, by_night=5_000)
SEEDS_SEARCHED = by_day(150, by_night=1_000)
VIRTUAL_SECONDS = 3600


@pytest.fixture(autouse=True)
def frequent_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """So frequent that every run has several."""
    monkeypatch.setattr(partition_log, "CHECKPOINT_SEGMENTS", 3)


async def _simulate(seed: int, *, producers: int = 3, batches: int = 12, changes: int = 6) -> World:
    rng = random.Random(seed)
    world = World(rng, fault_rate=rng.choice((0.0, 0.1, 0.3, 0.5)))
    await world.create()
    await world.elect()
    producing = [asyncio.create_task(produce(world, number, batches)) for number in range(1, producers + 1)]
    await disturb(world, changes)
    _, unfinished = await asyncio.wait(producing, timeout=VIRTUAL_SECONDS)
    assert not unfinished, f"seed {seed}: batches are neither acknowledged nor refused for good"
    await asyncio.gather(*producing)
    await world.network.settle()
    if world.leader is not None:
        await world.leader.kill()
    return world


async def _check(seed: int) -> None:
    world = await _simulate(seed)
    values = await published_values(world)
    for value, offset in world.acknowledged.items():
        assert values.get(offset) == value, f"seed {seed}: {value!r} was acknowledged at {offset}"
    published = list(values.values())
    assert len(published) == len(set(published)), f"seed {seed}: a record is published twice"
    for producer in (b"1", b"2", b"3"):
        own = [
            tuple(map(int, v.split(b"/"))) for _, v in sorted(values.items()) if v.split(b"/")[0] == producer
        ]
        assert own == sorted(own), f"seed {seed}: producer {producer!r} is out of order"


@pytest.mark.timeout(900 + SEEDS_PER_RUN)
def test_acknowledged_records_are_kept_once_and_in_order() -> None:
    first = random.randrange(2**32)
    print(f"seeds {first} to {first + SEEDS_PER_RUN - 1}")
    for seed in range(first, first + SEEDS_PER_RUN):
        run_virtually(_check(seed))


def test_a_seed_repeats_its_run_exactly() -> None:
    runs = [run_virtually(_simulate(4711)) for _ in range(2)]
    assert runs[0].acknowledged == runs[1].acknowledged
    assert _contents(runs[0]) == _contents(runs[1])


def test_orphan_deleted_while_compared_does_not_break_flush() -> None:
    async def run() -> World:
        world = World(random.Random(1), fault_rate=0.0)
        await world.create()
        await world.elect()
        put, refusals = world.objects.put_if_absent, ["first"]

        async def refuse_first(key: str, parts: Sequence[Buffer]) -> None:
            if key.endswith(".kfs") and refusals:
                refusals.pop()
                raise ObjectExistsError(key)
            await put(key, parts)

        world.objects.put_if_absent = refuse_first  # type: ignore[method-assign]
        await asyncio.wait_for(produce(world, 1, 2), timeout=60)  # virtual seconds
        assert not refusals
        return world

    world = run_virtually(run())
    assert min(world.acknowledged.values()) == 0
    assert {value: offset for offset, value in run_virtually(published_values(world)).items()} == (
        world.acknowledged
    )


def _contents(world: World) -> dict[str, bytes]:
    async def read() -> dict[str, bytes]:
        return {info.key: await world.objects.get(info.key) async for info in world.objects.list("")}

    return run_virtually(read())


def test_it_finds_a_publication_without_its_compare(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    async def transact(
        self: UnreliableMetadata, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        return await self._network.call(lambda: self._inner.transact([], operations))

    monkeypatch.setattr(UnreliableMetadata, "transact", transact)
    seed_search.find("publication_without_its_compare", _failure, SEEDS_SEARCHED)


def test_it_finds_an_upload_that_overwrites(monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch) -> None:
    async def overwrite(self: Uploader, key: str, parts: list[bytes], _: FlushTimes) -> bool:
        await self._retries.until_done(lambda: self._objects.put(key, parts), key)
        return True

    monkeypatch.setattr(Uploader, "_put", overwrite)
    seed_search.find("upload_that_overwrites_one_log", _failure, SEEDS_SEARCHED)


def test_it_finds_a_repair_within_the_leaders_epoch(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    """A leader in doubt takes what fsck wrote for a successor's record, which tells what was published."""

    def epochs_alone(successor: PartitionRecord, ours: PartitionRecord, last_offset: int) -> bool:
        return epoch_of(successor, last_offset) == ours.leader_epoch

    monkeypatch.setattr(dropping, "next_epoch", lambda record: record)
    monkeypatch.setattr(partition_log, "is_published_in", epochs_alone)
    seed_search.find("repair_within_the_leaders_epoch", _failure, SEEDS_SEARCHED)


def _failure(seed: int) -> str | None:
    try:
        run_virtually(_check(seed))
    except (AssertionError, CorruptDataError) as problem:
        return repr(problem)
    return None
