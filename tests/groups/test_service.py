"""Brokers that share the group shards: evenly, with every shard coordinated by one of them whatever happens."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from kafscale.cluster.registration import Registration
from kafscale.cluster.tenure import Tenure
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.formats.topic_record import decode_coordinator_record
from kafscale.groups.service import GroupService
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import Put, Snapshot
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode
from tests.groups.coordination import SETTINGS, TOPIC, committed, now_ms, refused
from tests.groups.no_transactions import NoTransactions
from tests.support.virtual_time import run_virtually

TTL_SEC = 10
SHARDS = set(range(keys.GROUP_SHARD_COUNT))


class SlowStore(MemoryStore):
    """Groups are read when they may be."""

    def __init__(self) -> None:
        super().__init__()
        self.may_load = asyncio.Event()
        self.may_load.set()
        self.loading = 0

    async def range(self, prefix: str) -> Snapshot:
        if prefix.startswith(keys.GROUPS):
            self.loading += 1
            await self.may_load.wait()
        return await super().range(prefix)


class GroupBroker:
    """The parts of a broker that coordinate groups, put together as its process does it."""

    def __init__(self, store: MemoryStore, broker_id: int) -> None:
        self.broker_id = broker_id
        self.view = ClusterView("test")
        self.registration = Registration(store, TTL_SEC)
        self.tenure = Tenure(self.registration)
        self.service = GroupService(
            store,
            self.view,
            lambda: self.tenure.lease,
            lambda topic, index: None,
            replace(SETTINGS, broker_id=broker_id),
            Metrics(),
            now_ms,
            NoTransactions(),
        )
        self._store = store
        self._tasks: list[asyncio.Task[None]] = []
        self._is_gone = False

    async def start(self) -> None:
        """It coordinates what it should as soon as the others let it go."""
        broker = BrokerRecord(broker_id=self.broker_id, host="host", port=1, state=BrokerState.STARTING)
        await self.registration.register(broker)
        self._begin(ClusterViewFeeder(self._store, self.view).run())
        self._begin(self.tenure.run(self.service))
        await self.view.ready()
        await self.view.wait_until(lambda: self.view.broker_state(self.broker_id) is not None)
        await self.service.start()
        await self.registration.announce(BrokerState.RUNNING)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def stop(self) -> None:
        await self.registration.announce(BrokerState.STOPPING)
        await self.view.wait_until(lambda: self.view.broker_state(self.broker_id) is not BrokerState.RUNNING)
        await self.service.handed_over()
        await self.kill()
        await self.registration.close()

    async def kill(self) -> None:
        """Its process ends, if it has not; its lease is left."""
        if self._is_gone:
            return
        self._is_gone = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.service.close()

    def coordinates(self) -> set[int]:
        return {shard for shard in SHARDS if self.service._shards.coordinates(shard)}

    async def commit(self, group_id: str, offset: int) -> ErrorCode:
        return await self.service.coordinator.commit(
            group_id,
            member_id="",
            group_instance_id=None,
            generation=-1,
            offsets={(TOPIC, 0): committed(offset)},
        )


class Cluster:
    def __init__(self) -> None:
        self.store = SlowStore()
        self.brokers: list[GroupBroker] = []

    async def start(self, *broker_ids: int) -> list[GroupBroker]:
        started = [GroupBroker(self.store, broker_id) for broker_id in broker_ids]
        self.brokers += started
        for broker in started:
            await broker.start()
        await asyncio.sleep(1)
        return started

    async def check_coordinated_by(self, *brokers: GroupBroker) -> None:
        """By the store these brokers, and nobody else, coordinate all shards, and they know."""
        snapshot = await MemoryStore.range(self.store, keys.COORDINATORS)
        by_store = {
            int(item.key.removeprefix(keys.COORDINATORS)): decode_coordinator_record(
                item.key, item.value
            ).broker_id
            for item in snapshot.items
        }
        believed = {shard: broker.broker_id for broker in brokers for shard in broker.coordinates()}
        assert by_store == believed
        assert set(by_store) == SHARDS


def virtually(scenario: Callable[[Cluster], Awaitable[None]]) -> None:
    async def play() -> None:
        cluster = Cluster()
        await scenario(cluster)
        for broker in cluster.brokers:
            await broker.kill()
        await cluster.store.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"still running: {[task.get_name() for task in left]}"

    run_virtually(play())


def test_brokers_share_the_shards_evenly_as_they_come_and_go() -> None:
    async def scenario(cluster: Cluster) -> None:
        (first,) = await cluster.start(1)
        await cluster.check_coordinated_by(first)
        second, third = await cluster.start(2, 3)
        await cluster.check_coordinated_by(first, second, third)
        assert max(len(broker.coordinates()) for broker in cluster.brokers) <= 22
        began = asyncio.get_running_loop().time()
        await second.stop()
        assert asyncio.get_running_loop().time() - began < 0.1
        await asyncio.sleep(0.1)
        await cluster.check_coordinated_by(first, third)
        assert len(first.coordinates()) == len(third.coordinates()) == 32

    virtually(scenario)


def test_groups_and_offsets_follow_their_shard() -> None:
    async def scenario(cluster: Cluster) -> None:
        (first,) = await cluster.start(1)
        names = [f"group-{number}" for number in range(100)]
        for number, name in enumerate(names):
            assert await first.commit(name, number) is ErrorCode.NONE
        (second,) = await cluster.start(2)
        for name in names:
            here, there = (first, second) if keys.shard_of(name) in first.coordinates() else (second, first)
            assert here.service.coordinator.describe(name) is not None
            with refused(ErrorCode.NOT_COORDINATOR):
                there.service.coordinator.describe(name)
            assert await here.commit(name, 1000) is ErrorCode.NONE
        await second.stop()
        await asyncio.sleep(0.1)
        assert {group.group_id for group in first.service.coordinator.groups()} == set(names)

    virtually(scenario)


def test_shards_of_killed_broker_are_claimed_after_lease_end() -> None:
    async def scenario(cluster: Cluster) -> None:
        first, second = await cluster.start(1, 2)
        await second.kill()
        await asyncio.sleep(TTL_SEC + 0.1)
        await cluster.check_coordinated_by(first)

    virtually(scenario)


@pytest.mark.parametrize("others", [0, 1])
def test_broker_claims_its_shards_again_after_lease_end(others: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        brokers = await cluster.start(*range(others + 1))
        shares = [broker.coordinates() for broker in brokers]
        await cluster.store.revoke_lease(brokers[0].registration.lease)
        await asyncio.sleep(TTL_SEC)
        await cluster.check_coordinated_by(*brokers)
        assert [broker.coordinates() for broker in brokers] == shares
        for number in range(20):
            holder = next(one for one in brokers if keys.shard_of(f"{number}") in one.coordinates())
            assert await holder.commit(f"{number}", 1) is ErrorCode.NONE

    virtually(scenario)


def test_lease_end_during_loading_leaves_no_shard_unowned() -> None:
    async def scenario(cluster: Cluster) -> None:
        first, second = await cluster.start(1, 2)
        await second.stop()
        await asyncio.sleep(0.1)
        await cluster.check_coordinated_by(first)
        await first.stop()
        third = GroupBroker(cluster.store, 3)
        cluster.brokers.append(third)
        cluster.store.may_load.clear()
        starting = asyncio.create_task(third.start())
        await asyncio.sleep(1)
        assert cluster.store.loading
        await cluster.store.revoke_lease(third.registration.lease)
        await asyncio.sleep(TTL_SEC)
        cluster.store.may_load.set()
        await starting
        await asyncio.sleep(TTL_SEC)
        await cluster.check_coordinated_by(third)
        assert await third.commit("group", 1) is ErrorCode.NONE

    virtually(scenario)


def test_unwritable_shard_is_claimed_again() -> None:
    """Another broker has replaced its record, and is gone."""

    async def scenario(cluster: Cluster) -> None:
        (broker,) = await cluster.start(1)
        assert await broker.commit("group", 1) is ErrorCode.NONE
        key = keys.group_shard(keys.shard_of("group"))
        found = await cluster.store.get(key)
        assert found is not None
        await cluster.store.transact([], [Put(key, found.value.replace(b'"broker_id":1', b'"broker_id":7'))])
        with refused(ErrorCode.NOT_COORDINATOR):
            await broker.commit("group", 2)
        await asyncio.sleep(1)
        await cluster.check_coordinated_by(broker)
        assert await broker.commit("group", 3) is ErrorCode.NONE

    virtually(scenario)
