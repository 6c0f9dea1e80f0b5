"""One journal of another broker, as far as it has been read here: which entries are new, and what they have."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kafscale.errors import StoreUnavailableError
from kafscale.formats.journal_entry import EntryHead
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.formats.partition_record import JournalPosition
from kafscale.journal.replay import PlacedSlice
from kafscale.log.journal.followers import Followers
from kafscale.log.journal.heads import READS_AT_ONCE, read_heads
from kafscale.log.partition import Partition
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, KeyValue, MetadataStore
from kafscale.objects.object_store import ObjectReader
from kafscale.ops.journal_metrics import JournalMetrics

REMEMBERED_SLICES = 4096
"""Kept for partitions which are followed a little later than others."""
READ_AT_ONCE = 64
READ_AT_ONCE_FOR_LATE = 16
"""News of the leader waits meanwhile."""
SLICES_PER_TURN = 200
"""Of whole entries: after so many other tasks run."""

JournalReader = tuple[ObjectReader, str, StoreRetries]
"""The object store, the namespace, and how its requests are retried."""

Arrived = Callable[["FollowedJournal", Followers, Iterable[PlacedSlice]], None]


class FollowedJournal:
    """`arrived` is called with the slices of each entry that was read, in their order, and for whom it was read.

    Every entry that the leader has reported is read once, for all partitions. One that comes with a record which is
    older than what is `remembered` is late: what it misses is read again, once for all that are late at the time.

    `read_through`: the newest entry that was read. `remembered`: the newest slices. `brings_late_up`: true while a
    task runs `bring_late_up`.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        reader: JournalReader,
        journal_id: str,
        read_through: int,
        arrived: Arrived,
        metrics: JournalMetrics,
    ) -> None:
        self.journal_id = journal_id
        self.read_through = read_through
        self.remembered: deque[PlacedSlice] = deque(maxlen=REMEMBERED_SLICES)
        self.brings_late_up = False
        self._followers = Followers()
        self._late: dict[Partition, JournalPosition] = {}
        self._coming = Followers()  # late ones for whom entries are read again now
        self._metadata = metadata
        self._objects, self._namespace, self._retries = reader
        self._arrived = arrived
        self._metrics = metrics
        self._reading = asyncio.Lock()
        self._progressed = asyncio.Event()
        self._looking = asyncio.Lock()
        self._looks_begun = 0
        self._look_done = 0
        self._stored_through = read_through
        # The progress above which entries were found, and since when, by the event loop's clock.
        self._unreported: tuple[int, float] | None = None

    # --- for whom it is read

    def is_needed(self) -> bool:
        """True if there are partitions that the journal is read for."""
        return bool(self._followers) or self.has_late()

    def has_late(self) -> bool:
        """True if some of them are late."""
        return bool(self._late) or bool(self._coming)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._followers or self.is_late(partition)

    def is_late(self, partition: Partition) -> bool:
        """True if the partition misses entries that were read before it came."""
        return partition in self._late or partition in self._coming

    def add(self, partition: Partition, position: JournalPosition) -> None:
        """Read the journal for this partition too, which has everything up to the position.

        One that is late then becomes complete by `bring_late_up`.
        """
        if position.sequence < self.remembered_from - 1:
            self._late[partition] = position
            return
        self._followers.add(partition, position.topic_id)
        one = Followers()
        one.add(partition, position.topic_id)
        self._arrived(self, one, self.remembered)

    def remove(self, partition: Partition) -> None:
        """Read it for this partition no longer. No error if it is not there."""
        self._followers.remove(partition)
        if self.is_late(partition):
            self._late.pop(partition, None)
            self._coming.remove(partition)
            self._has_progressed()

    # --- reading

    @property
    def remembered_from(self) -> int:
        """The lowest sequence from which every slice is remembered."""
        if len(self.remembered) < REMEMBERED_SLICES:
            return self.remembered[0].sequence if self.remembered else self.read_through + 1
        return self.remembered[0].sequence + 1

    async def read(self, record: JournalRecord) -> None:
        """Read the entries that are new by the journal's record. Raises `CorruptDataError`, `StoreError`."""
        through = record.progress if record.ended_at is None else record.ended_at - 1
        while self.read_through < through:
            async with self._reading:
                await self._read_some(through)

    async def _read_some(self, through: int) -> None:
        first = self.read_through + 1
        wanted = range(first, min(through, first + READ_AT_ONCE - 1) + 1)
        heads = await self._read_heads(wanted)
        slices_read = 0
        for sequence in wanted:
            placed = _slices(sequence, heads)
            self.read_through = sequence
            self.remembered.extend(placed)
            self._arrived(self, self._followers, placed)
            slices_read += len(placed)
            if slices_read >= SLICES_PER_TURN:
                slices_read = 0
                await asyncio.sleep(0)
        self._has_progressed()

    async def _read_heads(self, wanted: range) -> dict[int, tuple[EntryHead, int]]:
        heads = await read_heads(self._objects, self._namespace, self.journal_id, wanted, self._retries)
        self._metrics.followed_entries += len(heads)
        return heads

    def _has_progressed(self) -> None:
        self._progressed.set()
        self._progressed = asyncio.Event()

    async def bring_late_up(self) -> None:
        """Read what late partitions miss. Raises `CorruptDataError`, `StoreError`: then they are late still."""
        while self._late:
            late, self._late = self._late, {}
            known = min(position.sequence for position in late.values())
            for partition, position in late.items():
                self._coming.add(partition, position.topic_id)
            try:
                while self._coming:
                    async with self._reading:
                        known = await self._read_for_late(known)
                        if known == self.read_through:
                            self._followers.take_all(self._coming)
            finally:
                self._late |= {
                    partition: replace(late[partition], sequence=known) for partition in self._coming
                }
                self._coming = Followers()
                self._has_progressed()

    async def _read_for_late(self, known: int) -> int:
        """Read some of the entries above `known` again; returns the last of them."""
        last = min(self.read_through, known + READ_AT_ONCE_FOR_LATE)
        wanted = range(known + 1, last + 1)
        heads = await self._read_heads(wanted)
        for sequence in wanted:
            self._arrived(self, self._coming, _slices(sequence, heads))
            await asyncio.sleep(0)
        return last

    async def read_reported(self) -> JournalRecord:
        """Read what the leader has reported by now; returns the journal's record.

        Raises `StoreError`, also for a journal that is not known any more, and `CorruptDataError`.
        """
        key = keys.journal(self.journal_id)
        found = await self._metadata.get(key)
        if found is None:
            raise StoreUnavailableError(f"journal {self.journal_id} is not known any more")
        record = decode_journal_record(found.key, found.value)
        await self.read(record)
        return record

    async def catch_up(self, patience_sec: float | None = None) -> None:
        """Return once every entry is read that was committed before this call.

        What the leader has not reported yet is waited for: a leader knows of each record that another broker serves.
        Raises as `read_reported`, and `TimeoutError` if the leader has reported nothing for `patience_sec` although
        there was something to report, also if most of that time was before this call.
        """
        through = await self._look()
        async with asyncio.timeout_at(
            None if patience_sec is None else self._unreported_sec() + patience_sec
        ):
            while self.read_through < through:
                await self._progressed.wait()

    def _unreported_sec(self) -> float:
        """Since when entries are known that the leader has not reported."""
        return asyncio.get_running_loop().time() if self._unreported is None else self._unreported[1]

    async def brought_up(self, partition: Partition) -> None:
        """Return once the partition is late no more."""
        while self.is_late(partition):
            await self._progressed.wait()

    async def _look(self) -> int:
        """The newest entry that is committed, by a look at both stores that began after this call."""
        begun_before = self._looks_begun
        async with self._looking:
            if self._look_done <= begun_before:
                self._looks_begun += 1
                number = self._looks_begun
                self._stored_through = await self._look_now()
                self._look_done = number
            return self._stored_through

    async def _look_now(self) -> int:
        record = await self.read_reported()
        if record.ended_at is not None:
            self._unreported = None
            return record.ended_at - 1
        through = await self._stored_above(record.progress)
        if through == record.progress:
            self._unreported = None
        elif self._unreported is None or self._unreported[0] != record.progress:
            self._unreported = record.progress, asyncio.get_running_loop().time()
        return through

    async def _stored_above(self, progress: int) -> int:
        """The newest of the entries that are there without a gap: nothing is collected above the progress."""
        through, window = progress, 1
        while True:
            wanted = range(through + 1, through + window + 1)
            heads = await read_heads(self._objects, self._namespace, self.journal_id, wanted, self._retries)
            while through + 1 in heads:
                through += 1
            if through < wanted[-1]:
                return through
            window = min(2 * window, READS_AT_ONCE)


def _slices(sequence: int, heads: Mapping[int, tuple[EntryHead, int]]) -> list[PlacedSlice]:
    """The slices of an entry; none of one that was collected."""
    if sequence not in heads:
        return []
    head, size = heads[sequence]
    return [PlacedSlice(sequence, size, head.created_ms, row) for row in head.slices]


def newest_record(changes: Sequence[KeyValue | Delete]) -> JournalRecord | None:
    """The journal's record after these changes of its key; None if it is gone. Raises `CorruptDataError`."""
    newest = changes[-1] if changes else None
    return decode_journal_record(newest.key, newest.value) if isinstance(newest, KeyValue) else None
