"""Deletes gathered objects that no record names any more. Driven by collector.py.

Records alone name them, never checkpoints. A broker looks after those of its own journal: it knows which of them are
still to be named. Those of a journal without a broker wait until no partition has that journal's broker as its
leader, for a broker that still wrote in its name would be refused (docs/format/journal.md, "Gathered objects").
"""

from collections.abc import Iterable

from kafscale.formats.journal_keys import (
    EntryKey,
    gathered_key,
    gathered_of_journal_prefix,
    gathered_prefix,
    parse_gathered_key,
)
from kafscale.log.journal.broker_journal import BrokerJournals
from kafscale.log.journal.needs import Needs
from kafscale.objects.object_store import ObjectStore

_DELETED_AT_ONCE = 1000


class GatheredCollector:
    """For one broker. Readers that know an older record have `grace_ms`."""

    def __init__(self, objects: ObjectStore, namespace: str, own: BrokerJournals, grace_ms: float) -> None:
        self._objects = objects
        self._namespace = namespace
        self._own = own
        self._grace_ms = grace_ms
        self._unneeded_since_ms: dict[EntryKey, int] = {}

    async def list(self, *, all_journals: bool) -> list[EntryKey]:
        """The objects that no record will begin to name, by what this broker knows of its own journal."""
        own = self._own.current
        settled_before = own.gathered_before
        prefix = (
            gathered_prefix(self._namespace)
            if all_journals
            else gathered_of_journal_prefix(self._namespace, own.journal_id)
        )
        found = [parse_gathered_key(info.key) async for info in self._objects.list(prefix)]
        return [
            key
            for key in found
            if key is not None and (key.journal_id != own.journal_id or key.sequence < settled_before)
        ]

    async def collect(
        self, listed: Iterable[EntryKey], live: Iterable[str], needs: Needs, now_ms: int
    ) -> int:
        """Delete what nothing has needed for long enough; returns how many. Raises `StoreError`.

        `live`: the journals of other brokers that are registered, read after the listing, and `needs` after that.
        """
        own, others = self._own.current.journal_id, set(live)
        unneeded = [
            key
            for key in listed
            if key.journal_id not in others
            and not needs.needs_gathered(key)
            and (key.journal_id == own or not needs.is_position(key.journal_id))
        ]
        self._unneeded_since_ms = {key: self._unneeded_since_ms.get(key, now_ms) for key in unneeded}
        gone = [
            key for key, since_ms in self._unneeded_since_ms.items() if now_ms - since_ms >= self._grace_ms
        ]
        for first in range(0, len(gone), _DELETED_AT_ONCE):
            some = gone[first : first + _DELETED_AT_ONCE]
            await self._objects.delete(
                [gathered_key(self._namespace, key.journal_id, key.sequence) for key in some]
            )
        return len(gone)
