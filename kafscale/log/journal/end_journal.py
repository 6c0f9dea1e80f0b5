"""Ends the journal of a broker whose lease is gone, on real stores, by the steps of `kafscale.journal.ending`."""

from collections.abc import Callable

from kafscale.errors import (
    KafscaleError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreIndeterminateError,
)
from kafscale.formats.journal_entry import Fence, encode_fence
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


class JournalEnding:
    """One attempt to end one journal; any number of brokers may make it at the same time."""

    def __init__(
        self,
        objects: ObjectStore,
        metadata: MetadataStore,
        namespace: str,
        journal_id: str,
        broker_id: int,
        retries: StoreRetries,
        now_ms: Callable[[], int],
    ) -> None:
        """`broker_id`: of the broker that ends it."""
        self._objects = objects
        self._metadata = metadata
        self._namespace = namespace
        self._journal_id = journal_id
        self._broker_id = broker_id
        self._retries = retries
        self._now_ms = now_ms
        self._record_key = keys.journal(journal_id)
        self._record: JournalRecord | None = None
        self._revision = 0
        self._passable: frozenset[int] = frozenset()

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
        """What a listing shows needs no probe: an owner without a metadata store may be far above its progress."""
        assert self._record is not None
        prefix = journal_prefix(self._namespace, self._journal_id)
        parsed = [parse_entry_key(info.key) async for info in self._objects.list(prefix)]
        above = [key.sequence for key in parsed if key is not None and key.sequence > self._record.progress]
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
        return True

    async def _read_record(self) -> JournalRecord:
        found = await self._metadata.get(self._record_key)
        if found is None:
            raise JournalUnknownError(self._journal_id)
        self._record = decode_journal_record(self._record_key, found.value)
        self._revision = found.mod_revision
        return self._record

    async def _note(self, step: Note) -> Ending:
        """A compare of the record as it was read last; an answer that was lost is found by reading it again."""
        assert self._record is not None
        record = JournalRecord(
            broker_id=self._record.broker_id, progress=self._record.progress, ended_at=step.sequence
        )
        compare = Compare(self._record_key, self._revision)
        done = await self._metadata.transact(
            [compare], [Put(self._record_key, encode_journal_record(record))]
        )
        if done.succeeded:
            return noted(step)
        return note_failed(step, await self._read_record())
