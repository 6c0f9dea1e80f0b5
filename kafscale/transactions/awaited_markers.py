"""The marker keys that decided transactions wait for, against what watches and reads show of them. Pure.

Theory of operation. The decision puts a key for each partition and group, and each is deleted when its marker is
written. A key counts as gone when it was seen to be absent at a revision after that of the decision: by a watch that
has come so far, or by a read. The next transaction of the same producer uses the same keys, so a deletion that a
watch reports late may be that of the transaction before; a batch of changes is taken as a whole, in which the put
follows.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from kafscale.metadata import keys
from kafscale.metadata.store import Changes, Delete, Snapshot

PREFIXES: Final = (keys.PARTITION_MARKERS, keys.GROUP_MARKERS)

_UNSEEN: Final = -1


@dataclass(slots=True)
class _Awaited:
    """`revision`: of the record that says that all keys were put. `wanted`: all keys. `keys`: those not gone yet."""

    revision: int
    wanted: tuple[str, ...]
    keys: set[str] = field(default_factory=set)


def _prefix_of(key: str) -> str:
    return keys.GROUP_MARKERS if key.startswith(keys.GROUP_MARKERS) else keys.PARTITION_MARKERS


class AwaitedMarkers:
    """By transactional id; and all marker keys of the cluster that are there, as the watches show them."""

    def __init__(self) -> None:
        self._present: dict[str, set[str]] = {prefix: set() for prefix in PREFIXES}
        self._seen = dict.fromkeys(PREFIXES, _UNSEEN)
        self._awaited: dict[str, _Awaited] = {}
        self._ids: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._awaited)

    def begin(self, transactional_id: str, wanted: Iterable[str], revision: int) -> None:
        """Wait for these keys, all put by `revision`, instead of those before; a repetition is no error."""
        known = self._awaited.get(transactional_id)
        if known is not None and known.revision == revision:
            return
        self.forget(transactional_id)
        awaited = self._awaited[transactional_id] = _Awaited(revision, tuple(wanted))
        for key in awaited.wanted:
            prefix = _prefix_of(key)
            if key in self._present[prefix] or self._seen[prefix] < revision:
                awaited.keys.add(key)
            # Also those that are gone: a watch may show the put in a batch after an older deletion.
            self._ids[key] = transactional_id

    def forget(self, transactional_id: str) -> None:
        """Wait for the transaction's keys no longer."""
        awaited = self._awaited.pop(transactional_id, None)
        for key in () if awaited is None else awaited.wanted:
            self._ids.pop(key, None)

    def keys_of(self, transactional_id: str) -> tuple[int, Collection[str]]:
        """The revision, and the keys that are awaited still; nothing for a transaction that is not known."""
        awaited = self._awaited.get(transactional_id)
        return (_UNSEEN, ()) if awaited is None else (awaited.revision, tuple(awaited.keys))

    def is_done(self, transactional_id: str) -> bool:
        """True if the transaction waited for keys, and all are gone."""
        awaited = self._awaited.get(transactional_id)
        return awaited is not None and not awaited.keys

    def found_gone(self, transactional_id: str, revision: int, gone: Iterable[str]) -> bool:
        """Take in a read that began after `revision` was known; True if the transaction is done by it."""
        awaited = self._awaited.get(transactional_id)
        if awaited is None or awaited.revision != revision:
            return False
        awaited.keys.difference_update(gone)
        return not awaited.keys

    def apply(self, prefix: str, event: Snapshot | Changes) -> list[str]:
        """Take in what a watch reported; returns the transactional ids that are done by it."""
        self._seen[prefix] = max(event.revision, self._seen[prefix])
        if isinstance(event, Snapshot):
            present = self._present[prefix] = {item.key for item in event.items}
            return [one for one in self._awaited if self._lacks(one, prefix, present, event.revision)]
        touched: dict[str, None] = {}
        present = self._present[prefix]
        for change in event.puts_and_deletes:
            transactional_id = self._ids.get(change.key)
            if isinstance(change, Delete):
                present.discard(change.key)
            else:
                present.add(change.key)
            if transactional_id is None:
                continue
            awaited = self._awaited[transactional_id]
            if not isinstance(change, Delete):
                awaited.keys.add(change.key)
            elif event.revision > awaited.revision:
                awaited.keys.discard(change.key)
                touched[transactional_id] = None
        return [one for one in touched if self.is_done(one)]

    def _lacks(self, transactional_id: str, prefix: str, present: set[str], revision: int) -> bool:
        awaited = self._awaited[transactional_id]
        if awaited.revision > revision:
            return False
        gone = {key for key in awaited.keys if _prefix_of(key) == prefix and key not in present}
        awaited.keys -= gone
        return bool(gone) and not awaited.keys
