"""The journal of a topic's leader, written straight into the stores: entries, and the outcome of their slices."""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafscale.cluster.leadership import next_epoch
from kafscale.formats.journal_entry import (
    NOTHING_COMMITTED,
    CellKind,
    EntryHead,
    EntrySlice,
    Fence,
    SliceKind,
    SliceProducer,
    encode_fence,
    encode_head,
)
from kafscale.formats.journal_keys import (
    entry_key,
    gathered_key,
    gathered_of_journal_prefix,
    journal_prefix,
    parse_entry_key,
)
from kafscale.formats.journal_record import JournalRecord, encode_journal_record
from kafscale.formats.object_keys import shares_its_object
from kafscale.formats.partition_record import JournalPosition, PartitionRecord, SegmentReference
from kafscale.formats.producer_batches import ProducerBatch
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_footer
from kafscale.formats.topic_record import decode_topic_record
from kafscale.log.journal.partition_states import PartitionStates
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.record_batch import walk as walk_batches
from kafscale.protocol.records import Record
from tests.formats.segments import segment_of
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, Batch, transaction_events
from tests.spark_jobs.support.stored_topic import StoredTopic, encoded_behind

_gathered = itertools.count()


@dataclass(slots=True)
class StoredJournal:
    """The newest entry, and the offset after the last record of each partition that is led.

    `has_ended`: its broker is gone, and nothing more is written to it.
    """

    journal_id: str = "1-a"
    sequence: int = -1
    has_ended: bool = False
    ends: dict[int, int] = field(default_factory=dict)

    async def lead(self, topic: StoredTopic, partitions: Sequence[int]) -> None:
        """Claim the partitions."""
        await self._report(topic)
        topic_id = await _topic_id(topic)
        for partition in partitions:
            record = await topic.record(partition)
            position = JournalPosition(journal_id=self.journal_id, sequence=self.sequence, topic_id=topic_id)
            await topic.publish(partition, record, replace(next_epoch(record), journal=position))
            self.ends[partition] = record.log_end_offset

    async def flush(self, topic: StoredTopic, sent: Mapping[int, Sequence[Batch]]) -> dict[int, list[Record]]:
        """Store the batches as an entry and report that it is committed; returns the records as stored."""
        assert not self.has_ended, "its broker is gone"
        slices, records = await self._encoded(topic, sent)
        for partition, encoded in slices.items():
            self.ends[partition] = read_header(encoded[-1], 0).last_offset + 1
        self.sequence += 1
        await self._put_entry(topic, self.sequence, slices)
        await self._report(topic)
        return records

    async def end(self, topic: StoredTopic, lost: Mapping[int, Sequence[Batch]]) -> str:
        """Let the broker die, and another one end the journal. Returns the key of what is not committed.

        `lost` is in an entry that was stored while the one before it was not.
        """
        slices, _ = await self._encoded(topic, lost)
        await self._put_entry(topic, self.sequence + 2, slices)
        place = self.sequence + 1
        fence = Fence(journal_id=self.journal_id, broker_id=2, sequence=place, created_ms=FIRST_TIMESTAMP_MS)
        key = entry_key(topic.namespace, self.journal_id, place)
        await topic.objects.put_if_absent(key, [encode_fence(fence)])
        self.has_ended = True
        await self._report(topic)
        return entry_key(topic.namespace, self.journal_id, place + 1)

    async def consolidate(self, topic: StoredTopic, *partitions: int) -> None:
        """Bring the records up to date: they name the slices then."""
        for partition in partitions:
            await self._replace(topic, partition, await self.state(topic, partition))

    async def seal(self, topic: StoredTopic, *partitions: int) -> None:
        """Make a segment of all slices of each partition."""
        for partition in partitions:
            state = await self.state(topic, partition)
            slices = [one for one in state.segments if shares_its_object(one)]
            sealed = [await topic.put_segment(partition, await _batches(topic, slices))] if slices else []
            kept = tuple(one for one in state.segments if not shares_its_object(one))
            await self._replace(topic, partition, replace(state, segments=(*kept, *sealed)))

    async def gather(self, topic: StoredTopic, *partitions: int) -> str:
        """Make one object with one slice of each of the partitions; returns its key."""
        states = {partition: await self.state(topic, partition) for partition in partitions}
        slices = {
            partition: [one for one in state.segments if shares_its_object(one)]
            for partition, state in states.items()
        }
        bodies = {partition: await _batches(topic, found) for partition, found in slices.items() if found}
        number = next(_gathered)
        key = gathered_key(topic.namespace, self.journal_id, number)
        head = await self._head(topic, number, NOTHING_COMMITTED, bodies)
        made = await self._put(topic, key, head, CellKind.GATHERED, bodies)
        for partition, state in states.items():
            kept = tuple(one for one in state.segments if not shares_its_object(one))
            gathered = (made[partition],) if partition in made else ()
            await self._replace(topic, partition, replace(state, segments=(*kept, *gathered)))
        return key

    async def collect(self, topic: StoredTopic) -> None:
        """Delete the entries that no record names and that have nothing behind a record, and gathered objects."""
        count = (await _topic_record(topic)).partition_count
        records = [await topic.record(partition) for partition in range(count)]
        named = {one.object_key for record in records for one in record.segments}
        lowest = self.sequence
        for partition, end_offset in self.ends.items():
            record = records[partition]
            assert record.journal is not None
            if record.log_end_offset < end_offset:
                lowest = min(lowest, record.journal.sequence)
        prefixes = journal_prefix, gathered_of_journal_prefix
        found = [
            info.key
            for prefix in prefixes
            async for info in topic.objects.list(prefix(topic.namespace, self.journal_id))
        ]
        parsed = {key: parse_entry_key(key) for key in found if key not in named}
        await topic.objects.delete([key for key, one in parsed.items() if not one or one.sequence <= lowest])

    async def state(self, topic: StoredTopic, partition: int) -> PartitionRecord:
        """The published state of the partition."""
        states = PartitionStates(topic.metadata, topic.objects, topic.namespace)
        found = await states.read(topic.topic, partition)
        assert found is not None
        return found[0]

    async def _replace(self, topic: StoredTopic, partition: int, after: PartitionRecord) -> None:
        assert after.journal is not None
        position = replace(after.journal, sequence=self.sequence)
        await topic.publish(partition, await topic.record(partition), replace(after, journal=position))

    async def _encoded(
        self, topic: StoredTopic, sent: Mapping[int, Sequence[Batch]]
    ) -> tuple[dict[int, list[bytes]], dict[int, list[Record]]]:
        """The batches behind the ends of their partitions, and their records."""
        slices: dict[int, list[bytes]] = {}
        records: dict[int, list[Record]] = {}
        for partition, batches in sorted(sent.items()):
            record = replace(await topic.record(partition), log_end_offset=self.ends[partition])
            slices[partition], records[partition] = encoded_behind(batches, record)
        return slices, records

    async def _put_entry(
        self, topic: StoredTopic, sequence: int, slices: Mapping[int, Sequence[bytes]]
    ) -> None:
        key = entry_key(topic.namespace, self.journal_id, sequence)
        head = await self._head(topic, sequence, sequence - 1, slices)
        await self._put(topic, key, head, CellKind.ENTRY, slices)

    async def _head(
        self,
        topic: StoredTopic,
        sequence: int,
        committed_through: int,
        slices: Mapping[int, Sequence[bytes]],
    ) -> EntryHead:
        topic_id, start = await _topic_id(topic), 0
        rows = []
        for partition, batches in sorted(slices.items()):
            rows.append(_row(topic, topic_id, partition, batches, start))
            start += rows[-1].size_bytes
        return EntryHead(
            journal_id=self.journal_id,
            broker_id=1,
            sequence=sequence,
            committed_through=committed_through,
            created_ms=FIRST_TIMESTAMP_MS,
            slices=tuple(rows),
        )

    async def _put(
        self,
        topic: StoredTopic,
        key: str,
        head: EntryHead,
        kind: CellKind,
        slices: Mapping[int, Sequence[bytes]],
    ) -> dict[int, SegmentReference]:
        encoded = encode_head(head, kind)
        await topic.objects.put_if_absent(
            key, [encoded, *(_image(slices[row.partition]) for row in head.slices)]
        )
        return {
            row.partition: SegmentReference(
                base_offset=row.base_offset,
                last_offset=row.last_offset,
                record_count=row.record_count,
                leader_epoch=row.leader_epoch,
                size_bytes=row.size_bytes,
                max_timestamp_ms=row.max_timestamp_ms,
                object_key=key,
                start=len(encoded) + row.start,
            )
            for row in head.slices
        }

    async def _report(self, topic: StoredTopic) -> None:
        ended_at = self.sequence + 1 if self.has_ended else None
        record = JournalRecord(broker_id=1, progress=self.sequence, ended_at=ended_at)
        await topic.metadata.transact([], [Put(keys.journal(self.journal_id), encode_journal_record(record))])


def _image(batches: Sequence[bytes]) -> bytes:
    return segment_of(batches, created_ms=FIRST_TIMESTAMP_MS)


def _row(
    topic: StoredTopic, topic_id: uuid.UUID, partition: int, batches: Sequence[bytes], start: int
) -> EntrySlice:
    image = _image(batches)
    headers = [read_header(batch, 0) for batch in batches]
    producers = tuple(
        SliceProducer(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            batch=ProducerBatch(-1, -1, one.offset),
            kind=one.kind,
        )
        for one in transaction_events(batches)
    )
    return EntrySlice(
        topic_id=topic_id,
        topic=topic.topic,
        partition=partition,
        leader_epoch=headers[-1].partition_leader_epoch,
        base_offset=headers[0].base_offset,
        last_offset=headers[-1].last_offset,
        record_count=sum(header.record_count for header in headers),
        max_timestamp_ms=max(header.max_timestamp for header in headers),
        size_bytes=len(image),
        body_crc=parse_footer("slice", image[-FOOTER_SIZE:]).body_crc,
        start=start,
        producers=producers,
        kind=SliceKind.TRANSACTIONS if producers else SliceKind.RECORDS,
    )


async def _topic_id(topic: StoredTopic) -> uuid.UUID:
    return (await _topic_record(topic)).topic_id


async def _topic_record(topic: StoredTopic) -> TopicRecord:
    held = await topic.metadata.get(keys.topic(topic.topic))
    assert held is not None
    return decode_topic_record(held.key, held.value)


async def _batches(topic: StoredTopic, slices: Sequence[SegmentReference]) -> list[bytes]:
    found = []
    for one in slices:
        image = await topic.objects.get_range(one.object_key, one.start, one.size_bytes)
        body = image[HEADER_SIZE:-FOOTER_SIZE]
        found += [
            bytes(body[position : position + header.size_bytes])
            for position, header in walk_batches(body, 0, len(body), one.object_key)
        ]
    return found
