"""The bucket of a simulated cluster: one for all, and how each broker sees it over its link."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from kafscale.memory.chunks import ExactChunks, collect
from kafscale.objects.memory_store import MemoryStore, fill
from kafscale.objects.object_store import ObjectInfo
from kafscale.protocol.types import Buffer
from tests.sim.links import Link
from tests.sim.simulated_metadata import at_once


class BucketObserver(Protocol):
    """Who looks at every change before it is made."""

    def writing(self, origin: str, key: str, before: bytes | None, after: bytes) -> None:
        """`origin` creates or replaces an object."""

    def deleting(self, origin: str, key: str) -> None:
        """`origin` removes an object."""


class SimulatedBucket(MemoryStore):
    """A store that shows every change to an observer."""

    def __init__(self, now_ms: Callable[[], int], observer: BucketObserver) -> None:
        super().__init__(now_ms)
        self._observer = observer

    def now(self, key: str) -> bytes | None:
        """The object, if there is one."""
        entry = self._objects.get(key)
        return None if entry is None else entry[0]

    def put_if_absent_as(self, origin: str, key: str, data: bytes) -> None:
        """See `ObjectStore.put_if_absent`."""
        at_once(self.put_if_absent(key, [data]))
        self._observer.writing(origin, key, None, data)

    def put_as(self, origin: str, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._observer.writing(origin, key, self.now(key), data)
        at_once(self.put(key, [data]))

    def delete_as(self, origin: str, keys: Sequence[str]) -> None:
        """See `ObjectStore.delete`."""
        for key in keys:
            if self.now(key) is not None:
                self._observer.deleting(origin, key)
        at_once(self.delete(keys))

    def listed(self, prefix: str) -> list[ObjectInfo]:
        """See `ObjectStore.list`."""
        return [
            ObjectInfo(key=key, size_bytes=len(entry[0]), modified_ms=entry[1])
            for key, entry in sorted(self._objects.items())
            if key.startswith(prefix)
        ]


class LinkedObjects:
    """An `ObjectStore` at the other end of a link."""

    def __init__(self, bucket: SimulatedBucket, link: Link, origin: str) -> None:
        self._bucket = bucket
        self._link = link
        self._origin = origin

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        await self._create(key, b"".join(parts))

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """See `ObjectStore`. It is the last request, which makes the object visible, that has troubles."""
        await self._create(key, bytes(await collect(ExactChunks(key, chunks, size_bytes), size_bytes)))

    @property
    def max_streamed_bytes(self) -> int:
        """See `ObjectStore`."""
        return self._bucket.max_streamed_bytes

    async def _create(self, key: str, data: bytes) -> None:
        await self._link.call(
            f"create {key}",
            lambda: self._bucket.put_if_absent_as(self._origin, key, data),
            is_slow=True,
            may_repeat=True,
        )

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        data = b"".join(parts)
        await self._link.call(
            f"put {key}", lambda: self._bucket.put_as(self._origin, key, data), is_slow=True, may_repeat=True
        )

    async def get(self, key: str) -> bytes:
        """See `ObjectStore`."""
        return await self._link.call(f"get {key}", lambda: at_once(self._bucket.get(key)))

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectStore`."""
        return await self._link.call(
            f"get {key}", lambda: at_once(self._bucket.get_range(key, start, length))
        )

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """See `ObjectStore`."""
        data = await self.get_range(key, start, length)
        fill(targets, data)
        return len(data)

    async def size_bytes(self, key: str) -> int:
        """See `ObjectStore`."""
        return await self._link.call(f"head {key}", lambda: at_once(self._bucket.size_bytes(key)))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        for info in await self._link.call(f"list {prefix}", lambda: self._bucket.listed(prefix)):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        wanted = tuple(keys)
        await self._link.call(
            f"delete {', '.join(wanted)}", lambda: self._bucket.delete_as(self._origin, wanted)
        )

    async def close(self) -> None:
        """The bucket is everybody's."""
