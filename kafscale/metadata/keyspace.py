"""The keys and values of a metadata store at one revision."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator

from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot


class Keyspace:
    """A sorted map of keys, changed only by applying whole transactions in order of revision."""

    def __init__(self, items: Iterable[KeyValue] = (), revision: int = 0) -> None:
        self._items = {item.key: item for item in items}
        self._sorted_keys = sorted(self._items)
        self._keys_by_lease: dict[int, set[str]] = {}
        self._revision = revision
        for item in self._items.values():
            self._bind(item)

    @property
    def revision(self) -> int:
        """The revision of the newest applied transaction."""
        return self._revision

    def __iter__(self) -> Iterator[KeyValue]:
        return (self._items[key] for key in self._sorted_keys)

    def get(self, key: str) -> KeyValue | None:
        """The key as of the revision, None when it is not there."""
        return self._items.get(key)

    def range(self, prefix: str) -> Snapshot:
        """Everything under the prefix, ascending by key."""
        keys = self._sorted_keys
        found = []
        for position in range(bisect_left(keys, prefix), len(keys)):
            if not keys[position].startswith(prefix):
                break
            found.append(self._items[keys[position]])
        return Snapshot(items=tuple(found), revision=self._revision)

    def keys_of_lease(self, lease: int) -> frozenset[str]:
        """The keys that are bound to the lease."""
        return frozenset(self._keys_by_lease.get(lease, ()))

    def apply(self, changes: Changes) -> None:
        """Take over one transaction's changes and its revision."""
        for change in changes.puts_and_deletes:
            if isinstance(change, Delete):
                self._remove(change.key)
            else:
                self._put(change)
        self._revision = changes.revision

    def _put(self, item: KeyValue) -> None:
        old = self._items.get(item.key)
        if old is None:
            insort(self._sorted_keys, item.key)
        else:
            self._unbind(old)
        self._items[item.key] = item
        self._bind(item)

    def _remove(self, key: str) -> None:
        old = self._items.pop(key, None)
        if old is not None:
            del self._sorted_keys[bisect_left(self._sorted_keys, key)]
            self._unbind(old)

    def _bind(self, item: KeyValue) -> None:
        if item.lease:
            self._keys_by_lease.setdefault(item.lease, set()).add(item.key)

    def _unbind(self, item: KeyValue) -> None:
        if item.lease:
            keys = self._keys_by_lease[item.lease]
            keys.remove(item.key)
            if not keys:
                del self._keys_by_lease[item.lease]
