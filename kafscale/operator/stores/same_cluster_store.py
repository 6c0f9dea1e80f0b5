"""A metadata store whose writes fail once it contains a different cluster or none.

When an administrator empties etcd to rebuild it from the bucket or a backup, the operator must not create topics in
it meanwhile: `kafscale recover` would take them for those of a running cluster.
"""

from collections.abc import AsyncGenerator, Callable, Sequence

from kafscale.errors import KafscaleError
from kafscale.metadata import keys
from kafscale.metadata.store import (
    Changes,
    Compare,
    KeyValue,
    MetadataStore,
    Operation,
    Snapshot,
    TransactionResult,
)


class OtherClusterError(KafscaleError):
    """The metadata store was emptied or rebuilt since it was read; nothing was written."""


class SameClusterStore:
    """Forwards every call of `MetadataStore`; each transaction also compares the cluster's key.

    `revision`: that key's last change, as the caller has read it. `check_may_write`: called with a name for the
    write; raises if this operator has lost leadership.
    """

    def __init__(
        self, store: MetadataStore, revision: int, check_may_write: Callable[[str], None] = lambda _: None
    ) -> None:
        self._store = store
        self._check_may_write = check_may_write
        self._same = Compare(keys.CLUSTER, revision)

    @property
    def max_operations(self) -> int:
        """`MetadataStore.max_operations`, less the compare of the cluster's key."""
        return self._store.max_operations - 1

    async def get(self, key: str) -> KeyValue | None:
        """`MetadataStore.get`."""
        return await self._store.get(key)

    async def range(self, prefix: str) -> Snapshot:
        """`MetadataStore.range`."""
        return await self._store.range(prefix)

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        """`MetadataStore.transact`. Raises `OtherClusterError`, and what `check_may_write` raises, too."""
        self._check_may_write("a transaction of the metadata store")
        result = await self._store.transact([*compares, self._same], operations)
        if result.succeeded:
            return result
        *found, cluster = result.found
        if (0 if cluster is None else cluster.mod_revision) != self._same.mod_revision:
            raise OtherClusterError("the metadata store was emptied or rebuilt: it is read again")
        return TransactionResult(succeeded=False, revision=result.revision, found=tuple(found))

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """`MetadataStore.watch`."""
        return self._store.watch(prefix)

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """`MetadataStore.watch_key`."""
        return self._store.watch_key(key)

    async def grant_lease(self, ttl_sec: int) -> int:
        """`MetadataStore.grant_lease`."""
        return await self._store.grant_lease(ttl_sec)

    async def renew_lease(self, lease: int) -> bool:
        """`MetadataStore.renew_lease`."""
        return await self._store.renew_lease(lease)

    async def revoke_lease(self, lease: int) -> None:
        """`MetadataStore.revoke_lease`."""
        await self._store.revoke_lease(lease)

    async def close(self) -> None:
        """`MetadataStore.close`."""
        await self._store.close()
