"""An object store whose calls are counted, whatever the backend."""

import time
from collections.abc import AsyncGenerator, Sequence

from kafscale.errors import ObjectExistsError, ObjectNotFoundError
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer
from kafscale.storage.object_store import ObjectInfo, ObjectStore


class MeasuredObjectStore:
    """Passes every call of `ObjectStore` on to `store` and counts it in `metrics` under the method's name."""

    def __init__(self, store: ObjectStore, metrics: Metrics) -> None:
        self._store = store
        self._put_if_absent = metrics.object_store("put_if_absent")
        self._put = metrics.object_store("put")
        self._get = metrics.object_store("get")
        self._get_range = metrics.object_store("get_range")
        self._read_into = metrics.object_store("read_into")
        self._size_bytes = metrics.object_store("size_bytes")
        self._list = metrics.object_store("list")
        self._delete = metrics.object_store("delete")

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """`ObjectStore.put_if_absent`."""
        with self._put_if_absent.measure(ObjectExistsError):
            await self._store.put_if_absent(key, parts)
        self._put_if_absent.bytes += _length_bytes(parts)

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """`ObjectStore.put`."""
        with self._put.measure():
            await self._store.put(key, parts)
        self._put.bytes += _length_bytes(parts)

    async def get(self, key: str) -> bytes:
        """`ObjectStore.get`."""
        with self._get.measure(ObjectNotFoundError):
            content = await self._store.get(key)
        self._get.bytes += len(content)
        return content

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """`ObjectStore.get_range`."""
        with self._get_range.measure(ObjectNotFoundError):
            content = await self._store.get_range(key, start, length)
        self._get_range.bytes += len(content)
        return content

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """`ObjectStore.read_into`."""
        with self._read_into.measure(ObjectNotFoundError):
            size_bytes = await self._store.read_into(key, start, length, targets)
        self._read_into.bytes += size_bytes
        return size_bytes

    async def size_bytes(self, key: str) -> int:
        """`ObjectStore.size_bytes`."""
        with self._size_bytes.measure(ObjectNotFoundError):
            return await self._store.size_bytes(key)

    async def list(self, prefix: str) -> AsyncGenerator[ObjectInfo, None]:
        """`ObjectStore.list`. Counted once it ends, with the time spent waiting for the store."""
        objects = aiter(self._store.list(prefix))
        waited_sec = 0.0
        failure: BaseException | None = None
        try:
            while True:
                started = time.perf_counter()
                try:
                    found = await anext(objects)
                except StopAsyncIteration:
                    return
                except BaseException as error:
                    failure = error
                    raise
                finally:
                    waited_sec += time.perf_counter() - started
                yield found
        finally:
            self._list.observe(waited_sec, failure)
            if isinstance(objects, AsyncGenerator):
                await objects.aclose()

    async def delete(self, keys: Sequence[str]) -> None:
        """`ObjectStore.delete`."""
        with self._delete.measure():
            await self._store.delete(keys)

    async def close(self) -> None:
        """`ObjectStore.close`."""
        await self._store.close()


def _length_bytes(parts: Sequence[Buffer]) -> int:
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)
