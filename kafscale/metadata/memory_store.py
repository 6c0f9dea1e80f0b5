"""The metadata store in memory: the reference for every backend, for tests and simulations."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.request_rules import MAX_OPERATIONS, check_transaction, check_ttl
from kafscale.metadata.store import Changes, Compare, KeyValue, Operation, Snapshot, TransactionResult
from kafscale.metadata.store_state import StoreState
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES
from kafscale.metadata.watch_hub import WatchHub


class MemoryStore:
    """A `MetadataStore` that loses everything with its process. Time is the event loop's.

    Every method lets other tasks run before it acts, as a store over a network would.
    """

    def __init__(
        self, *, max_operations: int = MAX_OPERATIONS, max_backlog_bytes: int = MAX_BACKLOG_BYTES
    ) -> None:
        self._state = StoreState(Keyspace())
        self._hub = WatchHub(self._state.keyspace.range, max_backlog_bytes=max_backlog_bytes)
        self._max_operations = max_operations
        self._expiry: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def max_operations(self) -> int:
        """How many compares, and how many operations, one transaction may hold."""
        return self._max_operations

    @property
    def watcher_count(self) -> int:
        """How many watches are open."""
        return self._hub.watcher_count

    async def get(self, key: str) -> KeyValue | None:
        """See `MetadataStore.get`."""
        await self._step()
        return self._state.keyspace.get(key)

    async def range(self, prefix: str) -> Snapshot:
        """See `MetadataStore.range`."""
        await self._step()
        return self._state.keyspace.range(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """See `MetadataStore.transact`."""
        check_transaction(compares, operations, self._max_operations)
        await self._step()
        result = self._state.transact(compares, operations)
        self._commit()
        return result

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore.watch`."""
        return self._hub.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """See `MetadataStore.watch_key`."""
        return self._hub.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        """See `MetadataStore.grant_lease`."""
        check_ttl(ttl_sec)
        await self._step()
        lease = self._state.grant_lease(ttl_sec, asyncio.get_running_loop().time())
        self._arm_expiry()
        return lease

    async def renew_lease(self, lease: int) -> bool:
        """See `MetadataStore.renew_lease`."""
        await self._step()
        renewed = self._state.renew_lease(lease, asyncio.get_running_loop().time())
        self._arm_expiry()
        return renewed

    async def revoke_lease(self, lease: int) -> None:
        """See `MetadataStore.revoke_lease`."""
        await self._step()
        self._state.revoke_lease(lease)
        self._commit()
        self._arm_expiry()

    async def close(self) -> None:
        """See `MetadataStore.close`."""
        self._closed = True
        self._hub.close()
        if self._expiry is not None:
            self._expiry.cancel()

    async def _step(self) -> None:
        await asyncio.sleep(0)
        if self._closed:
            raise StoreUnavailableError("the metadata store in memory is closed")

    def _commit(self) -> None:
        self._hub.publish(self._state.commit())

    def _arm_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        due_sec = self._state.next_expiry_sec()
        self._expiry = None if due_sec is None else asyncio.get_running_loop().call_at(due_sec, self._expire)

    def _expire(self) -> None:
        # The loop may call a timer up to its clock's resolution early: such a lease waits for the next timer.
        self._state.expire_leases(asyncio.get_running_loop().time())
        self._commit()
        self._arm_expiry()
