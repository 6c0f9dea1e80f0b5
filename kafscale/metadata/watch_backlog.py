"""The committed changes of watched keys that their watcher has not received yet, up to a limit."""

import asyncio
from collections.abc import Callable

from kafscale.metadata.store import Changes, Delete, KeyValue

# A watcher further behind than this starts over from a snapshot.
MAX_BACKLOG_BYTES = 8 * 1024 * 1024
# What a change costs beside its key and value: the objects around them.
_CHANGE_OVERHEAD_BYTES = 200


class WatchBacklog:
    """One watcher's backlog. It begins, and begins again when there is too much, with a snapshot."""

    def __init__(self, wants: Callable[[str], bool], max_backlog_bytes: int) -> None:
        self.wants = wants
        self.woken = asyncio.Event()
        self.needs_snapshot = True
        self._max_backlog_bytes = max_backlog_bytes
        self._backlog: list[KeyValue | Delete] = []
        self._backlog_bytes = 0
        self._revision = 0

    def add(self, changes: Changes) -> None:
        """Keep what one or more whole transactions changed, of the keys that are wanted."""
        if self.needs_snapshot:
            return
        for change in changes.puts_and_deletes:
            if self.wants(change.key):
                self._backlog.append(change)
                self._backlog_bytes += size_bytes(change)
                self._revision = changes.revision
        if self._backlog_bytes > self._max_backlog_bytes:
            self.start_over()
        if self._backlog:
            self.woken.set()

    def start_over(self) -> None:
        """Forget everything: a snapshot must come next."""
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


def size_bytes(change: KeyValue | Delete) -> int:
    """The approximate memory of a change."""
    value_bytes = len(change.value) if isinstance(change, KeyValue) else 0
    return len(change.key) + value_bytes + _CHANGE_OVERHEAD_BYTES
