"""Hands a store's committed changes to its watchers, each with a bounded backlog."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from kafscale.metadata.store import Changes, Snapshot
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES, WatchBacklog


class WatchHub:
    """The watchers of one store. Lives on the event loop.

    `read` gives the snapshot of a prefix. It is called between two calls of `publish`, so what it shows must
    be exactly what has been published.
    """

    def __init__(
        self, read: Callable[[str], Snapshot], *, max_backlog_bytes: int = MAX_BACKLOG_BYTES
    ) -> None:
        self._read = read
        self._max_backlog_bytes = max_backlog_bytes
        self._watchers: set[WatchBacklog] = set()
        self._closed = False

    @property
    def watcher_count(self) -> int:
        """How many watches are open."""
        return len(self._watchers)

    def publish(self, committed: Sequence[Changes]) -> None:
        """Pass on durable changes, one entry a transaction, in order of revision."""
        for watcher in self._watchers:
            for changes in committed:
                watcher.add(changes)

    def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """The watch of a prefix, from its first step on; ends when the hub is closed."""
        return self._watch(prefix, lambda key: key.startswith(prefix))

    def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        """The same for one key."""
        return self._watch(key, key.__eq__)

    async def _watch(
        self, prefix: str, wants: Callable[[str], bool]
    ) -> AsyncGenerator[Snapshot | Changes, None]:
        watcher = WatchBacklog(wants, self._max_backlog_bytes)
        self._watchers.add(watcher)
        try:
            while not self._closed:
                if watcher.needs_snapshot:
                    watcher.needs_snapshot = False
                    snapshot = self._read(prefix)
                    yield replace(snapshot, items=tuple(item for item in snapshot.items if wants(item.key)))
                elif (changes := watcher.take()) is not None:
                    yield changes
                else:
                    await watcher.woken.wait()
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        for watcher in self._watchers:
            watcher.woken.set()
