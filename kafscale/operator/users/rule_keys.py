"""The keys of a principal's access rules, from one read for all users of a cluster.

Keys are ordered by resource, so that one principal's rules are found only by reading all. A read is shared for some
seconds; a plan that rests on an older one is harmless, because a rule is its key and writing it twice is once.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from kafscale.metadata import keys
from kafscale.operator.stores.same_cluster_store import SameClusterStore

AGE_SEC: Final = 10.0
_PRINCIPAL_PART: Final = 3
_YIELD_EVERY: Final = 10_000


@dataclass(slots=True)
class _Read:
    by_principal: dict[str, set[str]]
    at_sec: float


class RuleKeys:
    """Rules by principal, for each cluster's store. `now`: monotonic seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._reads: WeakKeyDictionary[SameClusterStore, _Read] = WeakKeyDictionary()
        self._locks: WeakKeyDictionary[SameClusterStore, asyncio.Lock] = WeakKeyDictionary()

    async def of_principal(self, store: SameClusterStore, principal: str) -> frozenset[str]:
        """The keys of the rules for `User:name`, readable or not. Raises `StoreError`."""
        async with self._locks.setdefault(store, asyncio.Lock()):
            known = self._reads.get(store)
            if known is None or self._now() - known.at_sec >= AGE_SEC:
                known = await self._read(store)
                self._reads[store] = known
        return frozenset(known.by_principal.get(principal, ()))

    def changed(
        self, store: SameClusterStore, principal: str, put: Iterable[str], deleted: Iterable[str]
    ) -> None:
        """Takes in the operator's own writes."""
        known = self._reads.get(store)
        if known is not None:
            known.by_principal.setdefault(principal, set()).update(put)
            known.by_principal[principal].difference_update(deleted)

    def forget(self, store: SameClusterStore) -> None:
        """Reads again next time: the outcome of a write is unknown."""
        self._reads.pop(store, None)

    async def _read(self, store: SameClusterStore) -> _Read:
        at_sec = self._now()
        by_principal: dict[str, set[str]] = defaultdict(set)
        for number, item in enumerate((await store.range(keys.ACLS)).items):
            parts = keys.acl_parts(item.key)
            if len(parts) > _PRINCIPAL_PART:
                by_principal[parts[_PRINCIPAL_PART]].add(item.key)
            if number % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
        return _Read(dict(by_principal), at_sec)
