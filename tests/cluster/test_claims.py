"""Claims and releases: only of unowned items, in transactions that the store takes, whatever it answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.cluster.claim_attempt import MAX_TRANSACTION_BYTES, Claim, Owned
from kafscale.cluster.claims import Claims
from kafscale.errors import CorruptDataError, LeaseEndedError, StoreIndeterminateError
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import (
    NO_LEASE,
    Compare,
    Delete,
    KeyValue,
    MetadataStore,
    Operation,
    Put,
    TransactionResult,
)
from tests.support.faults import ERRORS, CountingStore, Fault, Fuse, FusedMetadataStore, Interruption
from tests.support.in_process_broker import until
from tests.support.nightly import by_day
from tests.support.virtual_time import run_virtually

BROKEN = b"broken"
GONE = b"gone"


class Watched(MemoryStore):
    """Notes the transactions that it is asked for."""

    def __init__(self, max_operations: int = 128) -> None:
        super().__init__(max_operations=max_operations)
        self.asked: list[tuple[Sequence[Compare], Sequence[Operation]]] = []

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        self.asked.append((compares, operations))
        return await super().transact(compares, operations)

    @property
    def attempts(self) -> list[Sequence[Operation]]:
        """The operations of the transactions that change something."""
        return [operations for _, operations in self.asked if operations]


def claim(number: int) -> Claim:
    return Claim(f"record/{number}", f"holder/{number}")


def claims(count: int) -> list[Claim]:
    return [claim(number) for number in range(count)]


def next_record(key: str, value: bytes | None, ground: KeyValue | None) -> tuple[bytes, bytes] | None:
    """A record is its epoch and what else is in it; one that is not there starts at 0."""
    if value == BROKEN:
        raise CorruptDataError(key, "is broken")
    if value == GONE:
        return None
    epoch, _, rest = (value or b"-1 ").partition(b" ")
    return b"%d %s" % (int(epoch) + 1, rest), b"holder"


class Broker:
    """A broker that claims under a lease of its own."""

    def __init__(self, store: MetadataStore, lease: int) -> None:
        self.store = store
        self.lease = lease
        self.claims = Claims(store, lambda: self.lease, next_record, retry_delay_sec=0.01)

    @classmethod
    async def on(cls, store: MetadataStore) -> "Broker":
        return cls(store, await store.grant_lease(3600))

    async def gain(
        self, wanted: Iterable[Claim], known: dict[str, KeyValue] | None = None
    ) -> dict[str, Owned]:
        gained = await asyncio.wait_for(self.claims.claim(wanted, known), 60)
        by_key = {holding.claim.record_key: holding for holding in gained}
        assert len(by_key) == len(gained), "something was gained twice"
        return by_key


@pytest.fixture
async def store() -> AsyncIterator[Watched]:
    store = Watched(max_operations=8)
    yield store
    await store.close()


async def check_held(store: MemoryStore, gained: dict[str, Owned], broker: Broker) -> None:
    """Every holding is as the store has it, both keys from one transaction."""
    for key, holding in gained.items():
        record = await MemoryStore.get(store, key)
        holder = await MemoryStore.get(store, holding.claim.owner_key)
        assert record is not None
        assert holder is not None
        assert (record.value, record.mod_revision) == (holding.record, holding.revision)
        assert (holder.value, holder.mod_revision, holder.lease) == (
            b"holder",
            holding.revision,
            broker.lease,
        )


async def held_by(store: MemoryStore, broker: Broker) -> set[str]:
    snapshot = await MemoryStore.range(store, "holder/")
    return {item.key for item in snapshot.items if item.lease == broker.lease}


def holders(count: int) -> set[str]:
    return {claim(number).owner_key for number in range(count)}


# --- claims


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["problem"] for record in caplog.records if record.levelname == "ERROR"]


async def test_an_unowned_item_is_claimed_under_its_next_epoch(store: Watched) -> None:
    first, second = await Broker.on(store), await Broker.on(store)
    gained = await first.gain(claims(10))
    assert {holding.record for holding in gained.values()} == {b"0 "}
    await check_held(store, gained, first)
    await store.revoke_lease(first.lease)
    gained = await second.gain(claims(10))
    assert {holding.record for holding in gained.values()} == {b"1 "}
    await check_held(store, gained, second)


async def test_an_item_that_another_broker_owns_is_left_alone(store: Watched) -> None:
    first, second = await Broker.on(store), await Broker.on(store)
    theirs = await first.gain(claims(10)[::3])
    gained = await second.gain(claims(10))
    assert len(gained) == 6
    await check_held(store, gained, second)
    await check_held(store, theirs, first)
    assert await second.gain(claims(10)[::3]) == {}
    assert await second.gain([]) == {}


async def test_an_item_that_must_not_be_owned_is_skipped(store: Watched) -> None:
    await store.transact([], [Put(claim(1).record_key, GONE)])
    broker = await Broker.on(store)
    assert list(await broker.gain(claims(3))) == ["record/0", "record/2"]
    assert await store.get("holder/1") is None


async def test_a_bad_record_is_named_and_the_others_are_claimed(
    store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    await store.transact([], [Put(claim(1).record_key, BROKEN)])
    broker = await Broker.on(store)
    gained = await broker.gain(claims(4))
    assert list(gained) == ["record/0", "record/2", "record/3"]
    await check_held(store, gained, broker)
    for _ in range(3):
        assert await broker.gain(claims(4)) == {}
    assert errors_of(caplog) == ["record/1: is broken"], "told once"
    found = await store.get("record/1")
    assert found is not None
    assert found.value == BROKEN
    assert await store.get("holder/1") is None


async def test_a_record_replaced_meanwhile_is_not_reported_bad(
    store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """It cannot be read as it was known, and another broker has claimed the item by then."""
    await store.transact([], [Put(claim(1).record_key, BROKEN)])
    first, second = await Broker.on(store), await Broker.on(store)
    known = await second.claims.read(claims(3))
    await store.transact([], [Put(claim(1).record_key, b"7 ")])
    theirs = await first.gain([claim(1)])
    assert list(await second.gain(claims(3), known)) == ["record/0", "record/2"]
    assert errors_of(caplog) == []
    await check_held(store, theirs, first)


async def test_a_bad_record_is_reported_once_a_store_answers(
    store: Watched, caplog: pytest.LogCaptureFixture
) -> None:
    """The claims that succeeded do not wait for the second look at the record."""
    await store.transact([], [Put(claim(1).record_key, BROKEN)])
    # The first call reads the records, the second claims those that can be read, the third looks again.
    fuse = Fuse(3, ERRORS[0])
    broker = Broker(FusedMetadataStore(store, fuse), await store.grant_lease(3600))
    assert list(await broker.gain(claims(2))) == ["record/0"]
    assert errors_of(caplog) == []
    assert await broker.gain(claims(2)) == {}
    assert errors_of(caplog) == ["record/1: is broken"]


async def test_a_broker_whose_lease_has_ended_claims_nothing(store: Watched) -> None:
    broker = await Broker.on(store)
    await store.revoke_lease(broker.lease)
    with pytest.raises(LeaseEndedError):
        await broker.gain(claims(20))
    assert (await store.range("")).items == ()


async def test_a_broker_without_a_lease_claims_nothing(store: Watched) -> None:
    """An owner key that is bound to no lease would outlive its owner."""
    with pytest.raises(LeaseEndedError):
        await Broker(store, NO_LEASE).gain(claims(2))
    assert (await store.range("")).items == ()


async def test_a_claim_answered_after_its_lease_has_ended_fails(store: Watched) -> None:
    """The answer took longer than the lease: the keys that it names are gone."""
    broker = await Broker.on(store)
    transact = store.transact

    async def slow(compares: Sequence[Compare], operations: Sequence[Operation]) -> TransactionResult:
        result = await transact(compares, operations)
        await store.revoke_lease(broker.lease)
        broker.lease = await store.grant_lease(3600)
        return result

    store.transact = slow  # type: ignore[method-assign]
    with pytest.raises(LeaseEndedError):
        await broker.gain(claims(2))
    assert await held_by(store, broker) == set()


async def test_an_item_that_this_broker_owns_is_not_claimed_again(store: Watched) -> None:
    """A write of its former term may still be in flight: the next epoch must come between."""
    broker = await Broker.on(store)
    before = await broker.gain(claims(2))
    assert await broker.gain(claims(2)) == {}
    await broker.claims.release_stale(["holder/0", "holder/1"])
    again = await broker.gain(claims(2))
    assert {holding.record for holding in again.values()} == {b"1 "}
    assert {holding.revision for holding in again.values()} != {
        holding.revision for holding in before.values()
    }


class SlowFirst(MemoryStore):
    """The first claim takes effect at once and is answered when it may be; the others begin later."""

    def __init__(self) -> None:
        super().__init__(max_operations=8)
        self.held = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_begin = asyncio.Event()

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if not operations:
            return await super().transact(compares, operations)
        if self.held.is_set():
            await self.may_begin.wait()
            return await super().transact(compares, operations)
        self.held.set()
        result = await super().transact(compares, operations)
        await self.may_answer.wait()
        return result


async def test_nothing_is_claimed_once_the_end_of_the_lease_is_raised() -> None:
    """A broker that releases everything on that error would miss a later election."""
    store = SlowFirst()
    broker = await Broker.on(store)
    told: list[Owned] = []
    gaining = asyncio.create_task(broker.claims.claim(claims(12), notify=told.append))
    await store.held.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    await store.revoke_lease(broker.lease)
    store.may_begin.set()
    for _ in range(20):
        await asyncio.sleep(0)
    assert not gaining.done(), "an attempt is in flight yet"
    store.may_answer.set()
    with pytest.raises(LeaseEndedError):
        await gaining
    assert len(told) == 4
    await asyncio.sleep(0.05)
    assert len(told) == 4
    await store.close()


# --- how it is asked for


@pytest.mark.parametrize("max_operations", [4, 5, 8, 128])
async def test_transactions_are_as_large_as_the_store_takes(max_operations: int) -> None:
    store = Watched(max_operations)
    gained = await (await Broker.on(store)).gain(claims(100))
    assert len(gained) == 100
    each = max_operations // 2
    assert sorted(map(len, store.attempts)) == sorted(
        2 * min(each, 100 - start) for start in range(0, 100, each)
    )
    # One to read them, one to claim them.
    assert len(store.asked) == 2 * -(-100 // each)
    await store.close()


async def test_transactions_are_bounded_in_bytes() -> None:
    store = Watched(max_operations=128)
    sizes = [MAX_TRANSACTION_BYTES // 3] * 8 + [2 * MAX_TRANSACTION_BYTES, 10, 10]
    for number, size in enumerate(sizes):
        await store.transact([], [Put(claim(number).record_key, b"4 " + bytes(size))])
    store.asked.clear()
    broker = await Broker.on(store)
    gained = await broker.gain(claims(len(sizes)))
    assert len(gained) == len(sizes)
    await check_held(store, gained, broker)
    written = [sum(len(one.value) for one in attempt if isinstance(one, Put)) for attempt in store.attempts]
    oversized = [size for size in written if size > MAX_TRANSACTION_BYTES]
    assert len(oversized) == 1
    assert oversized[0] < 2 * MAX_TRANSACTION_BYTES + 100
    assert [len(attempt) // 2 for attempt in store.attempts] == [2, 2, 2, 2, 1, 2]
    await store.close()


async def test_records_that_are_known_are_not_read_again(store: Watched) -> None:
    await (await Broker.on(store)).gain([claim(1)])
    await store.transact([], [Put(claim(number).record_key, b"7 ") for number in (0, 2)])
    known = {item.key: item for item in (await store.range("record/")).items}
    counting = CountingStore(store)
    broker = await Broker.on(counting)
    gained = await broker.gain(claims(3), known)
    assert {key: holding.record for key, holding in gained.items()} == {"record/0": b"8 ", "record/2": b"8 "}
    await check_held(store, gained, broker)
    # The other broker's item was not known: the first attempt fails and reads it.
    assert counting.calls == {"transact": 2}


async def test_what_was_known_and_is_out_of_date_costs_an_attempt(store: Watched) -> None:
    await store.transact([], [Put(claim(0).record_key, b"7 ")])
    known = {item.key: item for item in (await store.range("record/")).items}
    await store.transact([], [Put(claim(0).record_key, b"9 ")])
    broker = await Broker.on(store)
    gained = await broker.gain(claims(1), known)
    assert gained["record/0"].record == b"10 "
    await check_held(store, gained, broker)


# --- whatever the store answers


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 8))
async def test_a_fault_at_any_call_costs_nothing_but_time(store: Watched, call: int, fault: Fault) -> None:
    other = await Broker.on(store)
    theirs = await other.gain([claim(3)])
    broker = await Broker.on(FusedMetadataStore(store, Fuse(call, fault)))
    gained = await broker.gain(claims(10))
    assert len(gained) == 9
    assert {holding.record for holding in gained.values()} == {b"0 "}, "an epoch was left out"
    await check_held(store, gained, broker)
    await check_held(store, theirs, other)


class Late(MemoryStore):
    """The first transaction that changes something has an unknown outcome, and lands when it may."""

    def __init__(self) -> None:
        super().__init__(max_operations=8)
        self.may_land = asyncio.Event()
        self.landing: asyncio.Task[TransactionResult] | None = None

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if operations and self.landing is None:
            self.landing = asyncio.create_task(self._land(compares, operations))
            raise StoreIndeterminateError("still in flight")
        return await super().transact(compares, operations)

    async def _land(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> TransactionResult:
        await self.may_land.wait()
        return await super().transact(compares, operations)


@pytest.mark.parametrize("lands_after_sec", [0.0, 0.005, 0.01, 0.011, 5.0])
def test_a_late_attempt_is_recognised_or_has_no_effect(lands_after_sec: float) -> None:
    async def play() -> None:
        store = Late()
        broker = await Broker.on(store)
        asyncio.get_running_loop().call_later(lands_after_sec, store.may_land.set)
        gained = await broker.gain(claims(4))
        assert store.landing is not None
        await store.landing
        assert len(gained) == 4
        assert {holding.record for holding in gained.values()} == {b"0 "}
        await check_held(store, gained, broker)
        await store.close()

    run_virtually(play())


@pytest.mark.parametrize("call", range(1, 5))
async def test_an_item_that_another_claims_meanwhile_is_theirs(store: Watched, call: int) -> None:
    """Right before each call of a claim of eight items, of which another broker owns one from the start."""
    other = await Broker.on(store)
    theirs = await other.gain([claim(0)])

    async def gain_more() -> None:
        theirs.update(await other.gain([claim(1), claim(5)]))

    broker = await Broker.on(FusedMetadataStore(store, Interruption(call, gain_more)))
    gained = await broker.gain(claims(8))
    assert set(gained) | set(theirs) == {claim(number).record_key for number in range(8)}
    assert not set(gained) & set(theirs)
    await check_held(store, gained, broker)
    await check_held(store, theirs, other)


async def test_a_second_attempt_skips_items_that_others_own(store: Watched) -> None:
    other = await Broker.on(store)
    await other.gain([claim(0)])
    await store.transact([], [Put(claim(1).record_key, BROKEN)])

    async def gain_one_more() -> None:
        await other.gain([claim(2)])

    broker = await Broker.on(FusedMetadataStore(store, Interruption(2, gain_one_more)))
    store.asked.clear()
    assert list(await broker.gain(claims(4))) == ["record/3"]
    wanted = [
        [one.key for one in operations if one.key.startswith("record")]
        for operations in store.attempts
        if all(not isinstance(one, Put) or one.lease in (0, broker.lease) for one in operations)
    ]
    assert wanted == [["record/2", "record/3"], ["record/3"]]


@settings(max_examples=by_day(30, by_night=600), deadline=None)
@given(
    wanted=st.lists(st.sets(st.integers(0, 9), min_size=1), min_size=2, max_size=5),
    delays=st.lists(st.integers(0, 6), min_size=5, max_size=5),
)
def test_brokers_that_claim_at_once_share_all_items(wanted: list[set[int]], delays: list[int]) -> None:
    async def play() -> None:
        store = Watched(max_operations=6)
        brokers = [await Broker.on(store) for _ in wanted]

        async def gain(broker: Broker, numbers: set[int], delay: int) -> dict[str, Owned]:
            for _ in range(delay):
                await asyncio.sleep(0)
            return await broker.gain(map(claim, sorted(numbers)))

        gained = await asyncio.gather(*map(gain, brokers, wanted, delays))
        keys = [key for one in gained for key in one]
        assert sorted(keys) == sorted(claim(number).record_key for number in set().union(*wanted))
        for broker, one in zip(brokers, gained, strict=True):
            await check_held(store, one, broker)
        await store.close()

    run_virtually(play())


# --- giving up


async def test_released_items_can_be_claimed_by_others(store: Watched) -> None:
    first, second = await Broker.on(store), await Broker.on(store)
    gained = await first.gain(claims(20))
    given_up = {holding.claim.owner_key: holding.revision for holding in list(gained.values())[:13]}
    await first.claims.release(given_up)
    assert await held_by(store, first) == holders(20) - set(given_up)
    assert len(await second.gain(claims(20))) == 13
    await first.claims.release({})


async def test_a_release_of_an_old_revision_keeps_the_newer_owner(store: Watched) -> None:
    first, second = await Broker.on(store), await Broker.on(store)
    gained = await first.gain(claims(6))
    revisions = {holding.claim.owner_key: holding.revision for holding in gained.values()}
    await first.claims.release(dict(list(revisions.items())[:2]))
    await second.gain([claim(0)])
    again = await first.gain([claim(1)])  # under its next epoch
    await first.claims.release(revisions)
    assert await held_by(store, first) == {"holder/1"}
    assert await held_by(store, second) == {"holder/0"}
    await check_held(store, again, first)


Way = Callable[[Broker, dict[str, Owned]], Awaitable[None]]


async def by_revision(broker: Broker, gained: dict[str, Owned]) -> None:
    await broker.claims.release({one.claim.owner_key: one.revision for one in gained.values()})


async def as_stale(broker: Broker, gained: dict[str, Owned]) -> None:
    await broker.claims.release_stale(one.claim.owner_key for one in gained.values())


@pytest.mark.parametrize("fault", ERRORS)
@pytest.mark.parametrize("call", range(1, 5))
@pytest.mark.parametrize("give_up", [by_revision, as_stale])
async def test_a_fault_at_any_call_of_giving_up_costs_nothing_but_time(
    store: Watched, call: int, fault: Fault, give_up: Way
) -> None:
    broker = await Broker.on(store)
    gained = await broker.gain(claims(20))
    broker.claims = Broker(FusedMetadataStore(store, Fuse(call, fault)), broker.lease).claims
    await asyncio.wait_for(give_up(broker, dict(list(gained.items())[:15])), 10)
    assert await held_by(store, broker) == {claim(number).owner_key for number in range(15, 20)}


async def test_stale_claims_are_bound_to_ones_own_lease(store: Watched) -> None:
    first, second = await Broker.on(store), await Broker.on(store)
    await first.gain(claims(12))
    await second.gain([claim(12), claim(13)])
    await second.claims.release_stale(claim(number).owner_key for number in range(20))
    assert await held_by(store, first) == holders(12)
    assert await held_by(store, second) == set()
    await first.claims.release_stale(claim(number).owner_key for number in range(11))
    assert await held_by(store, first) == {"holder/11"}


async def test_a_stale_claim_that_another_took_meanwhile_stays_theirs(store: Watched) -> None:
    first, second = await Broker.on(store), await Broker.on(store)
    await first.gain(claims(2))

    async def change_hands() -> None:
        await store.transact([], [Delete("holder/0")])
        await second.gain([claim(0)])

    first.claims = Broker(FusedMetadataStore(store, Interruption(2, change_hands)), first.lease).claims
    await first.claims.release_stale(claim(number).owner_key for number in range(2))
    assert await held_by(store, second) == {"holder/0"}
    assert await held_by(store, first) == set()


class Slow(MemoryStore):
    """Takes its time for the transactions that put one key."""

    def __init__(self, slow_key: str) -> None:
        super().__init__(max_operations=4)
        self.may_go_on = asyncio.Event()
        self._slow_key = slow_key

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if any(operation.key == self._slow_key for operation in operations):
            await self.may_go_on.wait()
        return await super().transact(compares, operations)


async def test_claimed_items_are_notified_before_the_rest_is_claimed() -> None:
    """Otherwise others know of a leader that does not know that it leads."""
    store = Slow(claim(3).record_key)
    lease = await store.grant_lease(60)
    told: list[Claim] = []
    gaining = asyncio.create_task(
        Claims(store, lambda: lease, next_record, 0.01).claim(
            claims(4), notify=lambda holding: told.append(holding.claim)
        )
    )
    await until(lambda: len(told) == 2, "the first part is gained")
    assert told == claims(2)
    assert not gaining.done()
    store.may_go_on.set()
    assert [holding.claim for holding in await gaining] == claims(4)
    assert told == claims(4)
    await store.close()
