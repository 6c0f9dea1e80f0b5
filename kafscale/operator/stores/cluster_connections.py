"""Connections to all clusters' metadata stores: one each, reopened when its settings or Secrets change."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kafscale.metadata.store import MetadataStore
from kafscale.operator.cluster_spec import ClusterSpec
from kafscale.operator.keyed_locks import KeyedLocks
from kafscale.operator.stores.cluster_connection import (
    CONNECTING,
    ClusterConnection,
    LiveCluster,
    NotReadyError,
)
from kafscale.operator.stores.metadata_access import SecretReader, StoreAccess, open_store, store_access
from kafscale.settings.broker import Settings

_logger = logging.getLogger(__name__)

SECRETS_AGE_SEC: Final = 20.0
"""Age at which Secrets are read again: passwords and certificates are rotated."""

Listener = Callable[[str, str, str | None], None]
"""Called with a cluster's namespace and name and the topic that changed; None: anything may have."""


@dataclass(slots=True, kw_only=True)
class _Kept:
    cluster: ClusterSpec
    access: StoreAccess
    checked_at: float
    connection: ClusterConnection
    running: asyncio.Task[None]


class ClusterConnections:
    """The operator's connections. `now`: monotonic seconds. Must be closed.

    `check_may_write`: asked before each write to a cluster that is live; see `SameClusterStore`.
    """

    def __init__(
        self,
        secrets: SecretReader,
        now: Callable[[], float],
        check_may_write: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._check_may_write = check_may_write
        self._secrets = secrets
        self._now = now
        self._kept: dict[tuple[str, str], _Kept] = {}
        self._locks = KeyedLocks()
        self._ending: set[asyncio.Task[None]] = set()
        self._listeners: list[Listener] = []
        self._closed = False

    def listen(self, listener: Listener) -> None:
        """Calls `listener` whenever a connected cluster changes, appears or disappears."""
        self._listeners.append(listener)

    def notify(self, namespace: str, name: str) -> None:
        """Calls every listener: the cluster's resource changed."""
        for listener in tuple(self._listeners):
            listener(namespace, name, None)

    @asynccontextmanager
    async def store(self, cluster: ClusterSpec) -> AsyncIterator[MetadataStore]:
        """The cluster's metadata store, whatever its content; stays open for the block.

        Raises `NotReadyError`, `SecretError`, `KubeError`, `SpecError`; its calls raise `StoreError`.
        """
        connection = await self._connection(cluster)
        async with connection.store() as store:
            yield store

    @asynccontextmanager
    async def live(self, cluster: ClusterSpec) -> AsyncIterator[LiveCluster]:
        """The cluster, once a broker has started it. Raises as `store` does."""
        connection = await self._connection(cluster)
        async with connection.live() as live:
            yield live

    async def forget(self, namespace: str, name: str) -> None:
        """Closes a deleted cluster's connection once it has no users."""
        async with self._locks.held(namespace, name):
            self._retire((namespace, name))

    async def close(self) -> None:
        """Closes all connections; no cluster is ready afterwards."""
        self._closed = True
        for key in list(self._kept):
            await self.forget(*key)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _connection(self, cluster: ClusterSpec) -> ClusterConnection:
        key = (cluster.namespace, cluster.name)
        async with self._locks.held(*key):
            if self._closed:
                raise NotReadyError(CONNECTING, "the operator is stopping")
            kept = self._kept.get(key)
            is_fresh = kept is not None and self._now() - kept.checked_at < SECRETS_AGE_SEC
            if kept is not None and is_fresh and kept.cluster == cluster:
                return kept.connection
            access = await store_access(cluster, self._secrets)
            if kept is None or kept.access != access or kept.running.done():
                self._retire(key)
                kept = self._open(cluster, access)
                self._kept[key] = kept
            kept.cluster, kept.checked_at = cluster, self._now()
            return kept.connection

    def _open(self, cluster: ClusterSpec, access: StoreAccess) -> _Kept:
        namespace, name = cluster.namespace, cluster.name

        async def opened(stack: AsyncExitStack) -> tuple[MetadataStore, Settings]:
            return await open_store(access, stack)

        def changed(topic: str | None) -> None:
            for listener in tuple(self._listeners):
                listener(namespace, name, topic)

        connection = ClusterConnection(f"{namespace}/{name}", opened, changed, self._check_may_write)
        running = asyncio.create_task(connection.run(), name=f"connection to {namespace}/{name}")
        running.add_done_callback(_log_defect)
        return _Kept(
            cluster=cluster, access=access, checked_at=self._now(), connection=connection, running=running
        )

    def _retire(self, key: tuple[str, str]) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            kept.running.cancel()
            self._ending.add(kept.running)
            kept.running.add_done_callback(self._ending.discard)


def _log_defect(running: asyncio.Task[None]) -> None:
    if not running.cancelled() and (problem := running.exception()) is not None:
        _logger.error("%s failed", running.get_name(), exc_info=problem)
