"""The stores of one journal and of the partitions that it has slices of."""

from collections.abc import Mapping

from kafscale.formats.journal_entry import EntryHead, EntrySlice, encode_head
from kafscale.formats.journal_keys import entry_key
from kafscale.formats.journal_record import JournalRecord, encode_journal_record
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, encode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from kafscale.protocol.types import Buffer
from tests.log.journal.slices import TOPIC_ID, image
from tests.support.controlled_store import ControlledStore

NAMESPACE = "default"
JOURNAL = "1-a"
EPOCH = 1


class Stores:
    """A journal, and the records of partitions of the topic `events`."""

    def __init__(self) -> None:
        self.metadata = MemoryStore()
        self.objects = ControlledStore()
        self.sequence = -1

    async def flush(self, offsets: Mapping[int, int], *, is_reported: bool = True) -> None:
        """An entry with one record of each partition, at this offset."""
        self.sequence += 1
        rows: list[EntrySlice] = []
        bodies: list[Buffer] = []
        start = 0
        for partition, offset in sorted(offsets.items()):
            one = image(b"value", offset, partition)
            bodies += one.parts
            rows.append(one.row._replace(start=start, leader_epoch=EPOCH))
            start += one.row.size_bytes
        head = EntryHead(
            journal_id=JOURNAL,
            broker_id=1,
            sequence=self.sequence,
            committed_through=self.sequence - 1,
            created_ms=0,
            slices=tuple(rows),
        )
        await self.objects.put_if_absent(
            entry_key(NAMESPACE, JOURNAL, self.sequence), [encode_head(head), *bodies]
        )
        if is_reported:
            await self.report(self.sequence)

    async def report(self, progress: int) -> None:
        record = JournalRecord(broker_id=1, progress=progress)
        await self.metadata.transact([], [Put(keys.journal(JOURNAL), encode_journal_record(record))])

    async def record(
        self, partition: int, position: int, log_end_offset: int, journal_id: str = JOURNAL
    ) -> None:
        """The partition's record, with everything up to `position` in the journal."""
        record = PartitionRecord(
            leader_epoch=EPOCH,
            log_end_offset=log_end_offset,
            journal=JournalPosition(journal_id=journal_id, sequence=position, topic_id=TOPIC_ID),
        )
        put = Put(keys.partition("events", partition), encode_partition_record(record))
        await self.metadata.transact([], [put])

    async def collect(self, *sequences: int) -> None:
        await self.objects.delete([entry_key(NAMESPACE, JOURNAL, one) for one in sequences])

    def heads_read(self) -> int:
        return self.objects.count("get_range", "*.entry")


async def three_entries(partitions: int = 3) -> Stores:
    """The records know nothing of the journal."""
    stores = Stores()
    for partition in range(partitions):
        await stores.record(partition, -1, 0)
    for offset in range(3):
        await stores.flush(dict.fromkeys(range(partitions), offset))
    return stores
