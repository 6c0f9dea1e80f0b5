"""A part of the view: the records below one prefix, each by its key, as the metadata store last showed them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, NamedTuple, Protocol, TypeVar

from kafscale.cluster.listeners import Listeners
from kafscale.cluster.unreadable_records import UnreadableRecords
from kafscale.metadata.store import ABSENT, Delete, KeyValue
from kafscale.ops.item_failures import ItemFailures

Record = TypeVar("Record")


class RecordTable(Protocol):
    """The records below a prefix, as the view uses them."""

    def known_keys(self) -> list[str]:
        """The keys that were there."""

    def apply(self, changes: Iterable[KeyValue | Delete]) -> None:
        """Take in changes, in their order."""


class Watched(NamedTuple, Generic[Record]):
    """A record, and the revision at which it was written."""

    record: Record
    revision: int


class WatchedRecords(Generic[Record]):
    """The records below a prefix that can be read; one that cannot any more stays as it was known, if `keeps`.

    Listeners are called with a key after its record has changed; a snapshot that replaces everything calls them for
    the differences only.
    """

    def __init__(
        self,
        decode: Callable[[str, bytes], Record],
        unreadable: UnreadableRecords,
        failures: ItemFailures,
        *,
        keeps: bool = True,
    ) -> None:
        """`decode` raises what says that a record, given by key and value, cannot be read."""
        self._decode = decode
        self._keeps = keeps
        self._unreadable = unreadable
        self._records: dict[str, Watched[Record]] = {}
        self._listeners: Listeners[Callable[[str], None]] = Listeners(failures)

    def items(self) -> Mapping[str, Watched[Record]]:
        """All records, by key."""
        return self._records

    def get(self, key: str) -> Record | None:
        """The record, None when there is none that was ever read."""
        watched = self._records.get(key)
        return None if watched is None else watched.record

    def revision(self, key: str) -> int:
        """The revision at which the record of `get` was written; `ABSENT` without one."""
        watched = self._records.get(key)
        return ABSENT if watched is None else watched.revision

    def __len__(self) -> int:
        return len(self._records)

    def subscribe(self, listener: Callable[[str], None]) -> Callable[[], None]:
        """Call `listener` at each change of a record from now on. The returned function ends that."""
        return self._listeners.add(listener)

    def known_keys(self) -> list[str]:
        """See `RecordTable`."""
        return list(self._records)

    def apply(self, changes: Iterable[KeyValue | Delete]) -> None:
        """See `RecordTable`."""
        for change in changes:
            before = self.get(change.key)
            after = self._unreadable.read(change, self._decode)
            if isinstance(change, Delete):
                self._records.pop(change.key, None)
            elif after is None:
                if self._keeps:
                    continue
                self._records.pop(change.key, None)
            else:
                self._records[change.key] = Watched(after, change.mod_revision)
            if before != after:
                self._listeners.notify(change.key)
