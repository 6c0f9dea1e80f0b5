"""Faults of stores: which calls fail, how, and what is stored all the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kafscale.errors import ObjectNotFoundError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadataStore
from kafscale.metadata.store import Put
from kafscale.objects.memory_store import MemoryStore
from kafscale.testing.store_faults import FaultyMetadataStore, FaultyObjectStore, StoreFaults
from tests.testing.movable import movable, on_movable_loop


def faulty() -> tuple[StoreFaults, FaultyObjectStore, MemoryStore]:
    faults, inner = StoreFaults(), MemoryStore(lambda: 0)
    return faults, FaultyObjectStore(inner, faults), inner


async def keys(store: FaultyObjectStore) -> list[str]:
    return [info.key async for info in store.list("")]


async def chunks() -> AsyncIterator[bytes]:
    yield b"ab"


@on_movable_loop
async def test_nothing_reaches_a_store_in_an_outage() -> None:
    faults, store, inner = faulty()
    await store.put("there", [b"x"])
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.put("new", [b"x"]),
        lambda: store.put_if_absent("new", [b"x"]),
        lambda: store.put_if_absent_streamed("new", chunks(), 2),
        lambda: store.get("there"),
        lambda: store.get_range("there", 0, 1),
        lambda: store.read_into("there", 0, 1, [memoryview(bytearray(1))]),
        lambda: store.size_bytes("there"),
        lambda: store.delete(["there"]),
        lambda: keys(store),
    ]
    with faults.outage() as outage:
        for call in calls:
            with pytest.raises(StoreUnavailableError, match="the object store does not answer"):
                await call()
        assert outage.hits == len(calls)
    assert await keys(store) == ["there"]
    assert await inner.get("there") == b"x"


@on_movable_loop
async def test_single_calls_fail_by_kind() -> None:
    faults, store, _ = faulty()
    await store.put("there", [b"x"])
    fault = faults.fail("read", times=2)
    await store.put("other", [b"y"])
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            await store.get("there")
    assert await store.get("there") == b"x"
    assert fault.hits == 2
    faults.fail("delete")
    with pytest.raises(StoreUnavailableError):
        await store.delete(["there"])
    faults.fail("list")
    with pytest.raises(StoreUnavailableError):
        await keys(store)
    assert await keys(store) == ["other", "there"]


@on_movable_loop
async def test_writes_whose_answer_is_lost_are_made() -> None:
    faults, store, inner = faulty()
    lost = faults.lose_answers(times=3)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.put_if_absent("a", [b"x"]),
        lambda: store.put_if_absent_streamed("b", chunks(), 2),
    ]
    for call in calls:
        with pytest.raises(StoreIndeterminateError, match="the answer of the object store is lost"):
            await call()
    assert (await store.get("a"), await inner.get("b")) == (b"x", b"ab")
    with pytest.raises(StoreIndeterminateError):
        await store.delete(["a"])
    with pytest.raises(ObjectNotFoundError):
        await store.get("a")
    await store.put("c", [b"x"])
    assert lost.hits == 3


@on_movable_loop
async def test_slow_calls_begin_later() -> None:
    faults, store, inner = faulty()
    with faults.slow(5, "write") as slow:
        putting = asyncio.create_task(store.put("a", [b"x"]))
        await asyncio.sleep(0)
        assert slow.hits == 1
        await movable().advance_async(4)
        assert [info.key async for info in inner.list("")] == []
        await movable().advance_async(2)
        await putting
    await store.put("b", [b"x"])
    assert await keys(store) == ["a", "b"]


@on_movable_loop
async def test_metadata_store_fails_and_its_leases_too() -> None:
    faults, inner = StoreFaults("metadata store"), MemoryMetadataStore()
    store = FaultyMetadataStore(inner, faults)
    lease = await store.grant_lease(60)
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: store.get("key"),
        lambda: store.range("key"),
        lambda: store.transact([], [Put("key", b"", lease)]),
        lambda: store.renew_lease(lease),
    ]
    with faults.outage():
        for call in calls:
            with pytest.raises(StoreUnavailableError, match="the metadata store does not answer"):
                await call()
    faults.fail("lease")
    with pytest.raises(StoreUnavailableError):
        await store.renew_lease(lease)
    faults.lose_answers()
    with pytest.raises(StoreIndeterminateError):
        await store.transact([], [Put("key", b"value", lease)])
    found = await inner.get("key")
    assert found is not None
    assert found.value == b"value"


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        (
            lambda one: one.fail("put"),
            "operation='put' is not legal; legal are read, write, delete, list, lease",
        ),
        (lambda one: one.fail("read", times=0), "times=0 is not legal"),
        (lambda one: one.slow(-1), "seconds=-1 is not legal"),
        (lambda one: one.slow(float("nan")), "seconds=nan is not legal"),
    ],
)
def test_illegal_order_says_what_is_legal(order: Callable[[StoreFaults], object], problem: str) -> None:
    faults = StoreFaults()
    with pytest.raises(ValueError, match=problem):
        order(faults)
    assert faults.rules == ()
