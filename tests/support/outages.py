"""Stores that a test makes unavailable and available again: they fail, or they do not answer at all."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from enum import StrEnum
from typing import TypeVar

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Changes, Snapshot
from kafscale.objects import health as object_store_health
from kafscale.ops import store_health
from kafscale.serving import store_deadline
from tests.support.controlled_store import ControlledStore
from tests.support.faults import Away, FusedMetadataStore

T = TypeVar("T")


class Outage(StrEnum):
    """The kind of a store's outage."""

    FAILS = "every call fails"
    HANGS = "no call is answered before the store is back"


class Switch:
    """Shows if a store is unavailable, and how."""

    def __init__(self) -> None:
        self._outage: Outage | None = None
        self._back = asyncio.Event()
        self._back.set()

    async def is_back(self) -> None:
        """Wait until it is available."""
        await self._back.wait()

    def go_away(self, outage: Outage) -> None:
        self._outage = outage
        self._back.clear()

    def come_back(self) -> None:
        """Work again, and release the hanging calls: they succeed, too."""
        self._outage = None
        self._back.set()

    async def passed(self) -> None:
        """Every call passes here before it has an effect."""
        if self._outage is Outage.HANGS:
            await self._back.wait()
        elif self._outage is Outage.FAILS:
            raise StoreUnavailableError("the store is away")


class SwitchedObjectStore(ControlledStore):
    """An object store with a switch; its listings always work."""

    def __init__(self) -> None:
        super().__init__()
        self.switch = Switch()

    async def _called(self, method: str, key: str) -> None:
        await super()._called(method, key)
        await self.switch.passed()


class _SwitchedCalls(Away):
    def __init__(self, switch: Switch) -> None:
        super().__init__()
        self._switch = switch

    async def call(self, action: Callable[[], Awaitable[T]]) -> T:
        await self._switch.passed()
        return await action()


class SwitchedMetadataStore(FusedMetadataStore):
    """A metadata store with a switch. Watches are unaffected; leases that cannot be renewed end."""

    def __init__(self) -> None:
        self.switch = Switch()
        super().__init__(MemoryStore(), _SwitchedCalls(self.switch))

    async def grant_lease(self, ttl_sec: int) -> int:
        await self.switch.passed()
        return await super().grant_lease(ttl_sec)

    async def renew_lease(self, lease: int) -> bool:
        await self.switch.passed()
        return await super().renew_lease(lease)


def hurry(patch: pytest.MonkeyPatch, factor: int = 20) -> None:
    """Let the health notice outages and returns, and requests time out, so many times faster."""
    patch.setattr(store_health, "OUTAGE_MS", store_health.OUTAGE_MS // factor)
    patch.setattr(store_health, "RECOVERY_MS", store_health.RECOVERY_MS // factor)
    patch.setattr(object_store_health, "LOOK_INTERVAL_SEC", object_store_health.LOOK_INTERVAL_SEC / factor)
    patch.setattr(object_store_health, "PROBE_INTERVAL_SEC", object_store_health.PROBE_INTERVAL_SEC / factor)
    patch.setattr(store_deadline, "STORE_DEADLINE_SEC", store_deadline.STORE_DEADLINE_SEC / factor)


class CutOffMetadataStore(SwitchedMetadataStore):
    """One broker's access to a store that others reach: during an outage that broker's watches stall, too."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__()
        self._inner = inner

    async def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        async with aclosing(self._inner.watch(prefix)) as events:
            async for event in events:
                await self.switch.is_back()
                yield event

    async def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        async with aclosing(self._inner.watch_key(key)) as events:
            async for event in events:
                await self.switch.is_back()
                yield event
