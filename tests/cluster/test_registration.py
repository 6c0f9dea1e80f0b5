"""A broker's registration: who else has the id, what the store answers, and the end of the lease."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from kafscale.cluster.cluster_record import ensure_cluster_id
from kafscale.cluster.registration import Registration
from kafscale.errors import LeaseEndedError, StartupError, StoreIndeterminateError
from kafscale.formats.topic_record import decode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, BrokerState
from kafscale.metadata.store import NO_LEASE, Compare, Delete, Operation, Put, TransactionResult
from tests.support.faults import ERRORS, Away, Fault, Fuse, FusedMetadataStore, Interruption
from tests.support.virtual_time import run_virtually

TTL_SEC = 10
BROKER = BrokerRecord(broker_id=3, host="localhost", port=9092, rack="a", state=BrokerState.STARTING)
KEY = keys.broker(3)

Scenario = Callable[[MemoryStore], Awaitable[None]]


def virtually(scenario: Scenario) -> None:
    """Play it over a store of its own, in virtual time; nothing may still run after it."""

    async def play() -> None:
        store = MemoryStore()
        await scenario(store)
        await store.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtually(play())


def seconds() -> float:
    return asyncio.get_running_loop().time()


async def registered(store: MemoryStore) -> BrokerRecord | None:
    found = await store.get(KEY)
    return None if found is None else decode_broker_record(found.key, found.value)


async def lease_of_key(store: MemoryStore) -> int:
    found = await store.get(KEY)
    return NO_LEASE if found is None else found.lease


def test_registration_ends_with_its_lease() -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        assert registration.lease == NO_LEASE
        await registration.register(BROKER)
        assert await registered(store) == BROKER
        assert await lease_of_key(store) == registration.lease != NO_LEASE
        await registration.close()
        assert await registered(store) is None
        assert registration.lease == NO_LEASE
        await registration.close()

    virtually(scenario)


def test_start_waits_until_an_earlier_run_has_timed_out() -> None:
    async def scenario(store: MemoryStore) -> None:
        await Registration(store, TTL_SEC).register(BROKER)  # and is killed
        again = Registration(store, TTL_SEC)
        await again.register(BROKER)
        assert TTL_SEC <= seconds() < TTL_SEC + 1
        assert await lease_of_key(store) == again.lease
        await again.close()

    virtually(scenario)


def test_an_id_that_a_live_broker_has_is_refused_in_the_end() -> None:
    async def scenario(store: MemoryStore) -> None:
        live = Registration(store, TTL_SEC)
        await live.register(BROKER)
        keeping = asyncio.create_task(live.keep_alive())
        other = Registration(store, TTL_SEC)
        with pytest.raises(StartupError, match=r"broker id 3 is in use by a live broker.*KAFSCALE_BROKER_ID"):
            await other.register(BROKER)
        assert 2 * TTL_SEC <= seconds() < 2 * TTL_SEC + 1
        assert await lease_of_key(store) == live.lease
        await other.close()
        assert await registered(store) == BROKER
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await live.close()

    virtually(scenario)


def test_the_store_may_be_away_for_as_long_as_it_likes() -> None:
    async def scenario(store: MemoryStore) -> None:
        faulty = FusedMetadataStore(store, Away())
        registration = Registration(faulty, TTL_SEC)
        registering = asyncio.create_task(registration.register(BROKER))
        await asyncio.sleep(100 * TTL_SEC)
        assert not registering.done()
        faulty._fuse = Fuse(0, Fault.UNAVAILABLE)
        await asyncio.wait_for(registering, 1)
        assert await registered(store) == BROKER
        await registration.close()

    virtually(scenario)


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 5))
def test_a_fault_at_any_call_of_a_registration_delays_it(call: int, fault: Fault) -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(FusedMetadataStore(store, Fuse(call, fault)), TTL_SEC)
        await registration.register(BROKER)
        await registration.announce(BrokerState.RUNNING)
        assert seconds() < 1
        assert await lease_of_key(store) == registration.lease
        found = await registered(store)
        assert found is not None
        assert found.state is BrokerState.RUNNING
        # What is told later builds on what is there.
        await registration.announce(BrokerState.STOPPING)
        found = await registered(store)
        assert found is not None
        assert found.state is BrokerState.STOPPING
        await registration.close()

    virtually(scenario)


class LateStore(MemoryStore):
    """A store whose first transaction is answered with an unknown outcome and lands later."""

    def __init__(self) -> None:
        super().__init__()
        self.landed: asyncio.Task[TransactionResult] | None = None
        self.may_land = asyncio.Event()

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if self.landed is None:
            self.landed = asyncio.create_task(self._land(compares, operations))
            raise StoreIndeterminateError("still in flight")
        return await super().transact(compares, operations)

    async def _land(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TransactionResult:
        await self.may_land.wait()
        return await super().transact(compares, operations)


@pytest.mark.parametrize("lands_after_sec", [0.0, 0.1, 0.3, 1.0, 30.0])
def test_late_registration_does_not_keep_the_broker_out(lands_after_sec: float) -> None:
    async def play() -> None:
        store = LateStore()
        registration = Registration(store, TTL_SEC)
        asyncio.get_running_loop().call_later(lands_after_sec, store.may_land.set)
        await registration.register(BROKER)
        keeping = asyncio.create_task(registration.keep_alive())
        await store.may_land.wait()
        assert store.landed is not None
        await asyncio.gather(store.landed, return_exceptions=True)
        assert await lease_of_key(store) == registration.lease
        assert await registered(store) == BROKER
        await registration.announce(BrokerState.RUNNING)
        found = await registered(store)
        assert found is not None
        assert found.state is BrokerState.RUNNING
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await store.close()

    run_virtually(play())


def test_late_registration_does_not_come_back_after_the_end() -> None:
    """It had stayed for the time of its lease: clients and other brokers took the broker for running."""

    async def play() -> None:
        store = LateStore()
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        await registration.close()
        store.may_land.set()
        assert store.landed is not None
        await asyncio.gather(store.landed, return_exceptions=True)
        assert await registered(store) is None
        await store.close()

    run_virtually(play())


# --- the outcome of the broker


def test_what_is_announced_is_seen_and_stays_bound_to_the_lease() -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        for state in (BrokerState.RUNNING, BrokerState.STOPPING):
            await registration.announce(state)
            found = await registered(store)
            assert found is not None
            assert (found.state, found.host, found.rack) == (state, "localhost", "a")
            assert await lease_of_key(store) == registration.lease
        await registration.close()
        assert await registered(store) is None

    virtually(scenario)


def test_announcement_after_the_lease_goes_with_the_next_one() -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        await store.revoke_lease(registration.lease)
        await registration.announce(BrokerState.RUNNING)
        assert await registered(store) is None
        await registration.register_again()
        found = await registered(store)
        assert found is not None
        assert found.state is BrokerState.RUNNING

    virtually(scenario)


def test_another_broker_with_this_id_is_not_overwritten() -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        await store.revoke_lease(registration.lease)
        other = Registration(store, TTL_SEC)
        await other.register(BROKER)
        await registration.announce(BrokerState.STOPPING)
        assert await registered(store) == BROKER

    virtually(scenario)


@pytest.mark.parametrize("call", range(1, 4))
def test_announcement_while_registering_again_is_kept(call: int) -> None:
    """Right before each of the calls that the registration makes."""

    async def scenario(store: MemoryStore) -> None:
        faulty = FusedMetadataStore(store, Fuse(0, Fault.UNAVAILABLE))
        registration = Registration(faulty, TTL_SEC)
        await registration.register(BROKER)
        await store.revoke_lease(registration.lease)
        announcing: list[asyncio.Task[None]] = []

        async def announce() -> None:
            announcing.append(asyncio.create_task(registration.announce(BrokerState.RUNNING)))
            await asyncio.sleep(0.1)

        faulty._fuse = Interruption(call, announce)
        await registration.register_again()
        await asyncio.gather(*announcing)
        found = await registered(store)
        assert found is not None
        assert found.state is (BrokerState.RUNNING if announcing else BrokerState.STARTING)
        assert bool(announcing) == (call <= 2)

    virtually(scenario)


# --- the lease


class LandsLater(MemoryStore):
    """The first registration is not answered, and lands when the next attempt has been sent."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[tuple[Sequence[Compare], Sequence[Operation]]] = []
        self.attempts = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        self.attempts += 1
        if self.attempts == 1:
            self.late.append((compares, operations))
            raise StoreIndeterminateError("still in flight")
        if self.late:
            await super().transact(*self.late.pop())
        return await super().transact(compares, operations)


def test_an_earlier_attempt_that_lands_late_is_the_registration() -> None:
    async def play() -> None:
        store = LandsLater()
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        assert seconds() < 1, "it did not wait for its own lease to end"
        assert registration.lease == await lease_of_key(store) != NO_LEASE
        await registration.close()
        assert await registered(store) is None
        await store.close()

    run_virtually(play())


def test_no_lease_for_claims_until_registered_again() -> None:
    """Nobody renews it before that, and what was gained under it would go without the broker's hearing of it."""

    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        lease = registration.lease
        keeping = asyncio.create_task(registration.keep_alive())
        await store.revoke_lease(lease)
        await keeping
        another = Registration(store, 1)
        await another.register(BROKER)
        again = asyncio.create_task(registration.register_again())
        await asyncio.sleep(0.5)
        assert registration.lease == NO_LEASE
        await again
        assert registration.lease not in (NO_LEASE, lease)
        await registration.close()

    virtually(scenario)


def test_the_lease_is_kept_and_its_end_is_reported() -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        keeping = asyncio.create_task(registration.keep_alive())
        await asyncio.sleep(100 * TTL_SEC)
        assert not keeping.done()
        assert await registered(store) == BROKER
        lease = registration.lease
        await store.revoke_lease(lease)
        await asyncio.wait_for(keeping, TTL_SEC / 2)
        assert registration.lease == NO_LEASE
        with pytest.raises(LeaseEndedError):
            await store.transact([], [Put("k", b"v", lease)])

    virtually(scenario)


def test_unanswered_renewal_is_retried_before_the_lease_ends() -> None:
    class Forgetful(MemoryStore):
        renewals = 0

        async def renew_lease(self, lease: int) -> bool:
            self.renewals += 1
            if self.renewals % 3:
                raise StoreIndeterminateError("no answer")
            return await super().renew_lease(lease)

    async def play() -> None:
        store = Forgetful()
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        keeping = asyncio.create_task(registration.keep_alive())
        await asyncio.sleep(10 * TTL_SEC)
        assert await registered(store) == BROKER
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await store.close()

    run_virtually(play())


def test_ended_lease_is_replaced_by_another_registration() -> None:
    async def scenario(store: MemoryStore) -> None:
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        await registration.announce(BrokerState.RUNNING)
        first = registration.lease
        await asyncio.sleep(TTL_SEC + 1)  # the process was stopped for so long
        assert await registered(store) is None
        await asyncio.wait_for(registration.keep_alive(), TTL_SEC)
        await registration.register_again()
        assert registration.lease != first
        found = await registered(store)
        assert found is not None
        assert found.state is BrokerState.RUNNING
        assert await lease_of_key(store) == registration.lease

    virtually(scenario)


@pytest.mark.parametrize("is_rebuilt", [False, True])
def test_a_store_that_was_emptied_meanwhile_is_not_registered_in(is_rebuilt: bool) -> None:
    """Its registration would stand in the way of a rebuild, and what it knows is of another life of the store."""

    async def scenario(store: MemoryStore) -> None:
        await ensure_cluster_id(store)
        registration = Registration(store, TTL_SEC)
        await registration.register(BROKER)
        found = await store.get(keys.CLUSTER)
        assert found is not None
        await store.revoke_lease(registration.lease)
        await store.transact([], [Delete(keys.CLUSTER)])
        if is_rebuilt:  # with the same id, after the broker was cut off for a while
            await store.transact([], [Put(keys.CLUSTER, found.value)])
        await asyncio.wait_for(registration.keep_alive(), TTL_SEC)
        with pytest.raises(StartupError, match=r"emptied or rebuilt.*kafscale recover"):
            await registration.register_again()
        assert await registered(store) is None
        await registration.close()
        if is_rebuilt:
            started_again = Registration(store, TTL_SEC)
            await started_again.register(BROKER)
            assert await registered(store) == BROKER
            await started_again.close()

    virtually(scenario)
