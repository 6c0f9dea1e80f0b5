"""The metadata stores that the contract suite runs against: one line a backend."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from kafscale.metadata.measured_store import MeasuredMetadataStore
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import MetadataStore
from kafscale.ops.metrics import Metrics
from tests.metadata.etcd_stores import etcd_store
from tests.support.etcd_server import SHARED

OpenStore = Callable[[Path], AbstractAsyncContextManager[MetadataStore]]


@asynccontextmanager
async def memory(_: Path) -> AsyncIterator[MetadataStore]:
    """A store with nothing in it, closed at the end."""
    store = MemoryStore()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def measured(folder: Path) -> AsyncIterator[MetadataStore]:
    """The store in memory with its calls counted."""
    async with memory(folder) as store:
        yield MeasuredMetadataStore(store, Metrics())


@asynccontextmanager
async def sqlite(folder: Path) -> AsyncIterator[MetadataStore]:
    """A store with nothing in it, closed at the end."""
    store = await SqliteStore.open(folder / "metadata.db")
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def etcd(_: Path) -> AsyncIterator[MetadataStore]:
    """A prefix with nothing under it in a real etcd, closed at the end."""
    async with etcd_store(SHARED.endpoint(), prefix=f"/contract/{uuid.uuid4().hex}") as store:
        yield store


BACKENDS: dict[str, OpenStore] = {"memory": memory, "measured": measured, "sqlite": sqlite, "etcd": etcd}
