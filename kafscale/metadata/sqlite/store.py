"""The embedded metadata store: one SQLite file, opened by one process, written by one thread."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path
from typing import TypeVar

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.request_rules import MAX_OPERATIONS, check_transaction, check_ttl
from kafscale.metadata.sqlite.worker import Outcome, Request, SqliteWorker, resolve
from kafscale.metadata.store import Changes, Compare, KeyValue, Operation, Snapshot, TransactionResult
from kafscale.metadata.store_state import StoreState
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES
from kafscale.metadata.watch_hub import WatchHub

Result = TypeVar("Result")


class SqliteStore:
    """A `MetadataStore` in a file. Use `open`; everything else belongs to the event loop that called it.

    Answers reads from a copy of the durable state; the worker does everything else. A lease ends with the process
    at the latest: its keys are deleted when it ends, or when the file is opened the next time.
    """

    def __init__(
        self, path: Path, *, fsync: bool, clock: Callable[[], float], max_backlog_bytes: int
    ) -> None:
        self._path = path
        self._keyspace = Keyspace()
        self._hub = WatchHub(self._range, max_backlog_bytes=max_backlog_bytes)
        self._worker = SqliteWorker(path, fsync=fsync, clock=clock, deliver=self._deliver)
        self._refusal: str | None = None
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        fsync: bool = True,
        clock: Callable[[], float] = time.monotonic,
        max_backlog_bytes: int = MAX_BACKLOG_BYTES,
    ) -> "SqliteStore":
        """Open the file, or create it; its folder must exist.

        With `fsync=False` a killed process still loses nothing, but a crash of the machine may lose what was
        acknowledged last or leave a file that cannot be opened. `clock` (seconds, never going back) drives
        the leases; `max_backlog_bytes` is kept for a slow watcher before it starts over.

        Raises `StartupError` if the file is in use, corrupt, of another program or of an unknown version.
        """
        store = cls(path, fsync=fsync, clock=clock, max_backlog_bytes=max_backlog_bytes)
        store._keyspace = await store._worker.start()
        return store

    @property
    def max_operations(self) -> int:
        """The most compares, and the most operations, of one transaction."""
        return MAX_OPERATIONS

    @property
    def watcher_count(self) -> int:
        """The number of open watches."""
        return self._hub.watcher_count

    async def get(self, key: str) -> KeyValue | None:
        """See `MetadataStore.get`."""
        self._check_usable()
        return self._keyspace.get(key)

    async def range(self, prefix: str) -> Snapshot:
        """See `MetadataStore.range`."""
        self._check_usable()
        return self._range(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """See `MetadataStore.transact`."""
        check_transaction(compares, operations, MAX_OPERATIONS)
        held, wanted = tuple(compares), tuple(operations)
        return await self._submit(lambda state, _: state.transact(held, wanted))

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore.watch`."""
        return self._hub.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore.watch_key`."""
        return self._hub.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        """See `MetadataStore.grant_lease`."""
        check_ttl(ttl_sec)
        return await self._submit(lambda state, now: state.grant_lease(ttl_sec, now))

    async def renew_lease(self, lease: int) -> bool:
        """See `MetadataStore.renew_lease`."""
        return await self._submit(lambda state, now: state.renew_lease(lease, now))

    async def revoke_lease(self, lease: int) -> None:
        """See `MetadataStore.revoke_lease`."""
        await self._submit(lambda state, _: state.revoke_lease(lease))

    async def close(self) -> None:
        """See `MetadataStore.close`. Drains the queue: earlier requests are done and answered."""
        if not self._closed:
            self._closed = True
            self._hub.close()
            await self._worker.stop()

    async def _submit(self, decide: Callable[[StoreState, float], Result]) -> Result:
        if self._closed:
            raise StoreUnavailableError(f"the metadata store {self._path} is closed")
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._worker.submit(Request(decide, future))
        return await future

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreUnavailableError(f"the metadata store {self._path} is closed")
        if self._refusal is not None:
            raise StoreUnavailableError(self._refusal)

    def _range(self, prefix: str) -> Snapshot:
        return self._keyspace.range(prefix)

    def _deliver(self, outcome: Outcome) -> None:
        for changes in outcome.committed:
            self._keyspace.apply(changes)
        self._hub.publish(outcome.committed)
        self._refusal = outcome.unsettled
        for future, answer in outcome.answers:
            resolve(future, answer)
