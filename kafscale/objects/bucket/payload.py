"""The body of an upload: small objects in one copy, large ones from where they lie."""

import asyncio
from collections.abc import Iterator, Sequence

import obstore
from obstore.store import ObjectStore as Bucket

from kafscale.ops.prices import Operation
from kafscale.protocol.types import Buffer

_MIB = 2**20
# Below this one copy costs less than handing the parts to the library's threads one by one.
_JOINED_BYTES = 256 * 1024
# Above this a put that need not be conditional sends parts at the same time, and in doubt repeats only one.
_MULTIPART_BYTES = 64 * _MIB
_PART_BYTES = 16 * _MIB
_PARTS_AT_ONCE = 4
_COMPARED_BYTES = _MIB
_POLL_SEC = 0.002


class Payload:
    """The parts of one object, to be put once or, after a failure, again."""

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._parts = parts
        self.size_bytes = sum(memoryview(part).nbytes for part in parts)

    async def create(self, bucket: Bucket, key: str) -> None:
        """One conditional request, whatever the size: the library has no conditional multipart upload."""
        if self.size_bytes <= _JOINED_BYTES:
            await obstore.put_async(bucket, key, self._joined(), mode="create")
            return
        views = self._views()
        try:
            await obstore.put_async(bucket, key, views, mode="create")
        finally:
            await _until_released(views)

    async def replace(self, bucket: Bucket, key: str) -> None:
        """One request, or several for a large object; it is visible whole in the end or not at all."""
        if self.size_bytes <= _JOINED_BYTES:
            await obstore.put_async(bucket, key, self._joined(), use_multipart=False)
            return
        views = self._views()
        try:
            await obstore.put_async(
                bucket,
                key,
                views,
                use_multipart=self.size_bytes > _MULTIPART_BYTES,
                chunk_size=_PART_BYTES,
                max_concurrency=_PARTS_AT_ONCE,
            )
        finally:
            await _until_released(views)

    def replacement_requests(self) -> Iterator[tuple[Operation, int]]:
        """The requests that `replace` makes, each with the bytes that it sends."""
        if self.size_bytes <= _MULTIPART_BYTES:
            yield Operation.PUT_OBJECT, self.size_bytes
            return
        yield Operation.CREATE_MULTIPART_UPLOAD, 0
        for start in range(0, self.size_bytes, _PART_BYTES):
            yield Operation.UPLOAD_PART, min(_PART_BYTES, self.size_bytes - start)
        yield Operation.COMPLETE_MULTIPART_UPLOAD, 0

    async def lies_under(self, bucket: Bucket, key: str) -> bool:
        """True if the object under the key has these very bytes. Raises as the library does."""
        found = await obstore.get_async(bucket, key)
        if found.meta["size"] != self.size_bytes:
            return False
        rest = self._views()
        async for chunk in found.stream(_COMPARED_BYTES):
            content = memoryview(chunk)
            while content:
                count = min(len(content), len(rest[0]))
                # As bytes: views are compared item by item.
                if bytes(content[:count]) != bytes(rest[0][:count]):
                    return False
                content, rest[0] = content[count:], rest[0][count:]
                if not rest[0]:
                    rest.pop(0)
        return not rest

    def _joined(self) -> bytes:
        return b"".join(self._parts)

    def _views(self) -> list[memoryview]:
        """Views of our own, whose release fails while the library has views of them."""
        return [view for part in self._parts if (view := memoryview(part).cast("B"))]


async def _until_released(views: Sequence[memoryview]) -> None:
    """Wait until the library no longer reads the caller's memory: it may be reused then.

    After an answer that is so already. After a cancellation the request ends in a thread of the library, a
    moment later; what it still sent from memory that was reused could become an object.
    """
    cancelled = False
    for view in views:
        while not _release(view):
            try:
                await asyncio.sleep(_POLL_SEC)
            except asyncio.CancelledError:
                cancelled = True
    if cancelled:
        raise asyncio.CancelledError


def _release(view: memoryview) -> bool:
    try:
        view.release()
    except BufferError:
        return False
    return True
