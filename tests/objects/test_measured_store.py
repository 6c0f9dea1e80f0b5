"""Counting by an object store: calls, bytes and errors under the method's name."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

import pytest

from kafscale.errors import ObjectExistsError, ObjectNotFoundError, StoreUnavailableError
from kafscale.objects.measured_store import MeasuredObjectStore
from kafscale.objects.memory_store import MemoryStore
from kafscale.objects.object_store import ObjectInfo
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer


def calls(metrics: Metrics) -> dict[str, int]:
    counted = {name: sum(each.duration.counts) for name, each in metrics.object_store_operations.items()}
    return {name: count for name, count in counted.items() if count}


async def test_calls_and_bytes_are_counted_by_method() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(MemoryStore(lambda: 0), metrics)
    await store.put_if_absent("a", [b"12", memoryview(bytearray(16)).cast("Q")])
    await store.put("b", [b"123"])
    await store.get("a")
    await store.get_range("a", 1, 2)
    assert await store.read_into("a", 1, 2, [memoryview(bytearray(2))]) == 2
    await store.size_bytes("a")
    assert [info.key async for info in store.list("")] == ["a", "b"]
    await store.delete(["a", "b"])
    assert calls(metrics) == dict.fromkeys(
        ("put_if_absent", "put", "get", "get_range", "read_into", "size_bytes", "list", "delete"), 1
    )
    sizes = {name: each.bytes for name, each in metrics.object_store_operations.items() if each.bytes}
    assert sizes == {"put_if_absent": 18, "put": 3, "get": 18, "get_range": 2, "read_into": 2}


async def test_an_object_that_is_there_or_is_not_is_an_answer() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(MemoryStore(lambda: 0), metrics)
    await store.put_if_absent("a", [b"1"])
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("a", [b"1"])
    with pytest.raises(ObjectNotFoundError):
        await store.get("b")
    assert calls(metrics) == {"put_if_absent": 2, "get": 1}
    assert not any(each.errors for each in metrics.object_store_operations.values())
    assert metrics.object_store("put_if_absent").bytes == 1


class BrokenStore(MemoryStore):
    async def get(self, key: str) -> bytes:
        raise StoreUnavailableError("away")

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        yield ObjectInfo(key="a", size_bytes=1, modified_ms=0)
        raise StoreUnavailableError("away")


async def test_failures_are_counted_by_name_and_pass_through() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(BrokenStore(lambda: 0), metrics)
    with pytest.raises(StoreUnavailableError):
        await store.get("a")
    with pytest.raises(StoreUnavailableError):
        [info async for info in store.list("")]
    assert calls(metrics) == {"get": 1, "list": 1}
    assert metrics.object_store("get").errors == {"StoreUnavailableError": 1}
    assert metrics.object_store("list").errors == {"StoreUnavailableError": 1}


class SlowStore(MemoryStore):
    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        await asyncio.Event().wait()


async def test_a_cancelled_call_is_no_failure() -> None:
    """The slower of two uploads of the same segment is given up for the other: that is as it should be."""
    metrics = Metrics()
    store = MeasuredObjectStore(SlowStore(lambda: 0), metrics)
    call = asyncio.create_task(store.put_if_absent("a", [b"1"]))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert calls(metrics) == {"put_if_absent": 1}
    assert not metrics.object_store("put_if_absent").errors


async def test_a_listing_that_is_left_early_counts_as_one_call() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(BrokenStore(lambda: 0), metrics)
    async with aclosing(store.list("")) as listing:
        async for _ in listing:
            break
    assert calls(metrics) == {"list": 1}
    assert not metrics.object_store("list").errors


async def chunks_of(*chunks: Buffer, then: Exception | None = None) -> AsyncIterator[Buffer]:
    for chunk in chunks:
        yield chunk
    if then is not None:
        raise then


async def test_a_streamed_object_is_counted_with_its_bytes() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(MemoryStore(lambda: 0), metrics)
    assert store.max_streamed_bytes == MemoryStore(lambda: 0).max_streamed_bytes
    await store.put_if_absent_streamed("a", chunks_of(b"123", b"45"), 5)
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent_streamed("a", chunks_of(b"123", b"45"), 5)
    assert calls(metrics) == {"put_if_absent_streamed": 2}
    counted = metrics.object_store("put_if_absent_streamed")
    assert (counted.bytes, counted.errors) == (5, {})


async def test_what_the_chunks_fail_with_is_not_the_stores_failure() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(MemoryStore(lambda: 0), metrics)
    with pytest.raises(StoreUnavailableError):
        await store.put_if_absent_streamed("a", chunks_of(b"1", then=StoreUnavailableError("source")), 5)
    with pytest.raises(ValueError, match="announced"):
        await store.put_if_absent_streamed("a", chunks_of(b"1"), 5)
    counted = metrics.object_store("put_if_absent_streamed")
    assert (counted.bytes, counted.errors) == (0, {"ValueError": 1})


async def test_the_time_that_chunks_take_to_come_is_not_the_stores() -> None:
    metrics = Metrics()
    store = MeasuredObjectStore(MemoryStore(lambda: 0), metrics)

    async def slow() -> AsyncIterator[Buffer]:
        await asyncio.sleep(0.3)
        yield b"12345"
        await asyncio.sleep(0.3)

    await store.put_if_absent_streamed("a", slow(), 5)
    assert metrics.object_store("put_if_absent_streamed").duration.total < 0.3
