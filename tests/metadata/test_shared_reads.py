"""Reads share requests, and each gets what it asked for as it was after it had asked."""

import asyncio
from collections.abc import Sequence

import pytest

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.shared_reads import SharedReads
from kafscale.metadata.store import Compare, Operation, Put, TransactionResult
from tests.support.waiting import PATIENCE_SEC


class GatedStore(MemoryStore):
    """Reads wait for `opened`; their keys are noted."""

    def __init__(self) -> None:
        super().__init__(max_operations=4)
        self.opened = asyncio.Event()
        self.reached = asyncio.Event()
        self.read: list[list[str]] = []
        self.failure: Exception | None = None

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if not operations:
            self.read.append([one.key for one in compares])
            self.reached.set()
            await self.opened.wait()
            if self.failure is not None:
                raise self.failure
        return await super().transact(compares, operations)


async def begun(store: GatedStore, reads: SharedReads, *wanted: str) -> list[asyncio.Task[str]]:
    """Reads of the letters as keys, the first of which is in flight; each yields the values that it found."""

    async def read(letters: str) -> str:
        found = await reads.read(list(letters))
        return "".join(found[letter].value.decode() for letter in letters if letter in found)

    tasks = [asyncio.create_task(read(letters)) for letters in wanted]
    await asyncio.wait_for(store.reached.wait(), PATIENCE_SEC)
    for _ in wanted:
        await asyncio.sleep(0)
    return tasks


async def test_reads_that_wait_share_what_fits() -> None:
    store = GatedStore()
    await store.transact([], [Put(letter, letter.upper().encode()) for letter in "abcd"])
    reads = SharedReads(store)
    (first,) = await begun(store, reads, "a")
    later = await begun(store, reads, "ab", "bx", "cd", "d")
    later[3].cancel()
    await store.transact([], [Put("a", b"new")])
    store.opened.set()
    assert await first == "new"
    assert await asyncio.gather(*later[:3]) == ["newB", "B", "CD"]
    assert store.read == [["a"], ["a", "b", "x"], ["c", "d"]]
    with pytest.raises(ValueError, match="5 keys in one read; at most 4 are legal"):
        await reads.read(list("abcde"))
    await reads.close()


async def test_a_failed_request_fails_those_that_share_it() -> None:
    store = GatedStore()
    store.failure = StoreUnavailableError("away")
    reads = SharedReads(store)
    tasks = await begun(store, reads, "a", "b", "c")
    store.opened.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in results] == [StoreUnavailableError] * 3
    store.failure = None
    assert await reads.read(["a"]) == {}
    await reads.close()


async def test_closed_reads_end() -> None:
    store = GatedStore()
    reads = SharedReads(store)
    tasks = await begun(store, reads, "a", "b")
    await reads.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(one) for one in results] == [StoreIndeterminateError] * 2
