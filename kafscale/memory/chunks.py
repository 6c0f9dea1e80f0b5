"""The chunks of an object that is created as a stream, held against the size that was announced."""

from collections.abc import AsyncIterator

from kafscale.protocol.types import Buffer


class ExactChunks:
    """An iterator over the chunks as views of bytes. Raises `ValueError` unless they have `size_bytes` together.

    What `chunks` raises goes through as it is. A chunk is valid only until the next one is asked for.
    """

    def __init__(self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int) -> None:
        self._key = key
        self._chunks = chunks
        self._size_bytes = size_bytes
        self._count = 0

    def __aiter__(self) -> "ExactChunks":
        return self

    async def __anext__(self) -> memoryview:
        try:
            chunk = memoryview(await anext(self._chunks)).cast("B")
        except StopAsyncIteration:
            if self._count != self._size_bytes:
                raise self._problem(f"{self._count}") from None
            raise
        self._count += len(chunk)
        if self._count > self._size_bytes:
            raise self._problem(f"{self._count} or more")
        return chunk

    def _problem(self, came: str) -> ValueError:
        return ValueError(f"{came} bytes came for {self._key!r}, {self._size_bytes} were announced")


def check_streamed_size(key: str, size_bytes: int, max_bytes: int) -> None:
    """Raises `ValueError` for an object that cannot be streamed because of its size."""
    if not 0 <= size_bytes <= max_bytes:
        raise ValueError(f"{key!r} has {size_bytes} bytes; legal are 0 to {max_bytes} in this store")


async def collect(chunks: ExactChunks, size_bytes: int) -> memoryview:
    """All chunks in one piece of memory, `size_bytes` long."""
    content = memoryview(bytearray(size_bytes))
    count = 0
    async for chunk in chunks:
        content[count : count + len(chunk)] = chunk
        count += len(chunk)
    return content
