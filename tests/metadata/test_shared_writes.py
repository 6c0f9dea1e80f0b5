"""Writes share store transactions, and each gets the answer that it would have got alone."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from kafscale.errors import StoreError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.shared_writes import SharedWrites
from kafscale.metadata.store import ABSENT, Compare, Delete, Operation, Put, TransactionResult
from kafscale.metadata.write_batch import Write
from tests.support.waiting import PATIENCE_SEC


class GatedStore(MemoryStore):
    """Transactions wait at a gate, fail there as the test says, and are counted."""

    def __init__(self) -> None:
        super().__init__(max_operations=8)
        self.arrived: list[tuple[str, ...]] = []
        self.largest = 8
        self._gates: list[asyncio.Future[None]] = []
        self._came = asyncio.Event()

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if len(operations) > self.largest:
            raise ValueError("etcd does not take requests of this size")
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._gates.append(gate)
        self.arrived.append(tuple(operation.key for operation in operations))
        self._came.set()
        await gate
        return await super().transact(compares, operations)

    def let_through(self, number: int, failure: BaseException | None = None) -> None:
        """The transaction that came as this one."""
        if failure is None:
            self._gates[number].set_result(None)
        else:
            self._gates[number].set_exception(failure)

    async def have_arrived(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SEC):
            while len(self.arrived) < count:
                self._came.clear()
                await self._came.wait()

    async def all_but_the_first_share_one(self) -> None:
        """The first transaction goes through; what came meanwhile has arrived as the second."""
        await self.have_arrived(1)
        self.let_through(0)
        await self.have_arrived(2)


@pytest.fixture
async def store() -> AsyncIterator[GatedStore]:
    opened = GatedStore()
    yield opened
    await opened.close()


@pytest.fixture
async def shared(store: GatedStore) -> AsyncIterator[SharedWrites]:
    writes = SharedWrites(store, transactions_at_once=1)
    yield writes
    await writes.close()


async def create(store: MemoryStore, key: str) -> int:
    return (await MemoryStore.transact(store, [], [Put(key, b"old")])).revision


def begin(
    shared: SharedWrites, key: str, revision: int, value: bytes = b"new"
) -> asyncio.Task[TransactionResult]:
    return asyncio.create_task(shared.write(Write((Compare(key, revision),), (Put(key, value),))))


async def value_of(store: MemoryStore, key: str) -> bytes:
    found = await store.get(key)
    assert found is not None
    return found.value


class TestSharing:
    async def test_below_the_limit_each_write_starts_at_once(self, store: GatedStore) -> None:
        shared = SharedWrites(store, transactions_at_once=2)
        revisions = [await create(store, key) for key in "abcd"]
        tasks = [begin(shared, key, revision) for key, revision in zip("abcd", revisions, strict=True)]
        await store.have_arrived(2)
        assert store.arrived == [("a",), ("b",)]
        store.let_through(1)
        await store.have_arrived(3)
        assert store.arrived[2] == ("c", "d")
        store.let_through(0)
        store.let_through(2)
        results = await asyncio.gather(*tasks)
        assert all(result.succeeded for result in results)
        for key, result in zip("abcd", results, strict=True):
            found = await store.get(key)
            assert found is not None
            assert (found.value, found.mod_revision) == (b"new", result.revision)
        await shared.close()

    async def test_what_is_too_much_for_one_goes_in_several(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        names = [f"k{number:02}" for number in range(1 + 8 + 3)]
        tasks = [begin(shared, name, await create(store, name)) for name in names]
        for number in range(3):
            await store.have_arrived(number + 1)
            store.let_through(number)
        assert all(result.succeeded for result in await asyncio.gather(*tasks))
        assert store.arrived == [tuple(names[:1]), tuple(names[1:9]), tuple(names[9:])]

    async def test_two_of_one_key_never_share(self, store: GatedStore, shared: SharedWrites) -> None:
        """A partition that was lost and claimed again, while a write of its former leader is still in flight."""
        a, b = await create(store, "a"), await create(store, "b")
        tasks = [begin(shared, "b", b), begin(shared, "a", a), begin(shared, "a", a, b"other")]
        for number in range(3):
            await store.have_arrived(number + 1)
            store.let_through(number)
        results = await asyncio.gather(*tasks)
        assert [result.succeeded for result in results] == [True, True, False]
        assert await value_of(store, "a") == b"new"

    async def test_a_write_of_several_keys_goes_as_a_whole(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        def create(name: str) -> Write:
            operations = tuple(Put(f"{name}{number}", b"new") for number in range(3))
            return Write((Compare(f"{name}0", ABSENT), Compare("owner", ABSENT)), operations)

        tasks = [asyncio.create_task(shared.write(create(name))) for name in "abcd"]
        for number in range(3):
            await store.have_arrived(number + 1)
            store.let_through(number)
        assert all(result.succeeded for result in await asyncio.gather(*tasks))
        assert [len(keys) for keys in store.arrived] == [3, 6, 3], "eight operations are the limit"

    async def test_a_compare_of_several_writes_is_made_once(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        """Its answer is that of each, in the order of its own compares."""
        owner = await create(store, "owner")

        def owned(name: str, revision: int) -> Write:
            return Write((Compare(name, ABSENT), Compare("owner", revision)), (Put(name, b"new"),))

        writes = [owned("a", owner), owned("b", owner), owned("c", owner), owned("d", owner - 1)]
        tasks = [asyncio.create_task(shared.write(write)) for write in writes]
        await store.all_but_the_first_share_one()
        store.let_through(1)
        await store.have_arrived(3)
        store.let_through(2)
        results = await asyncio.gather(*tasks)
        assert [one.succeeded for one in results] == [True, True, True, False]
        absent, found = results[3].found
        assert absent is None
        assert found is not None and found.mod_revision == owner

    async def test_a_deletion_waits_for_a_write_that_needs_its_key(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        owner = await create(store, "owner")
        needing = Write((Compare("owner", owner),), (Put("b", b"new"),))
        deleting = Write((), (Delete("owner"),))
        tasks = [
            begin(shared, "a", ABSENT),
            *(asyncio.create_task(shared.write(one)) for one in (needing, deleting, needing)),
        ]
        for number in range(4):
            await store.have_arrived(number + 1)
            store.let_through(number)
        assert [one.succeeded for one in await asyncio.gather(*tasks)] == [True, True, True, False]
        assert store.arrived == [("a",), ("b",), ("owner",), ("b",)]


class TestOutcomes:
    async def test_the_failed_condition_of_one_is_its_own(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        revisions = {key: await create(store, key) for key in "abcd"}
        revisions["c"] -= 1
        tasks = {key: begin(shared, key, revision) for key, revision in revisions.items()}
        await store.all_but_the_first_share_one()
        store.let_through(1)
        refused = await tasks["c"]
        assert not refused.succeeded
        assert [one and one.value for one in refused.found] == [b"old"]
        await store.have_arrived(3)
        assert store.arrived == [("a",), ("b", "c", "d"), ("b", "d")]
        assert not tasks["b"].done()
        store.let_through(2)
        assert (await tasks["b"]).succeeded
        assert (await tasks["d"]).succeeded
        assert await value_of(store, "c") == b"old"
        await tasks["a"]

    @pytest.mark.parametrize(
        "failure", [StoreUnavailableError("away"), StoreIndeterminateError("lost"), KeyError("a defect")]
    )
    async def test_a_failure_of_the_transaction_is_that_of_all(
        self, store: GatedStore, shared: SharedWrites, failure: Exception
    ) -> None:
        tasks = [begin(shared, key, await create(store, key)) for key in "abc"]
        await store.all_but_the_first_share_one()
        store.let_through(1, failure)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[1:]] == [type(failure)] * 2
        later = begin(shared, "b", (await create(store, "b")))
        await store.have_arrived(3)
        store.let_through(2)
        assert (await later).succeeded

    async def test_a_failure_of_one_alone_lets_the_others_go(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        tasks = [begin(shared, key, await create(store, key)) for key in "ab"]
        await store.have_arrived(1)
        store.let_through(0, StoreIndeterminateError("lost"))
        await store.have_arrived(2)
        store.let_through(1)
        with pytest.raises(StoreIndeterminateError):
            await tasks[0]
        assert (await tasks[1]).succeeded

    async def test_what_is_too_large_together_goes_apart(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        store.largest = 2
        tasks = [begin(shared, key, await create(store, key)) for key in "abcdef"]
        for number in range(4):
            await store.have_arrived(number + 1)
            store.let_through(number)
        assert all(result.succeeded for result in await asyncio.gather(*tasks))
        assert store.arrived == [("a",), ("b", "c"), ("d",), ("e", "f")]

    async def test_only_the_write_that_is_too_large_fails(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        class Small(GatedStore):
            async def transact(
                self, compares: Sequence[Compare], operations: Sequence[Operation]
            ) -> TransactionResult:
                if any(isinstance(one, Put) and len(one.value) > 100 for one in operations):
                    raise ValueError("too large")
                return await super().transact(compares, operations)

        small = Small()
        apart = SharedWrites(small, transactions_at_once=1)
        revisions = [await create(small, key) for key in "abc"]
        tasks = [
            begin(apart, "a", revisions[0]),
            begin(apart, "b", revisions[1], bytes(101)),
            begin(apart, "c", revisions[2]),
        ]
        for number in range(2):
            await small.have_arrived(number + 1)
            small.let_through(number)
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(outcomes[1], ValueError)
        assert [isinstance(one, TransactionResult) and one.succeeded for one in outcomes] == [
            True,
            False,
            True,
        ]
        await apart.close()
        await small.close()


class TestCancellation:
    async def test_a_cancelled_waiter_is_not_written(self, store: GatedStore, shared: SharedWrites) -> None:
        tasks = [begin(shared, key, await create(store, key)) for key in "abc"]
        await store.have_arrived(1)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        store.let_through(0)
        await store.have_arrived(2)
        store.let_through(1)
        assert (await tasks[2]).succeeded
        assert store.arrived == [("a",), ("c",)]
        await tasks[0]

    async def test_cancelling_one_in_flight_cancels_no_other(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        tasks = [begin(shared, key, await create(store, key)) for key in "abc"]
        await store.all_but_the_first_share_one()
        tasks[1].cancel()
        await asyncio.wait([tasks[1]])
        store.let_through(1)
        assert (await tasks[2]).succeeded
        assert await value_of(store, "b") == b"new", "it is in doubt, and here it was written"
        await tasks[0]

    async def test_it_is_not_sent_again_with_the_rest(self, store: GatedStore, shared: SharedWrites) -> None:
        revisions = {key: await create(store, key) for key in "abcd"}
        revisions["d"] -= 1
        tasks = {key: begin(shared, key, revision) for key, revision in revisions.items()}
        await store.all_but_the_first_share_one()
        tasks["b"].cancel()
        store.let_through(1)
        await store.have_arrived(3)
        assert store.arrived[2] == ("c",)
        store.let_through(2)
        outcomes = await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert isinstance(outcomes[1], asyncio.CancelledError)
        assert await value_of(store, "b") == b"old"

    async def test_cancelling_a_lone_write_starts_the_others(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        tasks = [begin(shared, key, await create(store, key)) for key in "ab"]
        await store.have_arrived(1)
        tasks[0].cancel()
        await store.have_arrived(2)
        store.let_through(1)
        assert (await tasks[1]).succeeded
        with pytest.raises(asyncio.CancelledError):
            await tasks[0]

    async def test_close_fails_writes_in_flight_as_indeterminate(
        self, store: GatedStore, shared: SharedWrites
    ) -> None:
        tasks = [begin(shared, key, await create(store, key)) for key in "abc"]
        await store.all_but_the_first_share_one()
        await shared.close()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert [isinstance(one, StoreError) for one in outcomes] == [False, True, True]
        assert isinstance(outcomes[1], StoreIndeterminateError)
