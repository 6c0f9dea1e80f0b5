"""The object store in memory, for tests and simulations: as strict as the others, gone with the process."""

import sys
from collections.abc import AsyncIterator, Callable, Sequence

from kafscale.errors import ObjectExistsError, ObjectNotFoundError
from kafscale.formats.object_keys import object_key_problem
from kafscale.memory.chunks import ExactChunks, check_streamed_size, collect
from kafscale.objects.object_store import ObjectInfo
from kafscale.protocol.types import Buffer


class MemoryStore:
    """`ObjectStore` in a dictionary. `now_ms` gives the Unix milliseconds that listings show."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._objects: dict[str, tuple[bytes, int]] = {}

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        _check(key)
        if key in self._objects:
            raise ObjectExistsError(key)
        self._objects[key] = (b"".join(parts), self._now_ms())

    async def put_if_absent_streamed(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        """See `ObjectStore`."""
        _check(key)
        check_streamed_size(key, size_bytes, self.max_streamed_bytes)
        content = await collect(ExactChunks(key, chunks, size_bytes), size_bytes)
        await self.put_if_absent(key, [content])

    @property
    def max_streamed_bytes(self) -> int:
        """See `ObjectStore`. It is the memory that limits them."""
        return sys.maxsize

    async def put(self, key: str, parts: Sequence[Buffer]) -> None:
        """See `ObjectStore`."""
        _check(key)
        self._objects[key] = (b"".join(parts), self._now_ms())

    async def get(self, key: str) -> bytes:
        """See `ObjectStore`."""
        return self._find(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectStore`."""
        if start < 0 or length < 0:
            raise ValueError(f"a range of {length} bytes at {start} is not legal: neither may be negative")
        return self._find(key)[start : start + length]

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        """See `ObjectStore`."""
        found = await self.get_range(key, start, length)
        fill(targets, found)
        return len(found)

    async def size_bytes(self, key: str) -> int:
        """See `ObjectStore`."""
        return len(self._find(key))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """See `ObjectStore`."""
        for key in sorted((key for key in self._objects if key.startswith(prefix)), key=str.encode):
            entry = self._objects.get(key)
            if entry is not None:  # Deleted while the caller dealt with the object before it.
                yield ObjectInfo(key=key, size_bytes=len(entry[0]), modified_ms=entry[1])

    async def delete(self, keys: Sequence[str]) -> None:
        """See `ObjectStore`."""
        for key in keys:
            _check(key)
            self._objects.pop(key, None)

    async def close(self) -> None:
        """See `ObjectStore`."""
        self._objects.clear()

    def _find(self, key: str) -> bytes:
        _check(key)
        entry = self._objects.get(key)
        if entry is None:
            raise ObjectNotFoundError(key)
        return entry[0]


def fill(targets: Sequence[memoryview], data: bytes) -> None:
    """Copy the data to the beginning of the targets, one after the other."""
    for target in targets:
        part, data = data[: len(target)], data[len(target) :]
        target[: len(part)] = part


def _check(key: str) -> None:
    problem = object_key_problem(key)
    if problem is not None:
        raise ValueError(problem)
