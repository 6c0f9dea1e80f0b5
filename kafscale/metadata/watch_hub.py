"""Hands a store's committed changes to its watchers, each with a bounded backlog."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import replace

from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot

# A watcher further behind than this starts over from a snapshot, whose values the store holds anyway.
MAX_BACKLOG_BYTES = 8 * 1024 * 1024
# What a change costs beside its key and value: the objects around them.
_CHANGE_OVERHEAD_BYTES = 200


class _Watcher:
    """One watcher's backlog: what was committed to the keys it wants and it has not been given yet."""

    def __init__(self, wants: Callable[[str], bool], max_backlog_bytes: int) -> None:
        self.wants = wants
        self.woken = asyncio.Event()
        self.needs_snapshot = True
        self._max_backlog_bytes = max_backlog_bytes
        self._backlog: list[KeyValue | Delete] = []
        self._backlog_bytes = 0
        self._revision = 0

    def add(self, changes: Changes) -> None:
        if self.needs_snapshot:
            return
        for change in changes.puts_and_deletes:
            if self.wants(change.key):
                self._backlog.append(change)
                self._backlog_bytes += _size_bytes(change)
                self._revision = changes.revision
        if self._backlog_bytes > self._max_backlog_bytes:
            self.start_over()
        if self._backlog:
            self.woken.set()

    def start_over(self) -> None:
        self._clear()
        self.needs_snapshot = True
        self.woken.set()

    def take(self) -> Changes | None:
        """The whole backlog as one, None when there is none."""
        self.woken.clear()
        if not self._backlog:
            return None
        changes = Changes(puts_and_deletes=tuple(self._backlog), revision=self._revision)
        self._clear()
        return changes

    def _clear(self) -> None:
        self._backlog = []
        self._backlog_bytes = 0


def _size_bytes(change: KeyValue | Delete) -> int:
    value_bytes = len(change.value) if isinstance(change, KeyValue) else 0
    return len(change.key) + value_bytes + _CHANGE_OVERHEAD_BYTES


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
        self._watchers: set[_Watcher] = set()
        self._closed = False

    @property
    def watcher_count(self) -> int:
        """How many watches are open."""
        return len(self._watchers)

    def publish(self, committed: Sequence[Changes]) -> None:
        """Hand on what became durable, one entry a transaction, in order of revision."""
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
        watcher = _Watcher(wants, self._max_backlog_bytes)
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
