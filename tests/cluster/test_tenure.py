"""A broker whose lease has ended is registered again while it still resigns, and gains nothing before it has."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kafscale.cluster.registration import Registration
from kafscale.cluster.tenure import Tenure
from kafscale.errors import StartupError
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import NO_LEASE, Delete
from tests.support.virtual_time import run_virtually

TTL_SEC = 3
BROKER = BrokerRecord(broker_id=3, host="localhost", port=9092, state=BrokerState.RUNNING)
KEY = keys.broker(3)


class Held:
    """Partitions, say, that take their time to be given up."""

    def __init__(self) -> None:
        self.may_resign = asyncio.Event()
        self.problem: Exception | None = None
        self.resign_count = 0
        self.reconsidered = 0

    async def resign_all(self) -> None:
        self.resign_count += 1
        await self.may_resign.wait()
        if self.problem is not None:
            raise self.problem

    def reconsider(self) -> None:
        self.reconsidered += 1


class Scene:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.registration = Registration(self.store, TTL_SEC)
        self.ended = 0
        self.ends_again = False
        self.tenure = Tenure(self.registration, self._count)
        self.held = Held()

    def _count(self) -> None:
        self.ended += 1
        if self.ends_again:
            self.tenure.end()

    def reconsidered(self) -> int:
        return self.held.reconsidered

    def resigned(self) -> int:
        return self.held.resign_count

    async def end_lease(self) -> None:
        await self.store.revoke_lease(self.registration.lease)

    async def is_registered(self) -> bool:
        return await self.store.get(KEY) is not None


def played(scenario: Callable[[Scene, "asyncio.Task[None]"], Awaitable[None]]) -> None:
    """With a broker that is registered and keeps its tenure."""

    async def play() -> None:
        scene = Scene()
        await scene.registration.register(BROKER)
        running = asyncio.create_task(scene.tenure.run(scene.held))
        await scenario(scene, running)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await scene.store.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(play())


def test_ended_lease_registers_again_before_it_has_resigned() -> None:
    """It was the other way round once, and clients heard of a cluster without this broker for seconds."""

    async def scenario(scene: Scene, _: "asyncio.Task[None]") -> None:
        first = scene.tenure.lease
        await scene.end_lease()
        await asyncio.sleep(TTL_SEC)
        assert (scene.resigned(), scene.ended) == (1, 1)
        assert await scene.is_registered()
        assert scene.tenure.lease == NO_LEASE, "nothing is gained before all is given up"
        assert not scene.reconsidered()
        scene.held.may_resign.set()
        await asyncio.sleep(0.1)
        assert scene.tenure.lease not in (first, NO_LEASE)
        assert scene.reconsidered() == 1

    played(scenario)


def test_new_lease_is_renewed_while_resigning_takes_long() -> None:
    async def scenario(scene: Scene, _: "asyncio.Task[None]") -> None:
        await scene.end_lease()
        await asyncio.sleep(TTL_SEC)
        lease = scene.registration.lease
        await asyncio.sleep(20 * TTL_SEC)
        assert scene.registration.lease == lease != NO_LEASE
        assert await scene.is_registered()
        assert scene.resigned() == 1

    played(scenario)


def test_lease_that_is_ended_when_it_has_ended_is_replaced_once() -> None:
    """The fence in its journal is often found a moment after a broker has seen that its lease is gone."""

    async def scenario(scene: Scene, _: "asyncio.Task[None]") -> None:
        scene.ends_again = True
        await scene.end_lease()
        await asyncio.sleep(10 * TTL_SEC)
        assert scene.ended == 1
        scene.ends_again = False
        scene.tenure.end()
        await asyncio.sleep(TTL_SEC)
        assert scene.ended == 2

    played(scenario)


def test_lease_that_ends_while_resigning_resigns_only_once() -> None:
    async def scenario(scene: Scene, _: "asyncio.Task[None]") -> None:
        for _ending in range(3):
            await scene.end_lease()
            await asyncio.sleep(TTL_SEC)
        assert (scene.ended, scene.resigned(), scene.reconsidered()) == (3, 1, 0)
        scene.held.may_resign.set()
        await asyncio.sleep(0.1)
        assert scene.reconsidered() == 1
        assert scene.tenure.lease == scene.registration.lease != NO_LEASE
        await scene.end_lease()
        await asyncio.sleep(TTL_SEC)
        assert scene.resigned() == 2

    played(scenario)


def test_resignation_before_registration_claims_nothing_early() -> None:
    async def scenario(scene: Scene, _: "asyncio.Task[None]") -> None:
        scene.held.may_resign.set()
        await scene.end_lease()
        other = Registration(scene.store, 1)
        await other.register(BROKER)  # and is never renewed: the id is taken until that lease ends
        await asyncio.sleep(0.8)
        assert scene.resigned() == 1
        assert scene.tenure.lease == NO_LEASE
        assert not scene.reconsidered()
        await asyncio.sleep(TTL_SEC)
        assert scene.tenure.lease != NO_LEASE
        assert scene.reconsidered() == 1

    played(scenario)


@pytest.mark.parametrize("what", ["resignation", "registration"])
def test_failure_of_either_ends_the_tenure(what: str) -> None:
    async def scenario(scene: Scene, running: "asyncio.Task[None]") -> None:
        if what == "resignation":
            scene.held.problem = ValueError("a defect")
            scene.held.may_resign.set()
        await scene.store.transact([], [Delete(keys.CLUSTER)])
        await scene.end_lease()
        if what == "registration":
            scene.registration._cluster_revision = 7
        with pytest.raises(ExceptionGroup) as raised:
            await asyncio.wait_for(running, 10 * TTL_SEC)
        kind = ValueError if what == "resignation" else StartupError
        assert raised.value.subgroup(kind) is not None

    played(scenario)
