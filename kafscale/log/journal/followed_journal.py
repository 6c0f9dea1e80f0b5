"""One journal of another broker, as far as it has been read here: which entries are new, and what they have."""

import asyncio
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from kafscale.errors import StoreUnavailableError
from kafscale.formats.journal_entry import EntrySlice
from kafscale.formats.journal_record import JournalRecord, decode_journal_record
from kafscale.journal.replay import PlacedSlice
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
SLICES_PER_TURN = 200
"""Of whole entries: after so many other tasks run."""

JournalReader = tuple[ObjectReader, str, StoreRetries]
"""The object store, the namespace, and how its requests are retried."""

Arrived = Callable[["FollowedJournal", Sequence[PlacedSlice]], None]

SliceName = tuple[uuid.UUID, int]
"""The topic's id and the partition's number."""


class FollowedJournal:
    """`arrived` is called with the slices of each new entry that the leader has reported, in their order.

    `read_through`: the newest entry that was read. `remembered`: the newest slices.
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
        self._partitions: dict[Partition, SliceName] = {}
        self._by_name: dict[SliceName, list[Partition]] = {}
        self.read_through = read_through
        self.remembered: deque[PlacedSlice] = deque(maxlen=REMEMBERED_SLICES)
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

    @property
    def is_needed(self) -> bool:
        """True if there are partitions that the journal is read for."""
        return bool(self._partitions)

    def __contains__(self, partition: Partition) -> bool:
        return partition in self._partitions

    def add(self, partition: Partition, topic_id: uuid.UUID) -> None:
        """Read the journal for this partition too, which is of the topic with this id."""
        name = self._partitions[partition] = topic_id, partition.id.index
        self._by_name.setdefault(name, []).append(partition)

    def remove(self, partition: Partition) -> None:
        """Read it for this partition no longer. No error if it is not there."""
        name = self._partitions.pop(partition, None)
        if name is not None:
            self._by_name[name].remove(partition)
            if not self._by_name[name]:
                del self._by_name[name]

    def partitions_of(self, one: EntrySlice) -> Iterable[Partition]:
        """Those that the slice is of; usually none of the many of an entry."""
        return self._by_name.get((one.topic_id, one.partition), ())

    @property
    def remembered_from(self) -> int:
        """The lowest sequence from which every slice is remembered."""
        if len(self.remembered) < REMEMBERED_SLICES:
            return self.remembered[0].sequence if self.remembered else self.read_through + 1
        return self.remembered[0].sequence + 1

    def begin_again_at(self, position: int) -> None:
        """Read what is behind the position again: it is not remembered any more."""
        self.read_through = min(self.read_through, position)
        self.remembered.clear()

    async def read(self, record: JournalRecord) -> None:
        """Read the entries that are new by the journal's record. Raises `CorruptDataError`, `StoreError`."""
        through = record.progress if record.ended_at is None else record.ended_at - 1
        while self.read_through < through:
            async with self._reading:
                await self._read_some(through)

    async def _read_some(self, through: int) -> None:
        first = self.read_through + 1
        wanted = range(first, min(through, first + READ_AT_ONCE - 1) + 1)
        heads = await read_heads(self._objects, self._namespace, self.journal_id, wanted, self._retries)
        self._metrics.followed_entries += len(heads)
        slices_read = 0
        for sequence in wanted:
            if self.read_through + 1 != sequence:
                return  # A partition came that needs earlier entries.
            self.read_through = sequence
            if sequence in heads:
                head, size = heads[sequence]
                placed = [PlacedSlice(sequence, size, head.created_ms, row) for row in head.slices]
                self.remembered.extend(placed)
                self._arrived(self, placed)
                slices_read += len(placed)
                if slices_read >= SLICES_PER_TURN:
                    slices_read = 0
                    await asyncio.sleep(0)
        self._progressed.set()
        self._progressed = asyncio.Event()

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


def newest_record(changes: Sequence[KeyValue | Delete]) -> JournalRecord | None:
    """The journal's record after these changes of its key; None if it is gone. Raises `CorruptDataError`."""
    newest = changes[-1] if changes else None
    return decode_journal_record(newest.key, newest.value) if isinstance(newest, KeyValue) else None
