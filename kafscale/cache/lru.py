"""A map with a byte limit that drops what was not used for longest; the broker's L1 cache is one."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class ByteLimitedLru(Generic[Key, Value]):
    """Entries with a size in bytes. `dropped` is called with every value that leaves, for whatever reason."""

    def __init__(self, limit_bytes: int, dropped: Callable[[Value], None]) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.evictions = 0
        self._dropped = dropped
        self._entries: OrderedDict[Key, tuple[Value, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._entries

    def get(self, key: Key) -> Value | None:
        """The value, which thereby becomes the one used last."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: Key, value: Value, size_bytes: int) -> None:
        """Add or replace a value; one larger than the limit is dropped at once."""
        self.remove(key)
        if size_bytes > self.limit_bytes:
            self._dropped(value)
            return
        self._entries[key] = (value, size_bytes)
        self.used_bytes += size_bytes
        while self.used_bytes > self.limit_bytes:
            _, (oldest, oldest_size_bytes) = self._entries.popitem(last=False)
            self.used_bytes -= oldest_size_bytes
            self.evictions += 1
            self._dropped(oldest)

    def remove(self, key: Key) -> None:
        """Drop a value; no error when it is not there."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.used_bytes -= entry[1]
            self._dropped(entry[0])
