"""Hands a store's committed changes to its watchers, each with a bounded backlog."""

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import replace

from kafscale.metadata.store import Changes, Snapshot
from kafscale.metadata.watch_backlog import MAX_BACKLOG_BYTES, WatchBacklog


class WatchHub:
    """The watchers of one store. Lives on the event loop.

    A broker has a watcher for each shard that it coordinates, and most changes concern none of them: those of a
    prefix that ends with a `/` are found by the keys that changed.

    `read` gives the snapshot of a prefix. It is called between two calls of `publish`, so what it shows must
    be exactly what has been published.
    """

    def __init__(
        self, read: Callable[[str], Snapshot], *, max_backlog_bytes: int = MAX_BACKLOG_BYTES
    ) -> None:
        self._read = read
        self._max_backlog_bytes = max_backlog_bytes
        self._watchers: set[WatchBacklog] = set()
        self._of_prefix: dict[str, set[WatchBacklog]] = {}
        self._others: set[WatchBacklog] = set()
        self._closed = False

    @property
    def watcher_count(self) -> int:
        """How many watches are open."""
        return len(self._watchers)

    def publish(self, committed: Sequence[Changes]) -> None:
        """Pass on durable changes, one entry a transaction, in order of revision."""
        for changes in committed:
            for watcher in self._concerned(changes):
                watcher.add(changes)

    def _concerned(self, changes: Changes) -> set[WatchBacklog]:
        """The watchers that may want some of the changes."""
        concerned = set(self._others)
        for prefix in {one for change in changes.puts_and_deletes for one in _prefixes(change.key)}:
            concerned.update(self._of_prefix.get(prefix, ()))
        return concerned

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
        of_prefix = self._of_prefix.setdefault(prefix, set()) if prefix.endswith("/") else self._others
        self._watchers.add(watcher)
        of_prefix.add(watcher)
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
            of_prefix.discard(watcher)
            if not of_prefix and of_prefix is self._of_prefix.get(prefix):
                del self._of_prefix[prefix]

    def close(self) -> None:
        """End every watch."""
        self._closed = True
        for watcher in self._watchers:
            watcher.woken.set()


def _prefixes(key: str) -> Iterator[str]:
    """The parts of the key that end with a `/`."""
    end = key.find("/") + 1
    while end:
        yield key[:end]
        end = key.find("/", end) + 1
