"""Connection to one cluster's metadata store, and the cluster's view while the store contains a cluster."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.cluster_record import read_cluster_id
from kafscale.cluster.view import ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.errors import CorruptDataError, KafscaleError, StartupError, StoreError
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Changes, KeyValue, MetadataStore, Snapshot
from kafscale.operator.errors import SpecError
from kafscale.operator.stores.same_cluster_store import SameClusterStore
from kafscale.settings.broker import Settings

_logger = logging.getLogger(__name__)

Opener = Callable[[AsyncExitStack], Awaitable[tuple[MetadataStore, Settings]]]
"""Opens the store; the stack closes it. Raises `SpecError`, `StartupError`."""

Changed = Callable[[str | None], None]
"""Called with the name of a topic whose record changed; None: anything may have."""

CONNECTING: Final = "Connecting"
UNREACHABLE: Final = "MetadataStoreUnreachable"
REFUSED: Final = "MetadataStoreRefuses"
CORRUPT: Final = "MetadataCorrupt"
NOT_STARTED: Final = "ClusterNotStarted"
REASONS: Final = (CONNECTING, UNREACHABLE, REFUSED, CORRUPT, NOT_STARTED)

FIRST_LOOK_SEC: Final = 10.0
RETRY_SEC: Final = 2.0
RETRY_CORRUPT_SEC: Final = 30.0
LAST_USERS_SEC: Final = 60.0
"""How long closing a connection waits for its users."""


class NotReadyError(KafscaleError):
    """The cluster is not available now. `reason`: one word."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveCluster:
    """A started cluster. Writes to `store` fail once it contains a different cluster or none."""

    store: SameClusterStore
    view: ClusterView
    settings: Settings


class ClusterConnection:
    """Maintains the connection. `run` needs its own task; methods belong to its event loop. `name`: for the log.

    `changed` is also called when the cluster becomes ready or stops being so.
    """

    def __init__(
        self, name: str, open_store: Opener, changed: Changed, check_may_write: Callable[[str], None]
    ) -> None:
        self._check_may_write = check_may_write
        self._name = name
        self._open_store = open_store
        self._changed = changed
        self._store: MetadataStore | None = None
        self._live: LiveCluster | None = None
        self._problem = NotReadyError(CONNECTING, "the metadata store is being connected to")
        self._known = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()

    @asynccontextmanager
    async def store(self) -> AsyncIterator[MetadataStore]:
        """The store, with or without a cluster in it; stays open for the block.

        Raises `NotReadyError`.
        """
        await self._wait_first_look()
        if self._store is None:
            raise self._problem
        with self._used():
            yield self._store

    @asynccontextmanager
    async def live(self) -> AsyncIterator[LiveCluster]:
        """The cluster; its store stays open for the block. Raises `NotReadyError`."""
        await self._wait_first_look()
        if self._live is None:
            raise self._problem
        with self._used():
            yield self._live

    async def run(self) -> None:
        """Runs until cancelled; then waits for the store's users."""
        while True:
            async with AsyncExitStack() as stack:
                try:
                    store, settings = await self._open_store(stack)
                except (SpecError, StartupError) as problem:
                    self._set_not_ready(REFUSED, str(problem))
                else:
                    await self._keep(store, settings)
            await asyncio.sleep(RETRY_SEC)

    async def _keep(self, store: MetadataStore, settings: Settings) -> None:
        self._store = store
        try:
            while True:
                try:
                    await self._follow(store, settings)
                except StoreError as problem:
                    self._set_not_ready(UNREACHABLE, f"the metadata store does not answer: {problem}")
                except CorruptDataError as problem:
                    self._set_not_ready(CORRUPT, str(problem))
                await asyncio.sleep(RETRY_SEC)
        finally:
            await self._stop_feeding()
            self._store = None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_USERS_SEC):
                    await self._unused.wait()

    async def _follow(self, store: MetadataStore, settings: Settings) -> None:
        """Watches the key with the cluster's id, and maintains the view of the cluster that it names."""
        async with aclosing(store.watch_key(keys.CLUSTER)) as events:
            async for event in events:
                await self._stop_feeding()
                held = _left_by(event)
                cluster_id = None if held is None else await read_cluster_id(store)
                if held is None or cluster_id is None:
                    self._set_not_ready(
                        NOT_STARTED,
                        "the metadata store holds no cluster: either no broker has started yet, or it was lost "
                        "and is to be rebuilt",
                    )
                    continue
                self._feeding = asyncio.create_task(
                    self._maintain_view(store, settings, held, cluster_id), name=f"view of {cluster_id}"
                )

    async def _maintain_view(
        self, store: MetadataStore, settings: Settings, held: KeyValue, cluster_id: str
    ) -> None:
        """Maintains a view of the cluster; starts again after a corrupt record, which may be repaired."""
        while True:
            live = LiveCluster(
                store=SameClusterStore(store, held.mod_revision, self._check_may_write),
                view=ClusterView(cluster_id),
                settings=settings,
            )
            try:
                await self._feed(live)
            except* CorruptDataError as problems:
                self._set_not_ready(CORRUPT, "; ".join(str(each) for each in problems.exceptions))
            await asyncio.sleep(RETRY_CORRUPT_SEC)

    async def _feed(self, live: LiveCluster) -> None:
        def topic_changed(before: TopicRecord | None, after: TopicRecord | None) -> None:
            record = after or before
            if record is not None:
                self._changed(record.name)

        feeder = asyncio.create_task(ClusterViewFeeder(live.store, live.view).run(), name="feed view")
        ready = asyncio.create_task(live.view.ready(), name="view is ready")
        try:
            await asyncio.wait([feeder, ready], return_when=asyncio.FIRST_COMPLETED)
            if not feeder.done():
                live.view.subscribe(topic_changed)
                self._live = live
                self._known.set()
                self._changed(None)
            await feeder
        finally:
            feeder.cancel()
            ready.cancel()
            await asyncio.gather(feeder, ready, return_exceptions=True)

    async def _stop_feeding(self) -> None:
        feeding, self._feeding = self._feeding, None
        self._live = None
        if feeding is not None:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    def _set_not_ready(self, reason: str, message: str) -> None:
        was = str(self._problem) if self._live is None else None
        self._live, self._problem = None, NotReadyError(reason, message)
        self._known.set()
        if was != message:
            _logger.warning("cluster %s: %s", self._name, message)
            self._changed(None)

    async def _wait_first_look(self) -> None:
        """Waits for the first state, so that the first caller gets an answer rather than CONNECTING."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SEC):
                await self._known.wait()

    @contextlib.contextmanager
    def _used(self) -> Iterator[None]:
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()


def _left_by(event: Snapshot | Changes) -> KeyValue | None:
    """The watched key after the event; None: it does not exist."""
    if isinstance(event, Snapshot):
        return next(iter(event.items), None)
    last = event.puts_and_deletes[-1]
    return last if isinstance(last, KeyValue) else None
