"""Counting by a metadata store: calls and errors under the method's name."""

import pytest

from kafscale.errors import StoreIndeterminateError
from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, KeyValue, Put
from kafscale.ops.metrics import Metrics


def calls(metrics: Metrics) -> dict[str, int]:
    counted = {name: sum(each.duration.counts) for name, each in metrics.metadata_store_operations.items()}
    return {name: count for name, count in counted.items() if count}


async def test_calls_are_counted_by_method() -> None:
    metrics = Metrics()
    store = MeasuredMetadataStore(MemoryStore(), metrics)
    lease = await store.grant_lease(60)
    assert (await store.transact([], [Put("a", b"1", lease)])).succeeded
    assert not (await store.transact([Compare("a", 0)], [])).succeeded
    assert await store.get("a") is not None
    assert len((await store.range("")).items) == 1
    assert await store.renew_lease(lease)
    await store.revoke_lease(lease)
    await store.close()
    assert calls(metrics) == {
        "grant_lease": 1,
        "transact": 2,
        "get": 1,
        "range": 1,
        "renew_lease": 1,
        "revoke_lease": 1,
    }
    assert not any(each.errors for each in metrics.metadata_store_operations.values())


class BrokenStore(MemoryStore):
    async def get(self, key: str) -> KeyValue | None:
        raise StoreIndeterminateError("no answer")


async def test_failures_are_counted_by_name_and_pass_through() -> None:
    metrics = Metrics()
    store = MeasuredMetadataStore(BrokenStore(), metrics)
    with pytest.raises(StoreIndeterminateError):
        await store.get("a")
    assert calls(metrics) == {"get": 1}
    assert metrics.metadata_store("get").errors == {"StoreIndeterminateError": 1}
    await store.close()
