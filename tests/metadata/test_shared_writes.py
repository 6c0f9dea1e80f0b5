"""Writes share store transactions, and each gets the answer that it would have got alone."""

import asyncio
from collections.abc import Sequence

from kafscale.errors import StoreIndeterminateError
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.shared_writes import SharedWrites, Write
from kafscale.metadata.store import ABSENT, Compare, Delete, Operation, Put, TransactionResult
from tests.support.waiting import PATIENCE_SEC


class GatedStore(MemoryStore):
    """The first transaction waits for `opened`; all are counted, by their compares and operations."""

    def __init__(self) -> None:
        super().__init__(max_operations=6)
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.sizes: list[tuple[int, int]] = []
        self.failure: Exception | None = None

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        self.sizes.append((len(compares), len(operations)))
        self.reached.set()
        is_first = len(self.sizes) == 1
        if is_first:
            await self.opened.wait()
        elif self.failure is not None:
            raise self.failure
        return await super().transact(compares, operations)


def create(name: str, count: int = 2, revision: int = ABSENT) -> Write:
    operations = tuple(Put(f"{name}{number}", b"new") for number in range(count))
    return Write((Compare(f"{name}0", revision),), operations)


async def together(
    store: GatedStore, *writes: Write, cancel: int | None = None
) -> list[TransactionResult | BaseException]:
    """The writes, all but the first while that one is in flight."""
    shared = SharedWrites(store, transactions_at_once=1)
    async with asyncio.timeout(PATIENCE_SEC):
        tasks = [asyncio.create_task(shared.write(write)) for write in writes]
        await store.reached.wait()
        for _ in writes:
            await asyncio.sleep(0)
        if cancel is not None:
            tasks[cancel].cancel()
            await asyncio.sleep(0)
        store.opened.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    await shared.close()
    return results


def succeeded(results: Sequence[TransactionResult | BaseException]) -> list[bool]:
    return [isinstance(one, TransactionResult) and one.succeeded for one in results]


async def test_writes_that_wait_share_what_fits() -> None:
    store = GatedStore()
    results = await together(store, *(create(name) for name in "abcdef"))
    assert succeeded(results) == [True] * 6
    assert store.sizes == [(1, 2), (3, 6), (2, 4)]


async def test_a_write_that_fails_does_not_fail_the_others() -> None:
    store = GatedStore()
    results = await together(store, create("a"), create("b"), create("c", revision=77), create("d"))
    assert succeeded(results) == [True, True, False, True]
    refused = results[2]
    assert isinstance(refused, TransactionResult)
    assert refused.found == (None,)
    assert [await store.get(f"{name}0") is not None for name in "abcd"] == [True, True, False, True]


async def test_two_writes_of_one_key_take_turns() -> None:
    store = GatedStore()
    results = await together(store, create("a"), create("b"), create("b"), create("c"))
    assert succeeded(results) == [True, True, False, True]
    assert store.sizes[1] == (1, 2)


async def test_an_unknown_outcome_is_that_of_all_in_it() -> None:
    store = GatedStore()
    store.failure = StoreIndeterminateError("no answer")
    results = await together(store, create("a"), create("b"), create("c"))
    assert [type(one) for one in results] == [TransactionResult, *[StoreIndeterminateError] * 2]


async def test_a_cancelled_write_is_not_sent() -> None:
    store = GatedStore()
    results = await together(store, create("a"), create("b"), create("c"), cancel=1)
    assert succeeded(results) == [True, False, True]
    assert await store.get("b0") is None


async def test_a_refused_transaction_is_sent_in_parts() -> None:
    class Picky(GatedStore):
        async def transact(
            self, compares: Sequence[Compare], operations: Sequence[Operation]
        ) -> TransactionResult:
            if len(compares) > 1:
                raise ValueError("too large")
            return await super().transact(compares, operations)

    store = Picky()
    too_large = Write((Compare("x", ABSENT),), tuple(Delete(f"x{number}") for number in range(9)))
    results = await together(store, create("a"), create("b"), create("c"), too_large)
    assert succeeded(results) == [True, True, True, False]
    assert isinstance(results[3], ValueError)
