"""Stores that fail once, at a chosen call, in every way in which a call can end."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import TypeVar

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.store import (
    Compare,
    KeyValue,
    MetadataStore,
    Operation,
    Snapshot,
    TransactionResult,
)
from kafscale.objects.object_store import ObjectStore
from kafscale.testing.store_wrappers import StoreOperation, WrappedMetadataStore, WrappedObjectStore
from tests.support.nightly import by_day

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

STRIDE = by_day(2, by_night=1)
"""By day a long work is interrupted at every second call, from the first or the second one on."""


class Fuse:
    """Counts the calls that several stores get, and ends the one numbered `at`, from 1, in a fault.

    After a crash no call ever returns: what made it is to be cancelled, and with it the process has ended.
    """

    def __init__(self, at: int, fault: Fault) -> None:
        self.blown = asyncio.Event()
        self._at = at
        self._fault = fault
        self._calls = 0

    def blow_in(self, calls: int) -> None:
        """End the call that comes after so many of them, from 1."""
        self._at = self._calls + calls

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


class FusedMetadataStore(WrappedMetadataStore):
    """A metadata store behind a fuse. Watches and leases are unaffected."""

    def __init__(self, inner: MetadataStore, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    async def _call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        if operation is StoreOperation.LEASE:
            return await action()
        return await self._fuse.call(action)


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


class FusedObjectStore(WrappedObjectStore):
    """An object store whose deletions are behind a fuse."""

    def __init__(self, inner: ObjectStore, fuse: Fuse) -> None:
        super().__init__(inner)
        self._fuse = fuse

    async def _call(self, operation: StoreOperation, action: Callable[[], Awaitable[T]]) -> T:
        if operation is not StoreOperation.DELETE:
            return await action()
        return await self._fuse.call(action)


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
