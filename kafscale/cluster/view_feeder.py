"""The task that keeps a `ClusterView` equal to the metadata store, by its watches."""

import asyncio
import logging
from contextlib import aclosing

from kafscale.cluster.view import PREFIXES, ClusterView
from kafscale.errors import StoreError
from kafscale.metadata.store import MetadataStore

_log = logging.getLogger(__name__)


class ClusterViewFeeder:
    """Watches the store for a view. A watch that fails is begun again; its snapshot shows what was missed."""

    def __init__(self, store: MetadataStore, view: ClusterView, *, retry_delay_sec: float = 0.5) -> None:
        self._store = store
        self._view = view
        self._retry_delay_sec = retry_delay_sec

    async def run(self) -> None:
        """Feed the view until cancelled.

        Raises `UnknownFormatVersionError` (in an `ExceptionGroup`) when a feature is finalized at a level that
        this program does not support: a broker that does not know what the others rely on must not go on.
        """
        async with asyncio.TaskGroup() as tasks:
            for prefix in PREFIXES:
                tasks.create_task(self._feed(prefix), name=f"view-{prefix.rstrip('/')}")

    async def _feed(self, prefix: str) -> None:
        while True:
            try:
                await self._follow(prefix)
            except StoreError as problem:
                _log.warning("watch of %s broke, beginning it again: %s", prefix, problem)
            await asyncio.sleep(self._retry_delay_sec)

    async def _follow(self, prefix: str) -> None:
        async with aclosing(self._store.watch(prefix)) as events:
            async for event in events:
                self._view.apply(prefix, event)
