"""Partitions as they are published now, for tools and exports that read the stores.

A partition's record is brought up to date once a minute or so; behind it, the entries of its leader's journal say
what is published (docs/format/journal.md). Up to the journal's progress all of them are committed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafscale.errors import ObjectNotFoundError
from kafscale.formats.journal_entry import EntryHead
from kafscale.formats.journal_keys import entry_key, journal_prefix, parse_entry_key
from kafscale.formats.journal_record import decode_journal_record
from kafscale.formats.partition_record import PartitionRecord, decode_partition_record
from kafscale.journal.partition_state import partition_state
from kafscale.journal.replay import Replay
from kafscale.log.journal.heads import read_head
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataReader
from kafscale.objects.object_store import ListingReader
from kafscale.tasks.bounded import map_bounded

HEADS_AT_ONCE = 32
_FEW = 64
"""So many entries are asked for by their keys; for more, those that are there are listed first."""
_MOST_BEYOND_PROGRESS = 10_000
"""Entries: a leader that is so far ahead of its progress is not waited for."""
_RECORDS_AT_ONCE = 16
_FEW_RECORDS = 8
"""So many records are read by their keys; for more, those of the whole topic are."""

Versioned = tuple[PartitionRecord, int]
"""A record, or the state that follows from it, and the revision of the record."""


@dataclass(slots=True)
class _Journal:
    """The part of a journal that was read; the lock is taken to read more."""

    replay: Replay | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class PartitionStates:
    """Keeps what it has read of journals: each head is read once, for all partitions. Nothing is written or ended.

    `wants`: the topics that will be asked for. `forgets`: what a partition's record has is dropped, so that memory
    stays bounded however long this lives; a partition may then be read by one caller at a time only. All methods
    raise `StoreError`, `CorruptDataError`.
    """

    def __init__(
        self,
        metadata: MetadataReader,
        objects: ListingReader,
        namespace: str,
        *,
        wants: Callable[[str], bool] = lambda _: True,
        forgets: bool = False,
    ) -> None:
        self._metadata = metadata
        self._objects = objects
        self._namespace = namespace
        self._wants = wants
        self._forgets = forgets
        self._journals: dict[str, _Journal] = {}

    async def read(self, topic: str, index: int, *, beyond_progress: bool = False) -> Versioned | None:
        """The partition's state now, and the revision of its record; None without a record. See `read_all`."""
        return (await self.read_all(topic, [index], beyond_progress=beyond_progress)).get(index)

    async def read_all(
        self,
        topic: str,
        indexes: Sequence[int],
        *,
        beyond_progress: bool = False,
        followed: set[str] | None = None,
    ) -> dict[int, Versioned]:
        """The states of these partitions now; those without a record are left out.

        A leader reports its progress a little later than it acknowledges. `beyond_progress`: also what it has not
        reported yet, so that nothing acknowledged before the call is left out. One more read of each journal, but for
        those that are in `followed`, into which they are put: so many calls share these reads.
        """
        states: dict[int, Versioned] = {}
        left = indexes
        while left:
            found = await self.records(topic, left)
            replays = await self._replays((record for record, _ in found.values()), beyond_progress, followed)
            changed = await self._outdated(topic, found, replays)
            for index, (record, revision) in found.items():
                if index not in changed:
                    states[index] = self._state(index, record, replays), revision
            left = sorted(changed)
        return states

    async def records(self, topic: str, indexes: Sequence[int]) -> dict[int, Versioned]:
        """The records of these partitions, whatever is behind them; no object is read."""
        wanted = {keys.partition(topic, index): index for index in indexes}
        found: Iterable[KeyValue | None]
        if len(wanted) > _FEW_RECORDS:
            found = (await self._metadata.range(keys.partitions(topic))).items
        else:
            found = await map_bounded(self._metadata.get, list(wanted), _RECORDS_AT_ONCE)
        return {
            wanted[item.key]: (decode_partition_record(item.key, item.value), item.mod_revision)
            for item in found
            if item is not None and item.key in wanted
        }

    def _state(self, index: int, record: PartitionRecord, replays: Mapping[str, Replay]) -> PartitionRecord:
        position = record.journal
        replay = None if position is None else replays.get(position.journal_id)
        if position is None or replay is None:
            return record
        state = partition_state(record, replay, self._namespace, index)
        if self._forgets:
            replay.forget(position.topic_id, index, position.sequence)
        return state

    async def _outdated(
        self, topic: str, found: Mapping[int, Versioned], replays: Mapping[str, Replay]
    ) -> set[int]:
        """The partitions whose records were replaced meanwhile, of those behind which an entry was collected.

        It had nothing for the partition, if the record is still the same.
        """
        doubtful = [
            index
            for index, (record, _) in found.items()
            if record.journal is not None
            and (replay := replays.get(record.journal.journal_id)) is not None
            and replay.last_hole is not None
            and replay.last_hole > record.journal.sequence
        ]
        if not doubtful:
            return set()
        again = await self.records(topic, doubtful)
        return {index for index in doubtful if index not in again or again[index][1] != found[index][1]}

    async def _replays(
        self, records: Iterable[PartitionRecord], beyond_progress: bool, followed: set[str] | None
    ) -> dict[str, Replay]:
        """Of each journal that the records name, what is behind the lowest position; unknown ones are left out."""
        lowest: dict[str, int] = {}
        for record in records:
            if record.journal is not None:
                known = lowest.get(record.journal.journal_id, record.journal.sequence)
                lowest[record.journal.journal_id] = min(known, record.journal.sequence)
        replays = {}
        for journal_id, position in lowest.items():
            follows = beyond_progress and journal_id not in (followed or ())
            if follows and followed is not None:
                # Before the lock: a caller that comes meanwhile waits for it, and finds what was read.
                followed.add(journal_id)
            replay = await self._replay(journal_id, position + 1, follows)
            if replay is not None:
                replays[journal_id] = replay
        return replays

    async def _replay(self, journal_id: str, first: int, beyond_progress: bool) -> Replay | None:
        """Of the entries from `first` on that are known to be committed; None if the journal is not known."""
        journal = self._journals.setdefault(journal_id, _Journal())
        async with journal.lock:
            held = await self._metadata.get(keys.journal(journal_id))
            if held is None:
                return None
            record = decode_journal_record(held.key, held.value)
            end = record.progress + 1 if record.ended_at is None else record.ended_at
            # A position may be above what is known to be committed: then nothing counts before all below it do.
            first = min(first, end)
            replay = journal.replay
            if replay is None:
                replay = Replay(
                    journal_id, {}, first=first, end=first, progress=record.progress, wants=self._wants
                )
            if first < replay.first:
                heads = await self._heads(journal_id, first, replay.first - 1)
                replay.begin_at(first, heads, progress=record.progress)
            if replay.end < end:
                heads = await self._heads(journal_id, replay.end, end - 1)
                replay.extend(heads, end=end, progress=record.progress)
            journal.replay = replay
            if beyond_progress and record.ended_at is None:
                await self._follow(journal_id, replay, record.progress)
            return replay

    async def _follow(self, journal_id: str, replay: Replay, progress: int) -> None:
        """Take the entries behind the replay's end, up to the first gap or fence.

        Each of them is committed, because all before it are there; none above the progress is ever collected.
        """
        window = 1
        limit = replay.end + _MOST_BEYOND_PROGRESS
        while replay.end < limit:
            heads = await self._heads(journal_id, replay.end, replay.end + window - 1)
            end = replay.end
            while end in heads:
                end += 1
            is_last = end < replay.end + window
            replay.extend(heads, end=end, progress=progress)
            if is_last:
                return
            window = min(2 * window, HEADS_AT_ONCE)

    async def _heads(self, journal_id: str, first: int, last: int) -> dict[int, tuple[EntryHead, int]]:
        wanted: Sequence[int] = range(first, last + 1)
        if len(wanted) > _FEW:
            wanted = await self._there(journal_id, first, last)
        heads: dict[int, tuple[EntryHead, int]] = {}

        async def read(sequence: int) -> None:
            try:
                head, size = await read_head(self._objects, entry_key(self._namespace, journal_id, sequence))
            except ObjectNotFoundError:
                return
            if isinstance(head, EntryHead):
                heads[sequence] = head, size

        await map_bounded(read, wanted, HEADS_AT_ONCE)
        return heads

    async def _there(self, journal_id: str, first: int, last: int) -> list[int]:
        prefix = journal_prefix(self._namespace, journal_id)
        parsed = [parse_entry_key(info.key) async for info in self._objects.list(prefix)]
        return [one.sequence for one in parsed if one is not None and first <= one.sequence <= last]
