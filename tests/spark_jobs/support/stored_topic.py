"""A topic written straight into the stores, in the broker's own formats, without a broker."""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafscale.cluster.identity import establish_cluster
from kafscale.cluster.leadership import next_epoch
from kafscale.formats import object_keys
from kafscale.formats.aborted_transactions import AbortedTransactions
from kafscale.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from kafscale.formats.index import DEFAULT_INTERVAL, LEGACY_VERSION, build_index
from kafscale.formats.partition_record import (
    PartitionRecord,
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.partition_transactions import after_events, without_aborted_below
from kafscale.formats.segment import HEADER_SIZE
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.log.life.merge_pressure import MergePressure
from kafscale.log.life.pace import Pace
from kafscale.log.life.segment_merge import MergePaces, SegmentMerge
from kafscale.log.life.source_reads import SourceReads
from kafscale.log.partition import PartitionId
from kafscale.log.references import SegmentReferences
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import ABSENT, Compare, MetadataStore, Operation, Put
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.record_batch import read_header
from kafscale.protocol.records import Record
from tests.formats.segments import segment_of
from tests.spark_jobs.support.planned import partition_log
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, Batch, encode, transaction_events

_tokens = itertools.count(1)


class StoredTopic:
    """One topic. Everything it does is what a leader would have done, in the leader's order.

    `index_interval`: records between entries of the index.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        objects: ObjectStore,
        topic: str,
        *,
        namespace: str = "default",
        index_interval: int = DEFAULT_INTERVAL,
    ) -> None:
        self.metadata = metadata
        self.objects = objects
        self.topic = topic
        self.namespace = namespace
        self._index_interval = index_interval

    async def create(self, partitions: int) -> None:
        """Make the topic; stores that are new become a cluster's."""
        await establish_cluster(self.metadata, self.objects, self.namespace)
        topic = TopicRecord(name=self.topic, topic_id=uuid.uuid4(), partition_count=partitions)
        operations: list[Operation] = [Put(keys.topic(self.topic), encode_topic_record(topic))]
        record = next_epoch(PartitionRecord(leader_epoch=0))
        operations += [
            Put(keys.partition(self.topic, index), encode_partition_record(record))
            for index in range(partitions)
        ]
        done = await self.metadata.transact([Compare(keys.topic(self.topic), ABSENT)], operations)
        assert done.succeeded, f"there is a topic {self.topic} already"

    async def set_configs(self, configs: Mapping[str, str]) -> None:
        """Give the topic these configs and no others."""
        held = await self.metadata.get(keys.topic(self.topic))
        assert held is not None, f"there is no topic {self.topic}"
        record = replace(decode_topic_record(held.key, held.value), configs=dict(configs))
        done = await self.metadata.transact(
            [Compare(held.key, held.mod_revision)], [Put(held.key, encode_topic_record(record))]
        )
        assert done.succeeded, f"topic {self.topic} was changed meanwhile"

    async def topic_id(self) -> uuid.UUID:
        """The topic's id."""
        key = keys.topic(self.topic)
        held = await self.metadata.get(key)
        assert held is not None, f"there is no topic {self.topic}"
        return decode_topic_record(key, held.value).topic_id

    async def recreate(self) -> uuid.UUID:
        """Delete the topic and create one of its name, empty, with as many partitions; returns the new one's id.

        As by brokers: all objects go, and leader epochs go on.
        """
        key = keys.topic(self.topic)
        held = await self.metadata.get(key)
        assert held is not None, f"there is no topic {self.topic}"
        old = decode_topic_record(key, held.value)
        records = [await self.record(index) for index in range(old.partition_count)]
        new = replace(old, topic_id=uuid.uuid4())
        prefix = object_keys.topic_prefix(self.namespace, self.topic)
        await self.objects.delete([one.key async for one in self.objects.list(prefix)])
        operations: list[Operation] = [Put(key, encode_topic_record(new))]
        for index, record in enumerate(records):
            empty = encode_partition_record(PartitionRecord(leader_epoch=record.leader_epoch + 1))
            operations.append(Put(keys.partition(self.topic, index), empty))
        assert (await self.metadata.transact([], operations)).succeeded
        return new.topic_id

    async def append(self, partition: int, batches: Sequence[Batch]) -> list[Record]:
        """Publish the batches as one segment; returns the records as stored."""
        record = await self.record(partition)
        encoded, records = encoded_behind(batches, record)
        reference = await self.put_segment(partition, encoded)
        after = replace(
            record,
            log_end_offset=reference.last_offset + 1,
            segments=(*record.segments, reference),
            transactions=after_events(record.transactions, transaction_events(encoded)),
        )
        await self.publish(partition, record, after)
        return records

    async def leave_unpublished(self, partition: int, batches: Sequence[Batch]) -> str:
        """Put the next segment and do not publish it; returns its key.

        The next append is one offset later, as by a leader that meets the upload of an older one.
        """
        record = await self.record(partition)
        encoded, _ = encoded_behind(batches, record)
        reference = await self.put_segment(partition, encoded)
        return self._key(partition, reference)

    async def new_leader(self, partition: int) -> int:
        """Let another leader go on; returns its leader epoch."""
        record = await self.record(partition)
        after = next_epoch(record)
        await self.publish(partition, record, after)
        return after.leader_epoch

    async def write_checkpoint(self, partition: int) -> None:
        """Move every reference from the record into a checkpoint object."""
        record = await self.record(partition)
        references = await self.references(partition)
        await self.publish(partition, record, await self._checkpointed(partition, record, references))

    async def merge(
        self, partition: int, first_offset: int, last_offset: int, *, keeps_sources: bool = False
    ) -> SegmentReference:
        """Merge the segments from the one with `first_offset` to the one with `last_offset`.

        The sources are deleted unless they are kept, as they are for the broker's grace period.
        """
        record, references = await self.record(partition), await self.references(partition)
        sources = [
            reference
            for reference in references
            if reference.last_offset >= first_offset and reference.base_offset <= last_offset
        ]
        paces = MergePaces(Pace(), 1.0, lambda: 0.0, MergePressure(1))
        merging = SegmentMerge(self.objects, SourceReads(self.objects, 8), self.namespace, paces)
        merged = await merging.create(PartitionId(self.topic, partition), sources, LEGACY_VERSION)
        swapped = SegmentReferences(references)
        swapped.replace(merged)
        await self.publish(partition, record, await self._checkpointed(partition, record, list(swapped)))
        if not keeps_sources:
            await self._delete(partition, sources)
        return merged

    async def move_log_start(self, partition: int, offset: int, *, keeps_objects: bool = False) -> None:
        """Let the log start at `offset`: whole segments below it leave the record, then their objects go."""
        record, references = await self.record(partition), await self.references(partition)
        dropped = [reference for reference in references if reference.last_offset < offset]
        kept = tuple(segment for segment in record.segments if segment.last_offset >= offset)
        await self.publish(partition, record, replace(record, log_start_offset=offset, segments=kept))
        if not keeps_objects:
            await self._delete(partition, dropped)

    async def record(self, partition: int) -> PartitionRecord:
        """The partition's record as it is now."""
        return (await self._held(partition))[0]

    async def references(self, partition: int) -> list[SegmentReference]:
        """Every published segment, ascending."""
        found = await partition_log(
            self.metadata, self.objects, self.topic, partition, namespace=self.namespace
        )
        return list(found.references)

    def keys_of(self, partition: int, references: Sequence[SegmentReference]) -> list[str]:
        """The segments' objects."""
        return [self._key(partition, reference) for reference in references]

    async def _held(self, partition: int) -> tuple[PartitionRecord, int]:
        held = await self.metadata.get(keys.partition(self.topic, partition))
        assert held is not None, f"topic {self.topic} has no partition {partition}"
        return decode_partition_record(held.key, held.value), held.mod_revision

    async def publish(self, partition: int, before: PartitionRecord, after: PartitionRecord) -> None:
        """Replace the partition's record."""
        found, revision = await self._held(partition)
        assert found == before, f"another writer wrote the record of {self.topic}-{partition}"
        key = keys.partition(self.topic, partition)
        put = Put(key, encode_partition_record(after))
        done = await self.metadata.transact([Compare(key, revision)], [put])
        assert done.succeeded, f"another writer wrote the record of {self.topic}-{partition}"

    async def put_segment(self, partition: int, batches: Sequence[bytes]) -> SegmentReference:
        """Store the encoded batches and their index; nothing names them yet."""
        headers = [read_header(batch, 0) for batch in batches]
        data = segment_of(batches, created_ms=FIRST_TIMESTAMP_MS)
        reference = SegmentReference(
            base_offset=headers[0].base_offset,
            last_offset=headers[-1].last_offset,
            record_count=sum(header.record_count for header in headers),
            leader_epoch=headers[-1].partition_leader_epoch,
            size_bytes=len(data),
            max_timestamp_ms=max(header.max_timestamp for header in headers),
        )
        positions = itertools.accumulate((header.size_bytes for header in headers), initial=HEADER_SIZE)
        entries = [
            (header.base_offset, position, header.record_count)
            for header, position in zip(headers, positions, strict=False)
        ]
        key = self._key(partition, reference)
        await self.objects.put_if_absent(key, [data])
        index = build_index(entries, self._index_interval, version=LEGACY_VERSION)
        await self.objects.put_if_absent(object_keys.index_key_of(key), [index])
        return reference

    async def _checkpointed(
        self, partition: int, record: PartitionRecord, references: Sequence[SegmentReference]
    ) -> PartitionRecord:
        assert not any(map(object_keys.shares_its_object, references)), "a checkpoint names no slices"
        end_offset = record.log_end_offset
        key = object_keys.checkpoint_key(
            self.namespace, self.topic, partition, end_offset, record.leader_epoch, f"{next(_tokens):08x}"
        )
        aborted = AbortedTransactions()
        if record.checkpoint_key:
            held = await self.objects.get(record.checkpoint_key)
            aborted.add_newer(decode_checkpoint(record.checkpoint_key, held).aborted)
        aborted.add_newer(record.transactions.aborted)
        checkpoint = Checkpoint(end_offset=end_offset, segments=tuple(references), aborted=tuple(aborted))
        await self.objects.put_if_absent(key, [encode_checkpoint(checkpoint)])
        return replace(
            record,
            segments=(),
            checkpoint_key=key,
            checkpoint_end_offset=end_offset,
            transactions=without_aborted_below(record.transactions, end_offset),
        )

    async def _delete(self, partition: int, references: Sequence[SegmentReference]) -> None:
        own = [one for one in references if not object_keys.shares_its_object(one)]
        segments = self.keys_of(partition, own)
        await self.objects.delete([*segments, *map(object_keys.index_key_of, segments)])

    def _key(self, partition: int, reference: SegmentReference) -> str:
        return object_keys.key_of_reference(self.namespace, self.topic, partition, reference)


def encoded_behind(batches: Sequence[Batch], record: PartitionRecord) -> tuple[list[bytes], list[Record]]:
    """The batches behind the log's end, and their records."""
    encoded: list[bytes] = []
    records: list[Record] = []
    offset = record.log_end_offset
    for batch in batches:
        data, of_batch = encode(batch, offset, record.leader_epoch)
        encoded.append(data)
        records += of_batch
        offset = read_header(data, 0).last_offset + 1
    return encoded, records
