"""The keeper: what begins a move and what does not, and several keepers that come to rest, whatever happens."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafscale.cluster.coordination import Coordination
from kafscale.cluster.keeper import LOOK_AGAIN_SEC, RETRY_DELAY_SEC, Keeper, Wanted
from kafscale.cluster.preferred import preferred_brokers
from kafscale.cluster.registration import Registration
from kafscale.cluster.tenure import Tenure
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.errors import LeaseEndedError
from kafscale.formats.topic_record import decode_coordinator_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import Changes, Compare, Operation, Snapshot, TransactionResult
from tests.sim.unreliable import Network, UnreliableMetadata
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually

MYSELF, OTHER = 1, 2


class Scripted:
    """Assignment and owner as a test says; a move waits for `may_move` and does what it does in the store."""

    def __init__(self) -> None:
        self.wanted: dict[str, tuple[int | None, int | None]] = {}
        self.named: set[str] = set()
        self.held: set[str] = set()
        self.moves: list[tuple[str, frozenset[str]]] = []
        self.may_move = asyncio.Event()
        self.may_move.set()
        self.problem: Exception | None = None
        self.at_once: int | None = None

    def say(self, item: str, preferred: int | None, holder: int | None) -> None:
        self.wanted[item] = preferred, holder
        self.named.add(item)

    def changed(self) -> Iterable[Wanted[str]]:
        named = sorted(self.named)[: self.at_once]
        self.named.difference_update(named)
        return [Wanted(item, *self.wanted[item]) for item in named]

    def has_more(self) -> bool:
        return bool(self.named)

    def reconsider(self, items: Iterable[str]) -> None:
        self.named.update(items)

    def owns(self, item: str) -> bool:
        return item in self.held

    async def claim(self, items: set[str]) -> None:
        await self._move("gain", items)
        self.held |= items

    async def resign(self, items: set[str]) -> None:
        await self._move("let go", items)
        self.held -= items

    async def release_stale(self, items: set[str]) -> None:
        await self._move("release stale", items)

    async def _move(self, name: str, items: set[str]) -> None:
        self.moves.append((name, frozenset(items)))
        await self.may_move.wait()
        if self.problem is not None:
            raise self.problem


Scenario = Callable[[Scripted, "Keeper[str]"], Awaitable[None]]


def scripted(scenario: Scenario) -> None:
    """Play it in virtual time; nothing may still run after the keeper was closed."""

    async def play() -> None:
        holdings = Scripted()
        keeper = Keeper("things", MYSELF, holdings, holdings)
        await scenario(holdings, keeper)
        await keeper.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(play())


@pytest.mark.parametrize(
    ("preferred", "holder", "held", "move"),
    [
        (MYSELF, None, False, "gain"),
        (MYSELF, MYSELF, True, None),
        (MYSELF, None, True, None),  # claimed a moment ago: the picture will show it
        (MYSELF, OTHER, False, None),  # they will let it go
        (MYSELF, MYSELF, False, "release stale"),
        (OTHER, MYSELF, True, "let go"),
        (OTHER, None, True, "let go"),
        (OTHER, MYSELF, False, "release stale"),
        (OTHER, OTHER, False, None),
        (OTHER, None, False, None),
        (None, MYSELF, True, None),  # no other broker could take it
        (None, None, False, None),
    ],
)
def test_a_move_is_what_brings_it_to_the_preferred_broker(
    preferred: int | None, holder: int | None, held: bool, move: str | None
) -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.say("a", preferred, holder)
        if held:
            holdings.held.add("a")
        keeper.poke()
        await keeper.settled()
        assert holdings.moves == ([] if move is None else [(move, frozenset("a"))])

    scripted(scenario)


def test_moves_of_one_kind_go_together_and_kinds_side_by_side() -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.may_move.clear()
        holdings.held |= {"c", "d"}
        for item, preferred, holder in (("a", MYSELF, None), ("b", MYSELF, None), ("e", OTHER, MYSELF)):
            holdings.say(item, preferred, holder)
        for item in "cd":
            holdings.say(item, OTHER, MYSELF)
        keeper.poke()
        keeper.poke()
        await asyncio.sleep(1)
        assert sorted(holdings.moves) == [
            ("gain", frozenset("ab")),
            ("let go", frozenset("cd")),
            ("release stale", frozenset("e")),
        ]
        holdings.may_move.set()
        await keeper.settled()
        assert holdings.held == {"a", "b"}
        assert len(holdings.moves) == 3

    scripted(scenario)


def test_many_changes_are_read_in_parts_with_tasks_in_between() -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.at_once = 2
        for item in "abcde":
            holdings.say(item, MYSELF, None)
        left: list[int] = []

        async def other() -> None:
            while holdings.named:
                left.append(len(holdings.named))
                if len(left) == 1:
                    holdings.say("b", OTHER, None)  # It changes again, after it was looked at.
                await asyncio.sleep(0)

        keeper.poke()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(other())
            tasks.create_task(keeper.settled())
        assert left == [3, 2]
        assert not holdings.named
        assert holdings.held == set("acde")

    scripted(scenario)


def test_what_changes_during_a_move_is_looked_at_afterwards() -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.may_move.clear()
        holdings.say("a", MYSELF, None)
        keeper.poke()
        await asyncio.sleep(1)
        holdings.say("a", OTHER, MYSELF)
        holdings.say("b", MYSELF, None)
        keeper.poke()
        await asyncio.sleep(1)
        assert holdings.moves == [("gain", frozenset("a")), ("gain", frozenset("b"))]
        holdings.may_move.set()
        await keeper.settled()
        assert holdings.moves[2:] == [("let go", frozenset("a"))]
        assert holdings.held == {"b"}

    scripted(scenario)


def test_a_failed_claim_is_not_retried_before_the_view_changes() -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.problem = LeaseEndedError(1)
        holdings.say("a", MYSELF, None)
        keeper.poke()
        await keeper.settled()
        await asyncio.sleep(10 * RETRY_DELAY_SEC)
        assert holdings.moves == [("gain", frozenset("a"))]
        holdings.problem = None
        holdings.reconsider("a")  # as a registration does
        keeper.poke()
        await keeper.settled()
        assert holdings.held == {"a"}

    scripted(scenario)


def test_a_claim_that_an_unseen_owner_blocked_is_retried_later() -> None:
    """The watch broke, and its snapshot shows the item as free as it was: nothing has changed."""

    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        gain = holdings.claim

        async def gain_nothing(items: set[str]) -> None:
            await gain(items)
            holdings.held -= items

        holdings.claim = gain_nothing  # type: ignore[method-assign]
        holdings.say("a", MYSELF, None)
        keeper.poke()
        await keeper.settled()
        holdings.claim = gain  # type: ignore[method-assign]
        await asyncio.sleep(2 * LOOK_AGAIN_SEC)
        assert holdings.held == {"a"}
        assert holdings.moves == [("gain", frozenset("a"))] * 2

    scripted(scenario)


def test_a_defect_is_reported_and_retried_after_a_delay(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.problem = RuntimeError("a defect")
        holdings.say("a", MYSELF, None)
        keeper.poke()
        await keeper.settled()
        for _ in range(3):  # nothing is done sooner, whatever changes
            holdings.reconsider("a")
            keeper.poke()
            await asyncio.sleep(RETRY_DELAY_SEC / 4)
        assert holdings.moves == [("gain", frozenset("a"))]
        assert "a defect" in caplog.text
        holdings.problem = None
        await asyncio.sleep(RETRY_DELAY_SEC)
        assert holdings.held == {"a"}

    scripted(scenario)


def test_closing_ends_the_moves_and_begins_none() -> None:
    async def scenario(holdings: Scripted, keeper: Keeper[str]) -> None:
        holdings.may_move.clear()
        holdings.say("a", MYSELF, None)
        keeper.poke()
        await asyncio.sleep(1)
        keeper.poke()
        await keeper.close()
        holdings.may_move.set()
        holdings.say("b", MYSELF, None)
        keeper.poke()
        await asyncio.sleep(100)
        assert holdings.moves == [("gain", frozenset("a"))]
        assert holdings.held == set()

    scripted(scenario)


# --- several keepers over one store


ITEMS = range(6)
BROKER_IDS = (1, 2, 3, 4)
TTL_SEC = 10


class CountingStore(MemoryStore):
    """Counts the transactions that it is asked for."""

    transactions = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        self.transactions += 1
        return await super().transact(compares, operations)


class Store(UnreliableMetadata):
    """The whole store behind a network; watches and leases are as the store's, with delays."""

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        return self._inner.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        return self._inner.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        return await self._network.call(lambda: self._inner.grant_lease(ttl_sec))

    async def renew_lease(self, lease: int) -> bool:
        return await self._network.call(lambda: self._inner.renew_lease(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._network.call(lambda: self._inner.revoke_lease(lease))

    async def close(self) -> None:
        await self._inner.close()


class World:
    """One store and the brokers on it."""

    def __init__(self, seed: int, fault_rate: float) -> None:
        self.rng = random.Random(seed)
        self.store = CountingStore(max_operations=4)
        self.network = Network(self.rng, fault_rate)
        self.faulty = Store(self.store, self.network)
        self.live: dict[int, Broker] = {}
        self.changing: set[asyncio.Task[None]] = set()

    def begin(self, change: Any) -> None:
        """Let it happen beside everything else."""
        task = asyncio.create_task(change)
        self.changing.add(task)

    async def holders(self) -> dict[int, tuple[int, int]]:
        """The owner of each item by the store, and the revision since which it owns it."""
        snapshot = await self.store.range(keys.COORDINATORS)
        return {
            int(item.key.removeprefix(keys.COORDINATORS)): (
                decode_coordinator_record(item.key, item.value).broker_id,
                item.mod_revision,
            )
            for item in snapshot.items
        }


class Broker:
    """Owns items as a broker owns group shards, with nothing in them; it takes a while to load one."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.broker_id = broker_id
        self.held: dict[int, int] = {}
        self._world = world
        self._view = ClusterView("test")
        self._registration = Registration(world.faulty, TTL_SEC)
        self._tenure = Tenure(self._registration)
        self._coordination = Coordination(world.faulty, broker_id, lambda: self._tenure.lease)
        self._keeper = Keeper("items", broker_id, self, self)
        self._named: set[int] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._view.subscribe_coordinators(lambda item: self._look_at([item]))
        self._view.subscribe_brokers(lambda: self._look_at(ITEMS))

    def _look_at(self, items: Iterable[int]) -> None:
        self.reconsider(items)
        self._keeper.poke()

    # --- see `Assignment` and `Owner`

    def changed(self) -> Iterable[Wanted[int]]:
        preferred = preferred_brokers("items", len(ITEMS), self._view.brokers_to_prefer(self.broker_id))
        named, self._named = self._named, set()
        for item in sorted(named):
            yield Wanted(item, preferred[item] if preferred else None, self._view.coordinator(item))

    def has_more(self) -> bool:
        return bool(self._named)

    def reconsider(self, items: Iterable[int]) -> None:
        self._named.update(items)

    def owns(self, item: int) -> bool:
        return item in self.held

    async def claim(self, items: set[int]) -> None:
        gained = await self._coordination.claim(items)
        await asyncio.sleep(self._world.rng.choice([0, 0.5, TTL_SEC / 2]))
        self.held.update({one.shard: one.revision for one in gained})

    async def resign(self, items: set[int]) -> None:
        revisions = {item: self.held.pop(item) for item in sorted(items) if item in self.held}
        await asyncio.sleep(self._world.rng.uniform(0, 0.5))
        await self._coordination.release(revisions)

    async def release_stale(self, items: set[int]) -> None:
        await self._coordination.release_stale(sorted(items))

    # --- what happens to it, as a broker's process does it

    def start(self) -> None:
        self._starting = asyncio.create_task(self._start())
        self._tasks.append(self._starting)

    async def _start(self) -> None:
        broker = BrokerRecord(broker_id=self.broker_id, host="", port=1, state=BrokerState.STARTING)
        await self._registration.register(broker)
        self._tasks.append(asyncio.create_task(ClusterViewFeeder(self._world.faulty, self._view).run()))
        self._tasks.append(asyncio.create_task(self._tenure.run(_AllItems(self))))
        await self._view.ready()
        await self._view.wait_until(lambda: self._view.broker_state(self.broker_id) is not None)
        self._look_at(ITEMS)
        await self._keeper.settled()
        await self._registration.announce(BrokerState.RUNNING)

    async def stop(self) -> None:
        if self._starting.done():
            await self._registration.announce(BrokerState.STOPPING)
            await self._keeper.settled()
        await self.end()
        await asyncio.gather(self._registration.close(), return_exceptions=True)

    async def end(self) -> None:
        """The process is gone; its lease is left."""
        await self._keeper.close()
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome

    async def lose_lease(self) -> None:
        await self._world.store.revoke_lease(self._registration.lease)

    def lose(self, item: int) -> None:
        """It finds that it cannot go on with the item."""
        if self.held.pop(item, None) is not None:
            self._look_at([item])


class _AllItems:
    """All items that a broker owns, as its tenure releases them."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def resign_all(self) -> None:
        for _ in range(2):
            await self._broker.resign(set(ITEMS))
            await self._broker._keeper.settled()

    def reconsider(self) -> None:
        self._broker._look_at(ITEMS)


def disturb(world: World, what: str, broker_id: int, item: int) -> None:
    """One thing that happens, if it can."""
    broker = world.live.get(broker_id)
    if broker is None:
        if what == "start":
            world.live[broker_id] = Broker(world, broker_id)
            world.live[broker_id].start()
    elif what == "stop":
        world.begin(world.live.pop(broker_id).stop())
    elif what == "kill":
        world.begin(world.live.pop(broker_id).end())
    elif what == "lose lease":
        world.begin(broker.lose_lease())
    elif what == "lose":
        broker.lose(item)


events = st.lists(
    st.tuples(
        st.sampled_from(["start", "start", "stop", "kill", "lose lease", "lose"]),
        st.sampled_from(BROKER_IDS),
        st.sampled_from(ITEMS),
        st.sampled_from([0.0, 0.1, 0.5, 2.0, 8.0]),
    ),
    min_size=1,
    max_size=14,
)


@settings(
    max_examples=by_day(50, by_night=1_200), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(events, st.integers(0, 2**32), st.sampled_from([0.0, 0.0, 0.2]))
def test_every_item_ends_up_at_its_preferred_broker_and_stays(
    happens: list[tuple[str, int, int, float]], seed: int, fault_rate: float
) -> None:
    async def play() -> None:
        world = World(seed, fault_rate)
        disturb(world, "start", BROKER_IDS[0], 0)
        for what, broker_id, item, pause_sec in happens:
            disturb(world, what, broker_id, item)
            await asyncio.sleep(pause_sec)
        world.network.heal()
        await world.network.settle()
        await asyncio.sleep(5 * TTL_SEC)
        before = world.store.transactions
        await asyncio.sleep(5 * TTL_SEC)
        assert world.store.transactions == before, "it does not come to rest"
        await check_rest(world)
        for broker in world.live.values():
            await broker.end()
        for task in world.changing:
            task.cancel()
        for outcome in await asyncio.gather(*world.changing, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome
        await world.store.close()

    run_virtually(play())


async def check_rest(world: World) -> None:
    preferred = preferred_brokers("items", len(ITEMS), sorted(world.live))
    holders = await world.holders()
    assert {item: broker_id for item, (broker_id, _) in holders.items()} == dict(enumerate(preferred))
    believed = {broker_id: dict(broker.held) for broker_id, broker in world.live.items()}
    by_store: dict[int, dict[int, int]] = {broker_id: {} for broker_id in world.live}
    for item, (broker_id, revision) in holders.items():
        by_store[broker_id][item] = revision
    assert believed == by_store
