"""Stores in front of others: every call goes through one method, which decides about it."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
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
from kafscale.objects.object_store import ObjectInfo, ObjectStore
from kafscale.protocol.types import Buffer

T = TypeVar("T")


class StoreOperation(StrEnum):
    """The kinds of calls."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    LIST = "list"
    LEASE = "lease"


class WrappedObjectStore:
    """An `ObjectStore` in front of another one."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    async def _call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        """Make a call of the other store, or what is to happen in its place."""
        return await action()

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        await self._call(StoreOperation.WRITE, lambda: self._inner.put_if_absent(key, parts))

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """See `ObjectStore`."""
        await self._call(
            StoreOperation.WRITE, lambda: self._inner.put_if_absent_streamed(key, chunks, size_bytes)
        )

    @property
    def max_streamed_bytes(self) -> int:
        """See `ObjectStore`."""
        return self._inner.max_streamed_bytes

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        await self._call(StoreOperation.WRITE, lambda: self._inner.put(key, parts))

    async def get(self, key: str) -> bytes:
        """See `ObjectStore`."""
        return await self._call(StoreOperation.READ, lambda: self._inner.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectStore`."""
        return await self._call(StoreOperation.READ, lambda: self._inner.get_range(key, start, length))

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """See `ObjectStore`."""
        return await self._call(
            StoreOperation.READ, lambda: self._inner.read_into(key, start, length, targets)
        )

    async def size_bytes(self, key: str) -> int:
        """See `ObjectStore`."""
        return await self._call(StoreOperation.READ, lambda: self._inner.size_bytes(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        await self._call(StoreOperation.LIST, _nothing)
        async for info in self._inner.list(prefix):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        await self._call(StoreOperation.DELETE, lambda: self._inner.delete(keys))

    async def close(self) -> None:
        """See `ObjectStore`."""
        await self._inner.close()


class WrappedMetadataStore:
    """A `MetadataStore` in front of another one. Watches go past `_call`."""

    def __init__(self, inner: MetadataStore) -> None:
        self._inner = inner

    async def _call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        """Make a call of the other store, or what is to happen in its place."""
        return await action()

    @property
    def max_operations(self) -> int:
        """See `MetadataStore`."""
        return self._inner.max_operations

    async def get(self, key: str) -> KeyValue | None:
        """See `MetadataStore`."""
        return await self._call(StoreOperation.READ, lambda: self._inner.get(key))

    async def range(self, prefix: str) -> Snapshot:
        """See `MetadataStore`."""
        return await self._call(StoreOperation.READ, lambda: self._inner.range(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """See `MetadataStore`."""
        return await self._call(StoreOperation.WRITE, lambda: self._inner.transact(compares, operations))

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore`."""
        return self._inner.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore`."""
        return self._inner.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        """See `MetadataStore`."""
        return await self._call(StoreOperation.LEASE, lambda: self._inner.grant_lease(ttl_sec))

    async def renew_lease(self, lease: int) -> bool:
        """See `MetadataStore`."""
        return await self._call(StoreOperation.LEASE, lambda: self._inner.renew_lease(lease))

    async def revoke_lease(self, lease: int) -> None:
        """See `MetadataStore`."""
        await self._call(StoreOperation.LEASE, lambda: self._inner.revoke_lease(lease))

    async def close(self) -> None:
        """See `MetadataStore`."""
        await self._inner.close()


async def _nothing() -> None:
    """The beginning of a listing."""
