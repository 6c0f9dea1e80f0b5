"""An object store in two buckets: journals that say so by their id in one, everything else in the other.

The key alone decides (`formats/journal_keys.py`), so that every reader finds an entry where its writer put it, also
while some brokers begin journals in the one bucket and some in the other.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from kafscale.errors import StoreRefusedError
from kafscale.formats.journal_keys import journal_bucket_prefix, journals_prefix
from kafscale.objects.object_store import ListingReader, ObjectInfo, ObjectReader, ObjectStore
from kafscale.protocol.types import Buffer


class JournalBucketReader:
    """`ObjectReader` of both buckets. Without a journal bucket, what would lie there is refused."""

    def __init__(self, records: ObjectReader, journals: ObjectReader | None, namespace: str) -> None:
        self._reads = records
        self._journal_reads = journals
        self._prefix = journal_bucket_prefix(namespace)

    def get(self, key: str) -> Coroutine[Any, Any, bytes]:
        """`ObjectReader.get`."""
        return self._reader(key).get(key)

    def get_range(self, key: str, start: int, length: int) -> Coroutine[Any, Any, bytes]:
        """`ObjectReader.get_range`."""
        return self._reader(key).get_range(key, start, length)

    def read_into(
        self, key: str, start: int, length: int, targets: Sequence[memoryview]
    ) -> Coroutine[Any, Any, int]:
        """`ObjectReader.read_into`."""
        return self._reader(key).read_into(key, start, length, targets)

    def _reader(self, key: str) -> ObjectReader:
        if not key.startswith(self._prefix):
            return self._reads
        if self._journal_reads is None:
            raise _not_set(key)
        return self._journal_reads


class ReplicatedReader(JournalBucketReader):
    """Reads of records go to `replica` first; those of entries, and listings, to `primary`.

    Entries are read in the minute after they were written, when a replica does not have them yet.
    """

    def __init__(self, replica: ObjectReader, primary: ListingReader, namespace: str) -> None:
        super().__init__(replica, primary, namespace)
        self._prefix = journals_prefix(namespace)
        self._primary = primary

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        """`ListingReader.list`."""
        return self._primary.list(prefix)


class JournalBucketStore(JournalBucketReader):
    """`ObjectStore` of both buckets; `close` closes both."""

    def __init__(self, records: ObjectStore, journals: ObjectStore | None, namespace: str) -> None:
        super().__init__(records, journals, namespace)
        self._records = records
        self._journals = journals
        self._journals_prefix = journals_prefix(namespace)

    def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> Coroutine[Any, Any, None]:
        """`ObjectStore.put_if_absent`."""
        return self._store(key).put_if_absent(key, parts)

    def put_if_absent_streamed(
        self, key: str, chunks: AsyncIterator[Buffer], size_bytes: int
    ) -> Coroutine[Any, Any, None]:
        """`ObjectStore.put_if_absent_streamed`."""
        return self._store(key).put_if_absent_streamed(key, chunks, size_bytes)

    @property
    def max_streamed_bytes(self) -> int:
        """`ObjectStore.max_streamed_bytes`, of what is not an entry: those are never streamed."""
        return self._records.max_streamed_bytes

    def put(self, key: str, parts: Sequence[Buffer]) -> Coroutine[Any, Any, None]:
        """`ObjectStore.put`."""
        return self._store(key).put(key, parts)

    def size_bytes(self, key: str) -> Coroutine[Any, Any, int]:
        """`ObjectStore.size_bytes`."""
        return self._store(key).size_bytes(key)

    async def list(self, prefix: str) -> AsyncGenerator[ObjectInfo, None]:
        """`ObjectStore.list`. The keys of the journal bucket stand side by side in the order of keys."""
        if prefix.startswith(self._prefix):
            async with _listing(self._store(prefix), prefix) as found:
                async for info in found:
                    yield info
            return
        journals = self._journals if self._prefix.startswith(prefix) else None
        async with _listing(self._records, prefix) as others:
            async for info in others:
                if journals is not None and info.key.encode() > self._prefix.encode():
                    async with aclosing(self._entries(journals)) as entries:
                        async for entry in entries:
                            yield entry
                    journals = None
                if not info.key.startswith(self._prefix):
                    yield info
        if journals is not None:
            async with aclosing(self._entries(journals)) as entries:
                async for entry in entries:
                    yield entry

    async def delete(self, keys: Sequence[str]) -> None:
        """`ObjectStore.delete`."""
        entries = [key for key in keys if key.startswith(self._prefix)]
        others = [key for key in keys if not key.startswith(self._prefix)]
        if others or not entries:
            await self._records.delete(others)
        if entries:
            await self._store(entries[0]).delete(entries)

    async def close(self) -> None:
        """`ObjectStore.close`."""
        await self._records.close()
        if self._journals is not None:
            await self._journals.close()

    def _store(self, key: str) -> ObjectStore:
        if not key.startswith(self._prefix):
            return self._records
        if self._journals is None:
            raise _not_set(key)
        return self._journals

    async def _entries(self, journals: ObjectStore) -> AsyncGenerator[ObjectInfo, None]:
        # By a whole folder: a directory bucket lists no other prefixes.
        async with _listing(journals, self._journals_prefix) as found:
            async for info in found:
                if info.key.startswith(self._prefix):
                    yield info


@asynccontextmanager
async def _listing(store: ObjectStore, prefix: str) -> AsyncIterator[AsyncIterator[ObjectInfo]]:
    """A listing that ends with the block."""
    objects = store.list(prefix)
    try:
        yield objects
    finally:
        if isinstance(objects, AsyncGenerator):
            await objects.aclose()


def _not_set(key: str) -> StoreRefusedError:
    return StoreRefusedError(
        f"{key!r} lies in a bucket of its own: set KAFSCALE_JOURNAL_BUCKET to the one with the cluster's journals"
    )
