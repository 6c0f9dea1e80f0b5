"""A partition whose segments lie in a store, and the part of a broker that reads them: for tests of the read path."""

import asyncio
from collections.abc import Sequence

from kafscale.cluster.topic_configs import effective
from kafscale.errors import CorruptDataError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT
from kafscale.formats.index import DEFAULT_INTERVAL, LEGACY_VERSION, build_index
from kafscale.formats.partition_record import EpochStart, PartitionRecord, SegmentReference
from kafscale.formats.segment import HEADER_SIZE
from kafscale.log.partition import NOT_LED, Partition, PartitionId
from kafscale.log.partition_factory import append_rules
from kafscale.log.reading.cached_segment import CachedSegment
from kafscale.log.reading.log_reader import LogReader
from kafscale.log.reading.segment_loader import ReadSizes, SegmentLoader
from kafscale.memory.slab import SlabPool
from kafscale.objects.object_store import ObjectReader
from kafscale.ops.metrics import Metrics
from kafscale.protocol.record_batch import BatchHeader, read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from kafscale.settings.broker import Settings
from tests.formats.segments import segment_of
from tests.support.controlled_store import ControlledStore

NAMESPACE = "default"
TOPIC = "orders"
MIB = 1024 * 1024


def stored_batch(base_offset: int, values: Sequence[bytes], leader_epoch: int = 3) -> bytes:
    """A batch as it lies in a segment."""
    return encode_batch(
        [
            Record(base_offset + number, 1_700_000_000_000 + base_offset + number, None, value)
            for number, value in enumerate(values)
        ],
        partition_leader_epoch=leader_epoch,
    )


class StoredSegmentFile:
    """One segment: its batches, its file, its index and the reference to it."""

    def __init__(self, batches: Sequence[bytes], *, merged: bool = False, interval: int = 2) -> None:
        self.batches = list(batches)
        self.headers = [read_header(batch, 0) for batch in batches]
        self.data = segment_of(batches)
        base_offset, last_offset = self.headers[0].base_offset, self.headers[-1].last_offset
        folder = (NAMESPACE, TOPIC, 0)
        key = object_keys.merged_segment_key(*folder, base_offset, last_offset) if merged else ""
        self.key = key or object_keys.segment_key(*folder, base_offset)
        self.index_key = object_keys.index_key_of(self.key)
        self.index = self.index_of(interval)
        self.reference = SegmentReference(
            base_offset=base_offset,
            last_offset=last_offset,
            record_count=sum(header.record_count for header in self.headers),
            leader_epoch=self.headers[-1].partition_leader_epoch,
            size_bytes=len(self.data),
            max_timestamp_ms=max(header.max_timestamp for header in self.headers),
            object_key=key,
        )

    def entries(self) -> list[tuple[int, int, int]]:
        """Base offset, position and record count of each batch."""
        position, found = HEADER_SIZE, []
        for header in self.headers:
            found.append((header.base_offset, position, header.record_count))
            position += header.size_bytes
        return found

    def index_of(self, interval: int = DEFAULT_INTERVAL, version: int = LEGACY_VERSION) -> bytes:
        return build_index(self.entries(), interval, version=version)


class StoredLog:
    """Segments, in a store."""

    def __init__(self, segments: Sequence[StoredSegmentFile], epochs: Sequence[EpochStart] = ()) -> None:
        self.segments = list(segments)
        self.record = PartitionRecord(
            leader_epoch=max(header.partition_leader_epoch for one in segments for header in one.headers),
            log_start_offset=segments[0].reference.base_offset,
            log_end_offset=segments[-1].reference.last_offset + 1,
            epochs=tuple(epochs),
            segments=tuple(segment.reference for segment in segments),
        )

    async def put_into(self, objects: ControlledStore) -> None:
        for segment in self.segments:
            await objects.inner.put(segment.key, [segment.data])
            await objects.inner.put(segment.index_key, [segment.index])

    def batches_from(self, offset: int) -> list[bytes]:
        """Everything from `offset` on, as a reader gets it."""
        return [
            batch
            for segment in self.segments
            for batch, header in zip(segment.batches, segment.headers, strict=True)
            if header.last_offset >= offset
        ]

    def headers(self) -> list[BatchHeader]:
        return [header for segment in self.segments for header in segment.headers]


class Reading:
    """A broker's read path over a `StoredLog`."""

    def __init__(
        self,
        log: StoredLog,
        objects: ObjectReader,
        primary: ControlledStore,
        *,
        sizes: ReadSizes,
        cache_bytes: int = 64 * MIB,
        index_cache_bytes: int = MIB,
        read_ahead_segments: int = 0,
        spare_bytes: int = 16 * MIB,
        index_version: int = LEGACY_VERSION,
    ) -> None:
        self.metrics = Metrics()
        self.pool = SlabPool(spare_bytes)
        self.loader = SegmentLoader(
            objects,
            primary,
            NAMESPACE,
            self.pool,
            self.metrics,
            sizes=sizes,
            index_cache_bytes=index_cache_bytes,
            index_version=lambda: index_version,
        )
        self.reader = LogReader(self.loader, cache_bytes, read_ahead_segments, self.pool, self.metrics)
        self.partition = partition_of(log.record)

    async def fetch(
        self,
        offset: int,
        max_bytes: int = MIB,
        partition: Partition | None = None,
        end_offset: int | None = None,
    ) -> bytes:
        """The result of a fetch: whole batches from the one with `offset` on. Raises what the first load raises."""
        partition = partition or self.partition
        loaded: list[CachedSegment] = []

        async def load(reference: SegmentReference, at: int) -> None:
            loaded.append(await self.reader.load(partition, reference, at))

        cached, wanted = self.reader.plan(partition, offset, max_bytes, end_offset)
        loaded.extend(segment.hold() for segment in cached)
        problems = await asyncio.gather(*(load(*one) for one in wanted), return_exceptions=True)
        try:
            read = self.reader.read(partition, offset, max_bytes, True, loaded, end_offset)
            found = b"".join(read.views)
            read.release()
        finally:
            for segment in loaded:
                segment.release()
        if not found:
            for problem in problems:
                if problem is not None:
                    raise problem
        return found

    async def drain(self, offset: int, max_bytes: int = MIB) -> bytes:
        """Everything from the batch with `offset` on, fetch after fetch."""
        found = bytearray()
        while offset < self.partition.record.log_end_offset:
            part = await self.fetch(offset, max_bytes)
            found += part
            offset = end_of(part)
        return bytes(found)

    async def close(self) -> None:
        await self.reader.close()


def partition_of(record: PartitionRecord, number: int = 0) -> Partition:
    config = effective({}, Settings())
    partition = Partition(PartitionId(TOPIC, 0), number, record, 1, config, append_rules(config), NOT_LED)
    partition.load(EMPTY_CHECKPOINT)
    return partition


def end_of(batches: bytes) -> int:
    """The offset after whole batches that were read. Raises `CorruptDataError` when there are none."""
    position, end = 0, -1
    while position < len(batches):
        header = read_header(batches, position)
        position, end = position + header.size_bytes, header.last_offset + 1
    if end < 0:
        raise CorruptDataError("what was read", "nothing")
    return end
