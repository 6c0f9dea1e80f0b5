"""Stores seen over a bad network: calls that fail before, fail after, or take effect long after they failed."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.memory.chunks import ExactChunks, collect
from kafscale.metadata.store import (
    Compare,
    KeyValue,
    MetadataStore,
    Operation,
    Snapshot,
    TransactionResult,
)
from kafscale.objects.object_store import ObjectInfo, ObjectStore
from kafscale.protocol.types import Buffer

Result = TypeVar("Result")


class Network:
    """Decides by its seed the outcome of each call. `fault_rate`: the share of calls that go wrong."""

    LONGEST_DELAY_SEC = 0.2
    LATEST_EFFECT_SEC = 5.0

    def __init__(self, rng: random.Random, fault_rate: float) -> None:
        self._rng = rng
        self._fault_rate = fault_rate
        self._late: set[asyncio.Task[None]] = set()

    async def call(self, action: Callable[[], Awaitable[Result]]) -> Result:
        """Make the call as the network lets it be made."""
        await asyncio.sleep(self._rng.uniform(0, self.LONGEST_DELAY_SEC))
        if self._rng.random() >= self._fault_rate:
            result = await action()
            await asyncio.sleep(self._rng.uniform(0, self.LONGEST_DELAY_SEC))
            return result
        match self._rng.randrange(4):
            case 0:
                raise StoreUnavailableError("refused")
            case 1:
                raise StoreIndeterminateError("lost on the way there")
            case 2:
                await action()
                raise StoreIndeterminateError("lost on the way back")
            case _:
                self._later(action)
                raise StoreIndeterminateError("still in flight")

    def _later(self, action: Callable[[], Awaitable[object]]) -> None:
        async def arrive(delay_sec: float) -> None:
            await asyncio.sleep(delay_sec)
            await asyncio.gather(action(), return_exceptions=True)

        task = asyncio.create_task(arrive(self._rng.uniform(0, self.LATEST_EFFECT_SEC)))
        self._late.add(task)
        task.add_done_callback(self._late.discard)

    def heal(self) -> None:
        """Nothing goes wrong from now on; what is in flight still arrives."""
        self._fault_rate = 0.0

    async def settle(self) -> None:
        """Wait until nothing is in flight any more."""
        while self._late:
            await asyncio.wait(self._late)


class UnreliableObjects:
    """An object store behind a network."""

    def __init__(self, inner: ObjectStore, network: Network) -> None:
        self._inner = inner
        self._network = network

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        content = [bytes(part) for part in parts]
        await self._network.call(lambda: self._inner.put_if_absent(key, content))

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        content = await collect(ExactChunks(key, chunks, size_bytes), size_bytes)
        await self._network.call(lambda: self._inner.put_if_absent(key, [content]))

    @property
    def max_streamed_bytes(self) -> int:
        return self._inner.max_streamed_bytes

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        content = [bytes(part) for part in parts]
        await self._network.call(lambda: self._inner.put(key, content))

    async def get(self, key: str) -> bytes:
        return await self._network.call(lambda: self._inner.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._network.call(lambda: self._inner.get_range(key, start, length))

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        return await self._network.call(lambda: self._inner.read_into(key, start, length, targets))

    async def size_bytes(self, key: str) -> int:
        return await self._network.call(lambda: self._inner.size_bytes(key))

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._inner.list(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._network.call(lambda: self._inner.delete(keys))

    async def close(self) -> None:
        await self._inner.close()


class UnreliableMetadata:
    """The part of a metadata store that publication and groups use, behind a network."""

    def __init__(self, inner: MetadataStore, network: Network) -> None:
        self._inner = inner
        self._network = network

    @property
    def max_operations(self) -> int:
        return self._inner.max_operations

    async def get(self, key: str) -> KeyValue | None:
        return await self._network.call(lambda: self._inner.get(key))

    async def range(self, prefix: str) -> Snapshot:
        return await self._network.call(lambda: self._inner.range(prefix))

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        return await self._network.call(lambda: self._inner.transact(compares, operations))
