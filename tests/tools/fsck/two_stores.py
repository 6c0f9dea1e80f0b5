"""The two stores of a cluster in memory, filled as leaders fill them, for tests of what a check finds in them."""

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import count

from kafscale.cluster.cluster_record import adopt_cluster_id
from kafscale.cluster.leadership import next_epoch
from kafscale.cluster.marker import claim_marker
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from kafscale.formats.committed_offset import CommittedOffset, encode_committed_offset
from kafscale.formats.index import build_index
from kafscale.formats.partition_record import (
    PartitionRecord,
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.segment import HEADER_SIZE
from kafscale.formats.topic_record import encode_retired_epoch, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadataStore
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import Delete, Put
from kafscale.objects.memory_store import MemoryStore
from kafscale.protocol.record_batch import read_header
from kafscale.tools.fsck.check import check_cluster
from kafscale.tools.fsck.findings import FindingKind, FsckReport, OrphanReason, PartitionReport, Severity
from kafscale.tools.fsck.reading import Reading
from kafscale.tools.fsck.record_check import published_references
from kafscale.tools.fsck.repair import Repairer, RepairOutcome
from kafscale.tools.fsck.repair_plan import Repair, plan_repairs
from kafscale.tools.fsck.topic_rest import TopicRest
from tests.formats.segments import parse_segment, segment_of, verify_segment
from tests.tools.recovery.recovery_bucket import batch

NAMESPACE = "production"
NOW_MS = 1_800_000_000_000
GRACE_MS = 3_600_000
CLUSTER_ID = "cluster-id-for-tests--"


class Nobody:
    """Takes no interest in progress."""

    def checked(self, partition: str, objects: int) -> None:
        pass

    def verified(self, key: str, size_bytes: int) -> None:
        pass


class TwoStores:
    """A cluster's state. Objects are older than the grace period unless `now_ms` says otherwise."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS - 2 * GRACE_MS
        self.metadata = MemoryMetadataStore()
        self.objects = MemoryStore(lambda: self.now_ms)
        self._tokens = count()

    @classmethod
    async def new(cls) -> "TwoStores":
        stores = cls()
        await stores.found()
        return stores

    async def found(self) -> None:
        """Begin the cluster."""
        await adopt_cluster_id(self.metadata, CLUSTER_ID)
        await claim_marker(self.objects, NAMESPACE, CLUSTER_ID)

    # --- metadata

    async def put(self, key: str, value: bytes) -> None:
        await self.metadata.transact([], [Put(key, value)])

    async def remove(self, key: str) -> None:
        await self.metadata.transact([], [Delete(key)])

    async def create_topic(
        self, name: str, partitions: int = 1, state: TopicState = TopicState.ACTIVE
    ) -> TopicRecord:
        record = TopicRecord(name=name, topic_id=uuid.uuid4(), partition_count=partitions, state=state)
        await self.put(keys.topic(name), encode_topic_record(record))
        for index in range(partitions):
            await self.save(name, index, next_epoch(PartitionRecord(leader_epoch=-1)))
        return record

    async def retire(self, name: str) -> None:
        """As a deletion leaves the name."""
        await self.remove(keys.topic(name))
        for item in (await self.metadata.range(keys.partitions(name))).items:
            await self.remove(item.key)
        await self.put(keys.retired(name), encode_retired_epoch(7))

    async def commit(self, group: str, topic: TopicRecord, index: int, offset: int) -> None:
        committed = CommittedOffset(topic_id=topic.topic_id, offset=offset, commit_timestamp_ms=NOW_MS)
        await self.put(keys.group_offset(group, topic.name, index), encode_committed_offset(committed))

    async def record(self, topic: str = "t", index: int = 0) -> PartitionRecord:
        held = await self.metadata.get(keys.partition(topic, index))
        assert held is not None
        return decode_partition_record(held.key, held.value)

    async def save(self, topic: str, index: int, record: PartitionRecord) -> None:
        await self.put(keys.partition(topic, index), encode_partition_record(record))

    async def new_leader(self, topic: str = "t", index: int = 0) -> None:
        await self.save(topic, index, next_epoch(await self.record(topic, index)))

    # --- segments

    async def append(
        self, *record_counts: int, topic: str = "t", index: int = 0, passed_over: int = 0
    ) -> list[str]:
        """Publish segments of so many records; `passed_over` offsets are left before the first. Gives their keys."""
        segment_keys = []
        for record_count in record_counts:
            record = await self.record(topic, index)
            base = record.log_end_offset + passed_over
            passed_over = 0
            batches = _batches(base, record_count, record.leader_epoch)
            key = object_keys.segment_key(NAMESPACE, topic, index, base)
            reference = await self.put_segment(key, batches)
            record = replace(
                record,
                log_end_offset=reference.last_offset + 1,
                segments=(*record.segments, reference._replace(object_key="")),
            )
            await self.save(topic, index, record)
            segment_keys.append(key)
        return segment_keys

    async def leave_behind(
        self, base: int, record_count: int = 1, topic: str = "t", index: int = 0
    ) -> list[str]:
        """An older leader's upload and its index, which nobody published. Gives both keys."""
        key = object_keys.segment_key(NAMESPACE, topic, index, base)
        await self.put_segment(key, _batches(base, record_count, 0))
        return [key, object_keys.index_key_of(key)]

    async def put_segment(self, key: str, batches: Sequence[bytes]) -> SegmentReference:
        """The object and its index, and what a record says of it."""
        data = segment_of(batches)
        await self.objects.put_if_absent(key, [data])
        segment = parse_segment(key, data)
        found = verify_segment(segment)
        index = build_index([(one.base_offset, position, one.record_count) for position, one in found], 2)
        await self.objects.put_if_absent(object_keys.index_key_of(key), [index])
        headers = [header for _, header in found]
        return SegmentReference(
            base_offset=segment.base_offset,
            last_offset=segment.last_offset,
            record_count=segment.header.message_count,
            leader_epoch=max(header.partition_leader_epoch for header in headers),
            size_bytes=len(data),
            max_timestamp_ms=max(header.max_timestamp for header in headers),
            object_key=key,
        )

    async def references(self, topic: str = "t", index: int = 0) -> tuple[SegmentReference, ...]:
        record = await self.record(topic, index)
        if not record.checkpoint_key:
            return published_references(record, None)
        data = await self.objects.get(record.checkpoint_key)
        return published_references(record, decode_checkpoint(record.checkpoint_key, data))

    async def checkpoint(
        self, topic: str = "t", index: int = 0, references: Sequence[SegmentReference] | None = None
    ) -> str:
        """Move all references, or these in their place, to a new checkpoint; gives its key."""
        record = await self.record(topic, index)
        segments = await self.references(topic, index) if references is None else tuple(references)
        key = object_keys.checkpoint_key(
            NAMESPACE, topic, index, record.log_end_offset, record.leader_epoch, f"t{next(self._tokens)}"
        )
        checkpoint = Checkpoint(end_offset=record.log_end_offset, segments=segments)
        await self.objects.put_if_absent(key, [encode_checkpoint(checkpoint)])
        named = replace(record, segments=(), checkpoint_key=key, checkpoint_end_offset=record.log_end_offset)
        await self.save(topic, index, named)
        return key

    async def merge(
        self, first: int, last: int, topic: str = "t", index: int = 0, *, publish: bool = True
    ) -> str:
        """Merge the references from the `first`-th to the `last`-th. The sources stay."""
        references = list(await self.references(topic, index))
        sources = references[first : last + 1]
        bodies: list[bytes] = []
        for source in sources:
            data = await self.objects.get(object_keys.key_of_reference(NAMESPACE, topic, index, source))
            segment = parse_segment("source", data)
            for position, header in verify_segment(segment):
                bodies.append(bytes(segment.data[position : position + header.size_bytes]))
        key = object_keys.merged_segment_key(
            NAMESPACE, topic, index, sources[0].base_offset, sources[-1].last_offset
        )
        merged = await self.put_segment(key, bodies)
        if publish:
            references[first : last + 1] = [merged]
            await self.checkpoint(topic, index, references)
        return key

    # --- objects

    async def change(self, key: str, data: bytes) -> None:
        await self.objects.put(key, [data])

    async def flip(self, key: str, position: int) -> None:
        """Change a bit of the object."""
        data = bytearray(await self.objects.get(key))
        data[position] ^= 1
        await self.change(key, bytes(data))

    async def all_keys(self, prefix: str = "") -> list[str]:
        return [info.key async for info in self.objects.list(prefix)]

    # --- check and repair

    def reading(self) -> Reading:
        return Reading(self.metadata, self.objects, NAMESPACE, 4)

    async def check(self, *topics: str, verify: bool = False) -> FsckReport:
        return await check_cluster(self.reading(), Nobody(), topics=topics, verify=verify)

    async def repair(self, *, verify: bool = False, drop_missing: bool = False) -> list[RepairOutcome]:
        """Check, and carry everything out that is planned then."""
        report = await self.check(verify=verify)
        return await self.carry_out(plan_repairs(report, NOW_MS - GRACE_MS, drops_missing=drop_missing))

    async def carry_out(self, repairs: Iterable[Repair]) -> list[RepairOutcome]:
        """Carry repairs out."""
        repairer = Repairer(
            self.reading(),
            before_ms=NOW_MS - GRACE_MS,
            new_token=lambda: f"r{next(self._tokens)}",
            topic_rest=TopicRest(self.reading(), uuid.uuid4),
        )
        return await repairer.carry_out(repairs)


def _batches(base: int, record_count: int, epoch: int) -> list[bytes]:
    """Batches of at most two records, so that an index has something to say."""
    return [
        batch(offset, min(2, base + record_count - offset), epoch)
        for offset in range(base, base + record_count, 2)
    ]


def problems(report: FsckReport | PartitionReport) -> list[tuple[FindingKind, str]]:
    """The kinds and keys of what is wrong, and of indexes that are missing."""
    findings = report.all_findings if isinstance(report, FsckReport) else report.findings
    return [
        (one.kind, one.key)
        for one in findings
        if one.severity is Severity.PROBLEM or one.kind is FindingKind.INDEX_MISSING
    ]


def kinds(report: FsckReport) -> set[FindingKind]:
    """Of all findings."""
    return {one.kind for one in report.all_findings}


def orphans(report: FsckReport) -> dict[str, OrphanReason]:
    """The reasons by key."""
    return {one.key: one.reason for one in report.all_orphans}


def reasons(report: FsckReport) -> Collection[OrphanReason]:
    return {one.reason for one in report.all_orphans}


def first_position(data: bytes) -> int:
    """Where in a segment the second batch begins."""
    return HEADER_SIZE + read_header(data, HEADER_SIZE).size_bytes
