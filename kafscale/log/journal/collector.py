"""Deletes entries of journals and gathered objects that nothing needs any more, and journals that ended long ago.

Each broker looks after its own journal; the first of the live ones also after those that have no broker any more.
Order matters: the entries are listed first, then journals' records are read, then those of the partitions. What
nothing needs by then will never be needed (docs/format/journal.md). Readers that know an older record have a grace
period.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass, field

from kafscale.errors import CorruptDataError, KafscaleError, StoreError
from kafscale.formats.journal_keys import (
    deleted_prefix,
    entry_key,
    journal_prefix,
    journals_prefix,
    parse_entry_key,
)
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.formats.partition_record import decode_partition_record
from kafscale.journal.collection import collectable
from kafscale.log.journal.broker_journal import BrokerJournals
from kafscale.log.journal.gathered_collector import GatheredCollector
from kafscale.log.journal.heads import read_heads
from kafscale.log.journal.needs import Needs, Place
from kafscale.log.journal.replays import JournalReplays
from kafscale.log.partition import Partition
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.store import Compare, Delete, KeyValue, MetadataStore
from kafscale.objects.object_store import ObjectStore
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

logger = logging.getLogger(__name__)

LONGEST_GRACE_SEC = 120
LONGEST_INTERVAL_SEC = 300
"""Who claims a partition or reads it without a broker reads the heads of all entries: they are to be few."""

ENDED_KEPT_MS = 30 * 24 * 3600 * 1000
"""How long the fences of a journal stay: longer than any process of it could be alive."""
_DELETED_AT_ONCE = 1000


@dataclass(slots=True)
class _Journal:
    """The known facts of a journal: what its entries declare, and since when (ms) one is not needed.

    `damaged`: objects whose head cannot be read. They are there, and what they declare is not known.
    """

    entries: dict[int, int] = field(default_factory=dict)
    damaged: set[int] = field(default_factory=set)
    unneeded_since_ms: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Listed:
    """The sequences of a journal that have an object, and when the last of these was written."""

    sequences: list[int] = field(default_factory=list)
    modified_ms: int = 0


@dataclass(frozen=True, slots=True)
class _OwnState:
    """This broker's journal before the records were read: what it lacks then, a record has.

    `through`: the newest entry that is applied. `unstored_from`: the first that stored records may lack a slice of,
    of the partitions `led`; infinity for none.
    """

    journal_id: str
    through: int
    unstored_from: float
    led: Set[Place]


class JournalCollector:
    """For one broker. `is_first`: true if this broker looks after journals without one. `led`: its partitions."""

    def __init__(
        self,
        objects: ObjectStore,
        metadata: MetadataStore,
        namespace: str,
        own: BrokerJournals,
        led: Callable[[], Iterable[Partition]],
        replays: JournalReplays,
        is_first: Callable[[], bool],
        retries: StoreRetries,
        now_ms: Callable[[], int],
        failures: ItemFailures | None = None,
        *,
        grace_sec: float,
        interval_sec: float,
        on_collected: Callable[[int], None],
    ) -> None:
        """`on_collected` is called after each look, with the number of objects that were deleted."""
        self._objects = objects
        self._metadata = metadata
        self._namespace = namespace
        self._own = own
        self._led = led
        self._replays = replays
        self._is_first = is_first
        self._retries = retries
        self._now_ms = now_ms
        self._failures = failures or ItemFailures(BackgroundWork.JOURNALS)
        self._grace_ms = grace_sec * 1000
        self._interval_sec = interval_sec
        self._on_collected = on_collected
        self._gathered = GatheredCollector(objects, namespace, own, self._grace_ms)
        self._known: dict[str, _Journal] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._interval_sec)
            try:
                self._on_collected(await self.look())
            except StoreError as problem:
                logger.info(
                    "could not look after journals, looking again later", extra={"problem": str(problem)}
                )
            except Exception as problem:  # noqa: BLE001 - reported
                self._failures.report("all", problem)

    async def look(self) -> int:
        """Delete what nothing needs; returns how many objects. Raises `StoreError`."""
        is_first = self._is_first()
        gathered = await self._gathered.list(all_journals=is_first)
        listed = await self._list(all_journals=is_first)
        live = await self._replays.live() - {self._own.current.journal_id}
        listed = {journal_id: found for journal_id, found in listed.items() if journal_id not in live}
        if is_first:
            await self._end_abandoned(listed)
            await self._delete_old_markers()
        records = {
            item.key.removeprefix(keys.JOURNALS): item
            for item in (await self._metadata.range(keys.JOURNALS)).items
        }
        for journal_id, found in listed.items():
            await self._read_heads(journal_id, found)
        own = self._own_state()
        needs = await self._needs()
        self._known = {one: known for one, known in self._known.items() if one in listed}
        deleted = await self._gathered.collect(gathered, live, needs, self._now_ms())
        for journal_id, found in listed.items():
            try:
                deleted += await self._collect(journal_id, found, records.get(journal_id), needs, own)
            except (KafscaleError, ValueError) as problem:
                if isinstance(problem, StoreError):
                    raise
                self._failures.report(f"journal {journal_id}", problem)
        return deleted

    async def _list(self, *, all_journals: bool) -> dict[str, _Listed]:
        own = self._own.current.journal_id
        prefix = journals_prefix(self._namespace) if all_journals else journal_prefix(self._namespace, own)
        listed: dict[str, _Listed] = {}
        async for info in self._objects.list(prefix):
            key = parse_entry_key(info.key)
            if key is not None:
                found = listed.setdefault(key.journal_id, _Listed())
                found.sequences.append(key.sequence)
                found.modified_ms = max(found.modified_ms, info.modified_ms)
        return listed

    async def _end_abandoned(self, listed: Mapping[str, _Listed]) -> None:
        """End journals whose broker is gone and whose partitions are all led elsewhere."""
        for journal_id in listed:
            if journal_id != self._own.current.journal_id:
                try:
                    await self._replays.end(journal_id)
                except StoreError:
                    raise
                except KafscaleError as problem:
                    self._failures.report(f"journal {journal_id}", problem)

    async def _delete_old_markers(self) -> None:
        """Markers of deleted topics, once no entry can have slices of them any more."""
        before_ms = self._now_ms() - 2 * ENDED_KEPT_MS
        old = [
            info.key
            async for info in self._objects.list(deleted_prefix(self._namespace))
            if info.modified_ms < before_ms
        ]
        if old:
            await self._objects.delete(old[:_DELETED_AT_ONCE])

    async def _read_heads(self, journal_id: str, found: _Listed) -> None:
        known = self._known.setdefault(journal_id, _Journal())
        if journal_id == self._own.current.journal_id:
            known.entries = dict(self._own.current.entries)
            return
        there = set(found.sequences)
        known.entries = {one: entry for one, entry in known.entries.items() if one in there}
        known.damaged &= there
        unread = [one for one in found.sequences if one not in known.entries and one not in known.damaged]
        damaged: dict[int, CorruptDataError] = {}
        heads = await read_heads(self._objects, self._namespace, journal_id, unread, self._retries, damaged)
        for sequence, (head, _) in heads.items():
            known.entries[sequence] = head.committed_through
        for sequence, problem in damaged.items():
            # Once: it is not read again.
            known.damaged.add(sequence)
            self._failures.report(f"entry {sequence} of journal {journal_id}", problem)

    def _own_state(self) -> _OwnState:
        journal = self._own.current
        through, led, unstored_from = journal.applied_through, set[Place](), math.inf
        for partition in self._led():
            if partition.journal is journal and partition.is_led:
                led.add((partition.topic_id, partition.id.index))
                if partition.unstored_from is not None:
                    unstored_from = min(unstored_from, partition.unstored_from)
        return _OwnState(journal.journal_id, through, unstored_from, led)

    async def _needs(self) -> Needs:
        needs = Needs()
        for number, item in enumerate((await self._metadata.range(keys.PARTITIONS)).items):
            _, index = keys.topic_and_partition(item.key)
            needs.add(index, decode_partition_record(item.key, item.value))
            if number % 100 == 0:
                await asyncio.sleep(0)
        return needs

    async def _collect(
        self, journal_id: str, found: _Listed, item: KeyValue | None, needs: Needs, own_state: _OwnState
    ) -> int:
        if item is None:
            raise CorruptDataError(
                journal_prefix(self._namespace, journal_id), "entries of an unknown journal"
            )
        record = decode_journal_record(item.key, item.value)
        known, now_ms = self._known[journal_id], self._now_ms()
        own = self._own.current
        through, kept_from = record.progress, needs.kept_from(journal_id)
        if journal_id == own_state.journal_id:
            through = own_state.through
            kept_from = min(own_state.unstored_from, needs.kept_from(journal_id, own_state.led))
        if record.ended_at is not None:
            through = record.ended_at - 1
            if not needs.is_named(journal_id) and now_ms - found.modified_ms > ENDED_KEPT_MS:
                return await self._forget(journal_id, found, record, item)
        needed = {one for one in known.entries if one >= kept_from} | needs.named(journal_id)
        free = collectable(record, through, known.entries, needed)
        known.unneeded_since_ms = {one: known.unneeded_since_ms.get(one, now_ms) for one in free}
        gone = sorted(
            one for one, since_ms in known.unneeded_since_ms.items() if now_ms - since_ms >= self._grace_ms
        )
        await self._delete(journal_id, gone)
        for sequence in gone:
            known.entries.pop(sequence, None)
            own.entries.pop(sequence, None) if journal_id == own.journal_id else None
        return len(gone)

    async def _forget(self, journal_id: str, found: _Listed, record: JournalRecord, item: KeyValue) -> int:
        """Delete all of a journal that ended long ago: the fence that counts last, then its record.

        Entries that cannot be read stay, and with them the fence and the record, which say if they count.
        """
        fence, damaged = record.ended_at, self._known[journal_id].damaged
        rest = [one for one in found.sequences if one != fence and one not in damaged]
        await self._delete(journal_id, sorted(rest, reverse=True))
        if damaged - {fence}:
            return len(rest)
        if fence is not None:
            await self._delete(journal_id, [fence])
        await self._metadata.transact([Compare(item.key, item.mod_revision)], [Delete(item.key)])
        return len(found.sequences)

    async def _delete(self, journal_id: str, sequences: list[int]) -> None:
        for start in range(0, len(sequences), _DELETED_AT_ONCE):
            part = sequences[start : start + _DELETED_AT_ONCE]
            await self._objects.delete([entry_key(self._namespace, journal_id, one) for one in part])
