"""A metadata store whose calls are counted, whatever the backend."""

from collections.abc import AsyncGenerator, Awaitable, Sequence
from typing import TypeVar

from kafscale.metadata.store import (
    Changes,
    Compare,
    KeyValue,
    MetadataStore,
    Operation,
    Snapshot,
    TransactionResult,
)
from kafscale.metadata.store_contact import StoreContact
from kafscale.ops.metrics import Metrics, OperationMetrics

Result = TypeVar("Result")


class MeasuredMetadataStore:
    """Passes every call of `MetadataStore` on to `store` and counts it in `metrics` under the method's name.

    `contact`, if any, is notified of every answer. A watch has no end to measure and is passed on as it is.
    """

    def __init__(self, store: MetadataStore, metrics: Metrics, contact: StoreContact | None = None) -> None:
        self._store = store
        self._contact = contact
        self._get = metrics.metadata_store("get")
        self._range = metrics.metadata_store("range")
        self._transact = metrics.metadata_store("transact")
        self._grant_lease = metrics.metadata_store("grant_lease")
        self._renew_lease = metrics.metadata_store("renew_lease")
        self._revoke_lease = metrics.metadata_store("revoke_lease")

    @property
    def max_operations(self) -> int:
        """`MetadataStore.max_operations`."""
        return self._store.max_operations

    async def get(self, key: str) -> KeyValue | None:
        """`MetadataStore.get`."""
        return await self._answer(self._get, self._store.get(key))

    async def range(self, prefix: str) -> Snapshot:
        """`MetadataStore.range`."""
        return await self._answer(self._range, self._store.range(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """`MetadataStore.transact`. A compare that is not true is an answer, no error."""
        return await self._answer(self._transact, self._store.transact(compares, operations))

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """`MetadataStore.watch`."""
        return self._store.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """`MetadataStore.watch_key`."""
        return self._store.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        """`MetadataStore.grant_lease`."""
        return await self._answer(self._grant_lease, self._store.grant_lease(ttl_sec))

    async def renew_lease(self, lease: int) -> bool:
        """`MetadataStore.renew_lease`."""
        return await self._answer(self._renew_lease, self._store.renew_lease(lease))

    async def revoke_lease(self, lease: int) -> None:
        """`MetadataStore.revoke_lease`."""
        await self._answer(self._revoke_lease, self._store.revoke_lease(lease))

    async def _answer(self, calls: OperationMetrics, call: Awaitable[Result]) -> Result:
        contact = self._contact
        asked_ms = 0 if contact is None else contact.now_ms()
        with calls.measure():
            result = await call
        if contact is not None:
            contact.answered(asked_ms)
        return result

    async def close(self) -> None:
        """`MetadataStore.close`."""
        await self._store.close()
