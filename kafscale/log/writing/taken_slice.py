"""One partition's part of a flush: what was sealed, and how an entry of the journal describes it."""

from dataclasses import dataclass

from kafscale.formats.journal_entry import EntrySlice, SliceKind, SliceProducer
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.log.journal.writer import SliceImage
from kafscale.log.partition import Partition
from kafscale.log.partition_log import PartitionLog
from kafscale.log.sealed_segment import SealedSegment


@dataclass(slots=True, eq=False)
class TakenSlice:
    """Sealed of the partition's log, for an entry."""

    partition: Partition
    log: PartitionLog
    sealed: SealedSegment

    @property
    def batches(self) -> int:
        """How many batches wait for its acknowledgement."""
        return len(self.sealed.buffer.waiters)

    def refuse(self) -> None:
        """The entry does not count for certain."""
        self.sealed.is_refused = True

    def image(self) -> SliceImage:
        """Its row in the entry's directory (docs/format/journal.md), and its bytes."""
        partition, reference = self.partition, self.sealed.reference
        producers = tuple(
            SliceProducer(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                batch=ProducerBatch(
                    one.first_sequence, one.last_sequence, reference.base_offset + one.relative_offset
                ),
                kind=one.kind,
            )
            for one in self.sealed.buffer.producer_batches
        )
        row = EntrySlice(
            topic_id=partition.topic_id,
            topic=partition.id.topic,
            partition=partition.id.index,
            leader_epoch=reference.leader_epoch,
            base_offset=reference.base_offset,
            last_offset=reference.last_offset,
            record_count=reference.record_count,
            max_timestamp_ms=reference.max_timestamp_ms,
            size_bytes=reference.size_bytes,
            body_crc=self.sealed.body_crc,
            producers=producers,
            kind=SliceKind.TRANSACTIONS if any(one.kind for one in producers) else SliceKind.RECORDS,
        )
        return SliceImage(row=row, parts=self.sealed.parts)
