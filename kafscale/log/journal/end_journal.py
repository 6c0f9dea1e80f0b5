"""Ends the journal of a broker whose lease is gone, on real stores, by the steps of `kafscale.journal.ending`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from kafscale.errors import (
    KafscaleError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreIndeterminateError,
)
from kafscale.formats.journal_entry import NOTHING_COMMITTED, Fence, encode_fence
from kafscale.formats.journal_keys import entry_key, journal_prefix, parse_entry_key
from kafscale.formats.journal_record import JournalRecord, decode_journal_record, encode_journal_record
from kafscale.journal.ending import (
    Ended,
    Ending,
    Leap,
    Look,
    Note,
    Probe,
    begun,
    found_fence,
    leapt,
    leapt_too_short,
    looked,
    note_failed,
    noted,
    passed,
)
from kafscale.log.journal.heads import read_head, read_heads
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.store import Compare, MetadataStore, Put
from kafscale.objects.object_store import ObjectStore


class JournalUnknownError(KafscaleError):
    """The metadata store has no record of the journal."""

    def __init__(self, journal_id: str) -> None:
        super().__init__(f"no journal {journal_id} in the metadata store")


class EndedJournal(Protocol):
    """Where it is known how far a journal is committed, and where it is noted that it has ended."""

    async def read(self) -> JournalRecord:
        """The record as it is now. Raises `StoreError`, `JournalUnknownError`, `CorruptDataError`."""

    async def note(self, ended_at: int) -> JournalRecord | None:
        """Note the end in the record as it was read last; None: done, else the record as it is now."""


class StoredJournal:
    """The record in the metadata store."""

    def __init__(self, metadata: MetadataStore, journal_id: str) -> None:
        self._metadata = metadata
        self._journal_id = journal_id
        self._key = keys.journal(journal_id)
        self._record: JournalRecord | None = None
        self._revision = 0

    async def read(self) -> JournalRecord:
        """See `EndedJournal`."""
        found = await self._metadata.get(self._key)
        if found is None:
            raise JournalUnknownError(self._journal_id)
        self._record = decode_journal_record(self._key, found.value)
        self._revision = found.mod_revision
        return self._record

    async def note(self, ended_at: int) -> JournalRecord | None:
        """A compare of the record as it was read last; an answer that was lost is found by reading it again."""
        assert self._record is not None
        record = replace(self._record, ended_at=ended_at)
        compare = Compare(self._key, self._revision)
        done = await self._metadata.transact([compare], [Put(self._key, encode_journal_record(record))])
        return None if done.succeeded else await self.read()


class JournalEnding:
    """One attempt to end one journal; any number of brokers may make it at the same time."""

    def __init__(
        self,
        objects: ObjectStore,
        journal: EndedJournal,
        namespace: str,
        journal_id: str,
        broker_id: int,
        retries: StoreRetries,
        now_ms: Callable[[], int],
    ) -> None:
        """`broker_id`: of the broker that ends it."""
        self._objects = objects
        self._journal = journal
        self._namespace = namespace
        self._journal_id = journal_id
        self._broker_id = broker_id
        self._retries = retries
        self._now_ms = now_ms
        self._record_key = keys.journal(journal_id)
        self._progress = NOTHING_COMMITTED
        self._passable: frozenset[int] = frozenset()
        self.written = 0  # fences that this attempt has put

    async def end(self) -> int:
        """The place of the fence: entries below it are committed, and no other ever counts.

        Retries while a store is away. Raises `JournalUnknownError`, `CorruptDataError`, and what no retry changes.
        """
        step: Ending = begun(await self._retries.until_done(self._read_record, self._record_key))
        while not isinstance(step, Ended):
            step = await self._taken(step)
        return step.sequence

    async def _taken(self, step: Leap | Probe | Look | Note) -> Ending:
        match step:
            case Leap():
                if not await self._is_fence(step.to):
                    return leapt_too_short(step)
                self._passable = await self._retries.until_done(self._entries_there, self._record_key)
                return leapt(step)
            case Probe():
                if step.sequence in self._passable:
                    return passed(step)
                return found_fence(step) if await self._is_fence(step.sequence) else passed(step)
            case Look():
                return looked(step, await self._retries.until_done(self._read_record, self._record_key))
            case Note():
                return await self._retries.until_done(lambda: self._note(step), self._record_key)

    async def _is_fence(self, sequence: int) -> bool:
        key = entry_key(self._namespace, self._journal_id, sequence)
        return await self._retries.until_done(lambda: self._probe(key, sequence), key)

    async def _entries_there(self) -> frozenset[int]:
        """Entries by a listing need no probe: an owner without a metadata store may be far above its progress."""
        prefix = journal_prefix(self._namespace, self._journal_id)
        parsed = [parse_entry_key(info.key) async for info in self._objects.list(prefix)]
        above = [key.sequence for key in parsed if key is not None and key.sequence > self._progress]
        return frozenset(
            await read_heads(self._objects, self._namespace, self._journal_id, above, self._retries)
        )

    async def _probe(self, key: str, sequence: int) -> bool:
        """True if a fence lies there now, False for an entry."""
        fence = Fence(
            journal_id=self._journal_id,
            broker_id=self._broker_id,
            sequence=sequence,
            created_ms=self._now_ms(),
        )
        try:
            await self._objects.put_if_absent(key, [encode_fence(fence)])
        except ObjectExistsError:
            try:
                found, _ = await read_head(self._objects, key)
            except ObjectNotFoundError as problem:  # collected between the two
                raise StoreIndeterminateError(f"object {key!r} was removed meanwhile") from problem
            return isinstance(found, Fence)
        self.written += 1
        return True

    async def _read_record(self) -> JournalRecord:
        record = await self._journal.read()
        self._progress = record.progress
        return record

    async def _note(self, step: Note) -> Ending:
        now = await self._journal.note(step.sequence)
        if now is None:
            return noted(step)
        self._progress = now.progress
        return note_failed(step, now)
