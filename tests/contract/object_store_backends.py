"""The object store backends that the contract suite runs against; a new backend adds itself here."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from kafscale.objects.bucket.config import open_bucket
from kafscale.objects.journal_bucket import JournalBucketStore
from kafscale.objects.local.store import LocalStore
from kafscale.objects.measured_store import MeasuredObjectStore
from kafscale.objects.memory_store import MemoryStore
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.metrics import Metrics
from kafscale.settings.broker import load_settings
from tests.support.s3_server import s3_server

Backend = Callable[[Path], AbstractAsyncContextManager[ObjectStore]]


@asynccontextmanager
async def memory(folder: Path) -> AsyncIterator[ObjectStore]:
    store = MemoryStore(lambda: time.time_ns() // 1_000_000)
    yield store
    await store.close()


@asynccontextmanager
async def measured(folder: Path) -> AsyncIterator[ObjectStore]:
    async with memory(folder) as store:
        yield MeasuredObjectStore(store, Metrics())


@asynccontextmanager
async def local(folder: Path) -> AsyncIterator[ObjectStore]:
    store = LocalStore(folder / "objects", fsync=True)
    yield store
    await store.close()


@asynccontextmanager
async def local_without_fsync(folder: Path) -> AsyncIterator[ObjectStore]:
    store = LocalStore(folder / "objects", fsync=False)
    yield store
    await store.close()


@asynccontextmanager
async def s3(folder: Path) -> AsyncIterator[ObjectStore]:
    with s3_server(folder) as server:
        store = open_bucket(load_settings(server.settings))
        yield store
        await store.close()


@asynccontextmanager
async def s3_in_parts(folder: Path) -> AsyncIterator[ObjectStore]:
    """Every streamed object comes in parts, of the least size that S3 takes."""
    with s3_server(folder) as server:
        store = open_bucket(load_settings(server.settings), multipart_above_bytes=0, part_bytes=5 * 2**20)
        yield store
        await store.close()


@asynccontextmanager
async def s3_directory(folder: Path) -> AsyncIterator[ObjectStore]:
    """A bucket whose name is that of a directory bucket: listings are read whole and sorted."""
    with s3_server(folder, "journals--use1-az4--x-s3") as server:
        store = open_bucket(load_settings(server.settings))
        yield store
        await store.close()


@asynccontextmanager
async def two_buckets(folder: Path) -> AsyncIterator[ObjectStore]:
    async with memory(folder) as records, memory(folder) as journals:
        store = JournalBucketStore(records, journals, "n")
        yield store
        await store.close()


BACKENDS: dict[str, Backend] = {
    "memory": memory,
    "measured": measured,
    "local": local,
    "local-without-fsync": local_without_fsync,
    "s3": s3,
    "s3-directory": s3_directory,
    "two-buckets": two_buckets,
}
STREAMING_BACKENDS = BACKENDS | {"s3-in-parts": s3_in_parts}
