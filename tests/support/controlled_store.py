"""An object store in memory whose calls a test can hold back, count, fail and falsify."""

import asyncio
import fnmatch
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager

from kafscale.memory.chunks import ExactChunks, collect
from kafscale.objects.memory_store import MemoryStore, fill
from kafscale.objects.object_store import ObjectInfo
from kafscale.protocol.types import Buffer
from tests.support.waiting import PATIENCE_SEC


class Hold:
    """Calls that wait until `release`, and how many do."""

    def __init__(self, method: str, pattern: str) -> None:
        self.method = method
        self.pattern = pattern
        self.waiting = 0
        self._released = asyncio.Event()
        self._reached = asyncio.Event()

    async def reached(self) -> None:
        """Wait until a call waits here."""
        await asyncio.wait_for(self._reached.wait(), PATIENCE_SEC)

    def release(self) -> None:
        self._released.set()

    async def pass_through(self) -> None:
        self.waiting += 1
        self._reached.set()
        try:
            await self._released.wait()
        finally:
            self.waiting -= 1


class ControlledStore:
    """An `ObjectStore`. Patterns are those of `fnmatch` and meant for keys."""

    def __init__(self) -> None:
        self.inner = MemoryStore(lambda: 0)
        self.calls: Counter[tuple[str, str]] = Counter()
        self.concurrent_puts = 0
        self.most_concurrent_puts = 0
        self._holds: list[Hold] = []
        self._failures: dict[tuple[str, str], list[Exception]] = {}
        self._lies: list[tuple[str, Callable[[bytes], bytes], int]] = []

    # --- instructions of a test

    @contextmanager
    def hold(self, method: str, pattern: str = "*") -> Iterator[Hold]:
        """Hold back the matching calls until `release` or the block's end."""
        hold = Hold(method, pattern)
        self._holds.append(hold)
        try:
            yield hold
        finally:
            self._holds.remove(hold)
            hold.release()

    def fail(self, method: str, pattern: str, *errors: Exception) -> None:
        """Fail the next matching calls with these errors, one each; they have no effect."""
        self._failures.setdefault((method, pattern), []).extend(errors)

    def lie(self, pattern: str, change: Callable[[bytes], bytes], times: int = 1_000_000) -> None:
        """Return changed bytes to the next readers of matching keys. The stored object stays."""
        self._lies.append((pattern, change, times))

    def tell_the_truth(self) -> None:
        self._lies.clear()

    def count(self, method: str, pattern: str = "*") -> int:
        """The number of matching calls so far."""
        return sum(
            count
            for (called, key), count in self.calls.items()
            if called == method and fnmatch.fnmatchcase(key, pattern)
        )

    # --- the store

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        self.concurrent_puts += 1
        self.most_concurrent_puts = max(self.most_concurrent_puts, self.concurrent_puts)
        try:
            await self._called("put_if_absent", key)
            await self.inner.put_if_absent(key, parts)
        finally:
            self.concurrent_puts -= 1

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """A test's hook after all chunks have come, before the object exists."""
        self.concurrent_puts += 1
        self.most_concurrent_puts = max(self.most_concurrent_puts, self.concurrent_puts)
        try:
            content = await collect(ExactChunks(key, chunks, size_bytes), size_bytes)
            await self._called("put_if_absent_streamed", key)
            await self.inner.put_if_absent(key, [content])
        finally:
            self.concurrent_puts -= 1

    @property
    def max_streamed_bytes(self) -> int:
        return self.inner.max_streamed_bytes

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        await self._called("put", key)
        await self.inner.put(key, parts)

    async def get(self, key: str) -> bytes:
        await self._called("get", key)
        return self._told(key, await self.inner.get(key))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        await self._called("get_range", key)
        return self._told(key, await self.inner.get_range(key, start, length))

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        await self._called("read_into", key)
        told = self._told(key, await self.inner.get_range(key, start, length))
        fill(targets, told)
        return len(told)

    async def size_bytes(self, key: str) -> int:
        return await self.inner.size_bytes(key)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self.inner.list(prefix)

    async def delete(self, keys: Sequence[str]) -> None:
        await self._called("delete", ",".join(keys))
        await self.inner.delete(keys)

    async def close(self) -> None:
        """The objects outlive a broker: another one may be started on them."""

    async def keys(self, pattern: str = "*") -> Sequence[str]:
        return [info.key async for info in self.inner.list("") if fnmatch.fnmatchcase(info.key, pattern)]

    async def _called(self, method: str, key: str) -> None:
        self.calls[method, key] += 1
        await asyncio.sleep(0)
        for hold in list(self._holds):
            if hold.method == method and fnmatch.fnmatchcase(key, hold.pattern):
                await hold.pass_through()
        for (failing, pattern), errors in self._failures.items():
            if failing == method and errors and fnmatch.fnmatchcase(key, pattern):
                raise errors.pop(0)

    def _told(self, key: str, data: bytes) -> bytes:
        for number, (pattern, change, times) in enumerate(self._lies):
            if times and fnmatch.fnmatchcase(key, pattern):
                self._lies[number] = (pattern, change, times - 1)
                return change(data)
        return data
