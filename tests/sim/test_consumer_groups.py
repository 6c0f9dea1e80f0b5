"""No commit of a consumer group is lost or goes back and no partition has two owners, whatever stores do."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from kafscale.groups.consumer import heartbeats, machine, reconciling
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.consumer.settling import Effects
from kafscale.groups.modern.events import Loaded
from kafscale.groups.shard_writer import ShardWriter
from kafscale.metadata import keys
from kafscale.metadata.store import Operation, TransactionResult
from kafscale.protocol.error_codes import KafkaError
from tests.sim.consumer_group_cluster import ConsumerWorld, SimulatedConsumer
from tests.sim.group_cluster import PARTITIONS
from tests.sim.seed_search import SeedSearch
from tests.sim.unreliable import UnreliableMetadata
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually

SEEDS_PER_RUN = by_day(20, by_night=2_000)
SEEDS_SEARCHED = by_day(60, by_night=600)


class _Run:
    """Members as tasks, and a hand that disturbs them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = ConsumerWorld(self.rng, fault_rate=self.rng.choice((0.0, 0.05, 0.2)))
        self.tasks: dict[SimulatedConsumer, asyncio.Task[None]] = {}
        self._names = 0

    def start_member(self, instance_id: str | None = None) -> None:
        self._names += 1
        member = SimulatedConsumer(self.world, f"m{self._names}", instance_id)
        self.tasks[member] = asyncio.create_task(member.run(), name=member.name)

    async def end(self, member: SimulatedConsumer, *, leave: bool) -> None:
        task = self.tasks.pop(member)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        if leave:
            await member.leave()
        member.end()

    async def disturb(self) -> None:
        match self.rng.randrange(5):
            case 0:
                self.start_member(self.rng.choice((None, None, "one", "two")))
            case 1 | 2 if len(self.tasks) > 1:
                await self.end(self.rng.choice(list(self.tasks)), leave=self.rng.random() < 0.5)
            case _:
                await self.world.elect()
        await asyncio.sleep(self.rng.expovariate(1 / 3))
        self.raise_what_failed()

    def raise_what_failed(self) -> None:
        for task in self.tasks.values():
            if task.done():
                task.result()

    async def end_all_but_one_of_an_instance(self) -> None:
        """The others are refused for as long as the one lives."""
        for instance_id in ("one", "two"):
            same = [one for one in self.tasks if one.instance_id == instance_id]
            for member in same[1:]:
                await self.end(member, leave=False)

    async def settle(self) -> None:
        """Raises `TimeoutError` when it takes longer than all timeouts together."""
        async with asyncio.timeout(120):
            while not self.is_settled():
                await asyncio.sleep(0.5)
                self.raise_what_failed()

    def is_settled(self) -> bool:
        """True if all who live are at one epoch, and have every partition once."""
        living = [member for member, task in self.tasks.items() if not task.done()]
        if not living:
            return True
        owned = sorted(index for member in living for index in member.has)
        return len({member.epoch for member in living}) == 1 and owned == list(range(PARTITIONS))


async def _check(seed: int) -> None:
    run = _Run(seed)
    world = run.world
    await world.elect()
    for _ in range(3):
        run.start_member()
    for _ in range(12):
        await run.disturb()
    world.network.heal()
    await run.end_all_but_one_of_an_instance()
    await run.settle()
    for member in list(run.tasks):
        await run.end(member, leave=True)
    await world.close()
    stored = await world.stored_offsets()
    for index, offset in world.acknowledged.items():
        assert stored[index] >= offset, f"seed {seed}: a commit of {offset} in {index} is lost: {stored}"
    for key, history in world.store.history.items():
        assert history == sorted(history), f"seed {seed}: {key} went back: {history}"


@pytest.mark.timeout(900 + SEEDS_PER_RUN)
def test_commits_last_and_partitions_have_one_owner() -> None:
    first = random.randrange(2**32)
    print(f"seeds {first} to {first + SEEDS_PER_RUN - 1}")
    for seed in range(first, first + SEEDS_PER_RUN):
        run_virtually(_check(seed))


def _failure(seed: int) -> str | None:
    try:
        run_virtually(_check(seed))
    except (AssertionError, TimeoutError) as problem:
        return repr(problem)
    return None


def test_the_simulation_notices_a_coordinator_that_is_not_fenced(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    """Without its compare, a coordinator that was replaced writes what its members still send it."""
    transact = UnreliableMetadata.transact

    async def unfenced(store: UnreliableMetadata, compares: Any, operations: Any) -> TransactionResult:
        claims = any(operation.key.startswith(keys.COORDINATORS) for operation in operations)
        return await transact(store, compares if claims else (), operations)

    monkeypatch.setattr(UnreliableMetadata, "transact", unfenced)
    seed_search.find("consumer_coordinator_that_is_not_fenced", _failure, SEEDS_SEARCHED)


def test_the_simulation_notices_answers_before_the_store_has_it(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    write = ShardWriter.write
    under_way: set[asyncio.Task[None]] = set()

    async def hidden(writer: ShardWriter, operations: Sequence[Operation], timeout_sec: float | None) -> None:
        with contextlib.suppress(KafkaError):
            await write(writer, operations, timeout_sec)

    async def answered_early(
        writer: ShardWriter, operations: Sequence[Operation], timeout_sec: float | None
    ) -> int:
        task = asyncio.create_task(hidden(writer, operations, timeout_sec))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
        return 0

    monkeypatch.setattr(ShardWriter, "write", answered_early)
    seed_search.find("consumer_answers_before_the_store_has_it", _failure, SEEDS_SEARCHED)


def test_the_simulation_notices_a_group_not_compared(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    def loaded(group: ConsumerGroup, event: Loaded, out: Effects) -> None:
        group.topics = {}

    monkeypatch.setitem(machine.TABLE, Loaded, loaded)
    seed_search.find("consumer_group_that_is_not_compared", _failure, SEEDS_SEARCHED)


def test_the_simulation_notices_partitions_given_too_early(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    reconcile = reconciling.reconcile

    def early(member: Any, epoch: int, target: Any, is_owned: Any, owned: Any) -> Any:
        return reconcile(member, epoch, target, lambda partition: False, owned)

    monkeypatch.setattr(heartbeats, "reconcile", early)
    seed_search.find("consumer_partitions_given_too_early", _failure, SEEDS_SEARCHED)


def test_the_simulation_notices_sessions_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch, seed_search: SeedSearch
) -> None:
    monkeypatch.setattr(ConsumerGroup, "next_deadline_ms", lambda group: None)
    seed_search.find("consumer_sessions_that_do_not_end", _failure, SEEDS_SEARCHED)
