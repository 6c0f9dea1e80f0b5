"""Stores that fail once, at a chosen call, in every way in which a call can end."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
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


class Fault(StrEnum):
    """How the chosen call ends."""

    UNAVAILABLE = "not done, and told so"
    UNKNOWN_NOT_DONE = "not done, with unknown outcome"
    UNKNOWN_DONE = "done, with unknown outcome"
    CRASH_NOT_DONE = "the process ends before"
    CRASH_DONE = "the process ends after"


CRASHES = (Fault.CRASH_NOT_DONE, Fault.CRASH_DONE)
ERRORS = (Fault.UNAVAILABLE, Fault.UNKNOWN_NOT_DONE, Fault.UNKNOWN_DONE)


class Fuse:
    """Counts the calls that several stores get, and ends the one numbered `at`, from 1, in a fault.

    After a crash no call ever returns: what made it is to be cancelled, and with it the process has ended.
    """

    def __init__(self, at: int, fault: Fault) -> None:
        self.blown = asyncio.Event()
        self._at = at
        self._fault = fault
        self._calls = 0

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        self._calls += 1
        crashed = self.blown.is_set() and self._fault in CRASHES
        if self._calls != self._at and not crashed:
            return await action()
        if not crashed and self._fault in (Fault.UNKNOWN_DONE, Fault.CRASH_DONE):
            await action()
        self.blown.set()
        if self._fault in CRASHES:
            await asyncio.Event().wait()
        if self._fault is Fault.UNAVAILABLE:
            raise StoreUnavailableError("the fuse is blown")
        raise StoreIndeterminateError("the fuse is blown")


class Away(Fuse):
    """Every call fails."""

    def __init__(self) -> None:
        super().__init__(0, Fault.UNAVAILABLE)

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        raise StoreUnavailableError("the store is away")


class FusedMetadataStore:
    """A metadata store behind a fuse. Watches and leases are unaffected."""

    def __init__(self, inner: MetadataStore, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    @property
    def max_operations(self) -> int:
        return self._inner.max_operations

    async def get(self, key: str) -> KeyValue | None:
        return await self._fuse.call(lambda: self._inner.get(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self._fuse.call(lambda: self._inner.range(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        return await self._fuse.call(lambda: self._inner.transact(compares, operations))

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        return self._inner.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        return self._inner.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        return await self._inner.grant_lease(ttl_sec)

    async def renew_lease(self, lease: int) -> bool:
        return await self._inner.renew_lease(lease)

    async def revoke_lease(self, lease: int) -> None:
        await self._inner.revoke_lease(lease)

    async def close(self) -> None:
        await self._inner.close()


class CountingStore(FusedMetadataStore):
    """A metadata store whose calls are counted by name."""

    def __init__(self, inner: MetadataStore) -> None:
        super().__init__(inner, Fuse(0, Fault.UNAVAILABLE))
        self.calls: Counter[str] = Counter()

    async def get(self, key: str) -> KeyValue | None:
        self.calls["get"] += 1
        return await super().get(key)

    async def range(self, prefix: str) -> Snapshot:
        self.calls["range"] += 1
        return await super().range(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        self.calls["transact"] += 1
        return await super().transact(compares, operations)


class FusedObjectStore:
    """An object store whose deletions are behind a fuse."""

    def __init__(self, inner: ObjectStore, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._inner.put_if_absent(key, parts)

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        await self._inner.put_if_absent_streamed(key, chunks, size_bytes)

    @property
    def max_streamed_bytes(self) -> int:
        return self._inner.max_streamed_bytes

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._inner.put(key, parts)

    async def get(self, key: str) -> bytes:
        return await self._inner.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._inner.get_range(key, start, length)

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        return await self._inner.read_into(key, start, length, targets)

    async def size_bytes(self, key: str) -> int:
        return await self._inner.size_bytes(key)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._fuse.call(lambda: self._inner.delete(keys))

    async def close(self) -> None:
        await self._inner.close()


class Interruption(Fuse):
    """Something else happens right before the call numbered `at`; the call itself works."""

    def __init__(self, at: int, action: Callable[[], Awaitable[object]]) -> None:
        super().__init__(at, Fault.UNAVAILABLE)
        self._action = action
        self._number = 0

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        self._number += 1
        if self._number == self._at:
            self.blown.set()
            await self._action()
        return await action()
