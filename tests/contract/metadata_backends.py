"""The metadata stores that the contract suite runs against: one line a backend."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.sqlite_store import SqliteStore
from kafscale.metadata.store import MetadataStore

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
async def sqlite(folder: Path) -> AsyncIterator[MetadataStore]:
    """A store with nothing in it, closed at the end."""
    store = await SqliteStore.open(folder / "metadata.db")
    try:
        yield store
    finally:
        await store.close()


BACKENDS: dict[str, OpenStore] = {"memory": memory, "sqlite": sqlite}
