"""An object store whose calls are counted and reported to its health, for any backend."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractContextManager, nullcontext

from kafscale.errors import ObjectExistsError, ObjectNotFoundError
from kafscale.objects.health import ObjectStoreHealth, StreamedWrite
from kafscale.objects.object_store import ObjectInfo, ObjectStore
from kafscale.ops.metrics import Metrics
from kafscale.protocol.types import Buffer


class MeasuredObjectStore:
    """Passes every call of `ObjectStore` on to `store` and counts it in `metrics` under the method's name.

    Reads and writes are reported to `health`. Deletions are not: no client waits for one, and who may not delete may
    still write.
    """

    def __init__(self, store: ObjectStore, metrics: Metrics, health: ObjectStoreHealth | None = None) -> None:
        self._store = store
        self._health = health
        self._put_if_absent = metrics.object_store("put_if_absent")
        self._put_if_absent_streamed = metrics.object_store("put_if_absent_streamed")
        self._put = metrics.object_store("put")
        self._get = metrics.object_store("get")
        self._get_range = metrics.object_store("get_range")
        self._read_into = metrics.object_store("read_into")
        self._size_bytes = metrics.object_store("size_bytes")
        self._list = metrics.object_store("list")
        self._delete = metrics.object_store("delete")

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """`ObjectStore.put_if_absent`."""
        size_bytes = _length_bytes(parts)
        with self._put_if_absent.measure(ObjectExistsError), self._writing(size_bytes):
            await self._store.put_if_absent(key, parts)
        self._put_if_absent.bytes += size_bytes

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """`ObjectStore.put_if_absent_streamed`. The time that the chunks take to come is not counted."""
        failure: BaseException | None = None
        with nullcontext() if self._health is None else self._health.streaming() as write:
            measured = _MeasuredChunks(chunks, write)
            try:
                await self._store.put_if_absent_streamed(key, measured, size_bytes)
            except BaseException as error:
                # What the chunks end with is not the store's failure, and an object that is there is none.
                failure = None if measured.has_failed or isinstance(error, ObjectExistsError) else error
                raise
            finally:
                self._put_if_absent_streamed.observe(measured.store_sec(), failure)
        self._put_if_absent_streamed.bytes += size_bytes

    @property
    def max_streamed_bytes(self) -> int:
        """`ObjectStore.max_streamed_bytes`."""
        return self._store.max_streamed_bytes

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """`ObjectStore.put`."""
        size_bytes = _length_bytes(parts)
        with self._put.measure(), self._writing(size_bytes):
            await self._store.put(key, parts)
        self._put.bytes += size_bytes

    async def get(self, key: str) -> bytes:
        """`ObjectStore.get`."""
        with self._get.measure(ObjectNotFoundError), self._reading():
            content = await self._store.get(key)
        self._get.bytes += len(content)
        return content

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """`ObjectStore.get_range`."""
        with self._get_range.measure(ObjectNotFoundError), self._reading(length):
            content = await self._store.get_range(key, start, length)
        self._get_range.bytes += len(content)
        return content

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """`ObjectStore.read_into`."""
        with self._read_into.measure(ObjectNotFoundError), self._reading(length):
            size_bytes = await self._store.read_into(key, start, length, targets)
        self._read_into.bytes += size_bytes
        return size_bytes

    async def size_bytes(self, key: str) -> int:
        """`ObjectStore.size_bytes`."""
        with self._size_bytes.measure(ObjectNotFoundError), self._reading():
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
                    with self._listing():
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

    def _reading(self, size_bytes: int = 0) -> AbstractContextManager[None]:
        return nullcontext() if self._health is None else self._health.reading(size_bytes)

    def _writing(self, size_bytes: int) -> AbstractContextManager[None]:
        return nullcontext() if self._health is None else self._health.writing(size_bytes)

    def _listing(self) -> AbstractContextManager[None]:
        return nullcontext() if self._health is None else self._health.listing()


class _MeasuredChunks:
    """Chunks in flight to the store, which know if it is the store that is waited for."""

    def __init__(self, chunks: AsyncIterator[Buffer], write: StreamedWrite | None) -> None:
        self._chunks = chunks
        self._write = write
        self._started_sec = time.perf_counter()
        self._waited_sec = 0.0
        self.has_failed = False

    def __aiter__(self) -> "_MeasuredChunks":
        return self

    async def __anext__(self) -> Buffer:
        if self._write is not None:
            self._write.waits()
        started_sec = time.perf_counter()
        try:
            chunk = await anext(self._chunks)
        except StopAsyncIteration:
            self._goes_on()
            raise
        except BaseException:
            self.has_failed = True
            raise
        finally:
            self._waited_sec += time.perf_counter() - started_sec
        self._goes_on()
        return chunk

    def _goes_on(self) -> None:
        if self._write is not None:
            self._write.goes_on()

    def store_sec(self) -> float:
        """The time since the start that was the store's."""
        return time.perf_counter() - self._started_sec - self._waited_sec


def _length_bytes(parts: Sequence[Buffer]) -> int:
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)
