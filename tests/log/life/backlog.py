"""A backlog of small segments in memory stores, the same each time: what a broker finds that merges it."""

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.cluster.identity import establish_cluster
from kafscale.formats import object_keys
from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    SegmentReference,
    encode_partition_record,
)
from kafscale.formats.topic_record import encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Put
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record
from tests.formats.segments import segment_of
from tests.support.controlled_store import ControlledStore

NAMESPACE, TOPIC = "default", "backlog"
_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a backlog. `gathered`: the first segments of each partition lie in shared objects."""

    partitions: int = 6
    segments: int = 12
    gathered: int = 0
    largest_value: int = 60


class Backlog:
    """The stores, and the batches of every partition in order."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        self.objects = ControlledStore()
        self.metadata = MemoryStore()
        self.bodies: dict[int, bytes] = {}
        self.base_offsets: dict[int, list[int]] = {}
        self.sizes: dict[int, list[int]] = {}
        self._rng = random.Random(seed)

    async def write(self) -> None:
        """Fill the stores."""
        shape = self.shape
        await establish_cluster(self.metadata, self.objects, NAMESPACE)
        ends = dict.fromkeys(range(shape.partitions), 0)
        bodies: Mapping[int, list[bytes]] = {partition: [] for partition in ends}
        references: Mapping[int, list[SegmentReference]] = {partition: [] for partition in ends}
        for number in range(shape.segments):
            shared, content = f"_kafscale/{NAMESPACE}/gathered/{number:020d}.test", bytearray()
            for partition in ends:
                batch, reference = self._segment(ends[partition], number)
                data = segment_of([batch], created_ms=_MS + number)
                reference = reference._replace(size_bytes=len(data))
                if number < shape.gathered:
                    reference = reference._replace(object_key=shared, start=len(content))
                    content += data
                else:
                    key = object_keys.segment_key(NAMESPACE, TOPIC, partition, reference.base_offset)
                    await self.objects.inner.put(key, [data])
                ends[partition] = reference.last_offset + 1
                bodies[partition].append(batch)
                references[partition].append(reference)
            if content:
                await self.objects.inner.put(shared, [bytes(content)])
        self.base_offsets = {at: [one.base_offset for one in each] for at, each in references.items()}
        self.sizes = {at: [one.size_bytes for one in each] for at, each in references.items()}
        self.bodies = {partition: b"".join(each) for partition, each in bodies.items()}
        topic = TopicRecord(name=TOPIC, topic_id=uuid.UUID(int=1), partition_count=shape.partitions)
        puts = [Put(keys.topic(TOPIC), encode_topic_record(topic))]
        for partition, segments in references.items():
            record = PartitionRecord(
                leader_epoch=1,
                log_end_offset=ends[partition],
                epochs=(EpochStart(1, 0),),
                segments=tuple(segments),
            )
            puts.append(Put(keys.partition(TOPIC, partition), encode_partition_record(record)))
        await self.metadata.transact([], puts)

    def _segment(self, base_offset: int, number: int) -> tuple[bytes, SegmentReference]:
        count = self._rng.randint(1, 5)
        records = [
            Record(
                base_offset + at,
                _MS + number,
                None,
                self._rng.randbytes(self._rng.randint(0, self.shape.largest_value)),
            )
            for at in range(count)
        ]
        return encode_batch(records, partition_leader_epoch=1), SegmentReference(
            base_offset=base_offset,
            last_offset=base_offset + count - 1,
            record_count=count,
            leader_epoch=1,
            size_bytes=0,
            max_timestamp_ms=_MS + number,
        )
