"""Ends every journal before a rebuild is written.

A broker of the lost metadata store may still run: what it put into its journal from now on would be acknowledged,
and the rebuilt cluster would never read it. The bucket alone says how far a journal is committed
(docs/format/journal.md, "What is committed").
"""

import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeVar

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.journal_entry import NOTHING_COMMITTED, EntryHead
from kafscale.formats.journal_keys import entry_key, journal_prefix, journals_prefix, parse_entry_key
from kafscale.formats.journal_record import JournalRecord, decode_journal_record, encode_journal_record
from kafscale.journal.collection import counted_through
from kafscale.log.journal.end_journal import EndedJournal, JournalEnding, StoredJournal
from kafscale.log.journal.heads import read_head
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER
from kafscale.metadata.store import ABSENT, Compare, MetadataStore, Put
from kafscale.objects.object_store import ObjectStore
from kafscale.tasks.bounded import map_bounded
from kafscale.tools.recovery.rebuild import patiently

JOURNALS_AT_ONCE: Final = 8
_HEADS_AT_ONCE: Final = 32
_FLOOR: Final = -1

Result = TypeVar("Result")


class FewRetries(StoreRetries):
    """Gives up after a few attempts, as a command does: its user sees the error."""

    def __init__(self) -> None:
        super().__init__(random.Random())

    async def until_done(self, attempt: Callable[[], Awaitable[Result]], key: str) -> Result:
        """See `StoreRetries`."""
        return await patiently(attempt)


class BucketJournal:
    """A journal by its objects alone. `floor`: up to here it is known to be committed already, -1 for nothing."""

    def __init__(self, objects: ObjectStore, namespace: str, journal_id: str, floor: JournalRecord) -> None:
        self._objects = objects
        self._namespace = namespace
        self._journal_id = journal_id
        self._floor = floor
        # Above the floor: what the entries that are there declare, and where fences lie.
        self._declared: dict[int, int] = {}
        self._fences: set[int] = set()

    async def read(self) -> JournalRecord:
        """See `EndedJournal`. A fence that lies behind all that counts is the end."""
        prefix = journal_prefix(self._namespace, self._journal_id)
        listed = [parse_entry_key(info.key) async for info in self._objects.list(prefix)]
        new = [
            key.sequence
            for key in listed
            if key is not None
            and key.sequence > self._floor.progress
            and key.sequence not in self._declared
            and key.sequence not in self._fences
        ]
        await map_bounded(self._read_head, new, _HEADS_AT_ONCE)
        # The floor counts as declared by an entry that is not among them.
        through = counted_through({_FLOOR: self._floor.progress, **self._declared})
        is_ended = through + 1 in self._fences
        return JournalRecord(
            broker_id=self._floor.broker_id, progress=through, ended_at=through + 1 if is_ended else None
        )

    async def _read_head(self, sequence: int) -> None:
        key = entry_key(self._namespace, self._journal_id, sequence)
        try:
            head, _ = await read_head(self._objects, key)
        except ObjectNotFoundError:
            return
        except CorruptDataError:
            # It is there, and so was stored; the plan has named it.
            self._declared[sequence] = NOTHING_COMMITTED
            return
        if isinstance(head, EntryHead):
            self._declared[sequence] = head.committed_through
        else:
            self._fences.add(sequence)

    async def note(self, ended_at: int) -> None:
        """See `EndedJournal`: the fence itself says it."""


async def end_journals(
    metadata: MetadataStore,
    objects: ObjectStore,
    namespace: str,
    *,
    planned: Mapping[str, JournalRecord],
    known: Mapping[str, JournalRecord],
    now_ms: Callable[[], int],
) -> list[str]:
    """End all journals of the bucket and of `known`, a snapshot's, and note that in the metadata store.

    `planned`: as they were when the rebuild was planned. Returns why the plan does not fit any more; empty when it
    does. May be repeated. Raises `StoreError`, `CorruptDataError`.
    """
    held = {
        item.key.removeprefix(keys.JOURNALS): decode_journal_record(item.key, item.value)
        for item in (await patiently(lambda: metadata.range(keys.JOURNALS))).items
    }
    listed: set[str] = set()
    async for info in objects.list(journals_prefix(namespace)):
        key = parse_entry_key(info.key)
        if key is not None:
            listed.add(key.journal_id)
    reasons: list[str] = []

    async def end(journal_id: str) -> None:
        floor = _later(planned.get(journal_id), known.get(journal_id))
        journal: EndedJournal
        if journal_id in held:
            journal = StoredJournal(metadata, journal_id)
        else:
            journal = BucketJournal(objects, namespace, journal_id, floor)
        ending = JournalEnding(objects, journal, namespace, journal_id, NO_BROKER, FewRetries(), now_ms)
        ended_at = await ending.end()
        if journal_id not in held:
            record = JournalRecord(broker_id=floor.broker_id, progress=ended_at - 1, ended_at=ended_at)
            await _note(metadata, journal_id, record)
        more = await _entries_between(objects, namespace, journal_id, floor.progress, ended_at)
        if more:
            reasons.append(
                f"journal {journal_id} of broker {floor.broker_id} has {more} entries more than when the bucket was "
                "read: a broker of the lost metadata store still runs, stop it. The journal has ended now: run the "
                "command again"
            )

    # One that had ended by the snapshot, and of which nothing is in the bucket, was removed since.
    gone = {one for one, record in known.items() if record.ended_at is not None}
    wanted = sorted({*listed, *planned, *held, *(known.keys() - gone)})
    await map_bounded(end, wanted, JOURNALS_AT_ONCE)
    return sorted(reasons)


def _later(planned: JournalRecord | None, known: JournalRecord | None) -> JournalRecord:
    found = [one for one in (planned, known) if one is not None]
    return max(found, key=lambda one: one.progress, default=JournalRecord(broker_id=NO_BROKER))


async def _note(metadata: MetadataStore, journal_id: str, record: JournalRecord) -> None:
    key = keys.journal(journal_id)
    put = Put(key, encode_journal_record(record))
    # One that is there by now is an earlier attempt's.
    await patiently(lambda: metadata.transact([Compare(key, ABSENT)], [put]))


async def _entries_between(
    objects: ObjectStore, namespace: str, journal_id: str, progress: int, ended_at: int
) -> int:
    """How many entries lie above `progress` and below the fence: all of them count."""
    if ended_at <= progress + 1:
        return 0
    prefix = journal_prefix(namespace, journal_id)
    listed = [parse_entry_key(info.key) async for info in objects.list(prefix)]
    return sum(progress < key.sequence < ended_at for key in listed if key is not None)
