"""Brokers that lead one partition in turn, producers that retry, and what must be true in the end."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import cast

from kafscale.cluster.leadership import next_epoch
from kafscale.cluster.topic_configs import effective
from kafscale.errors import StoreError
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT, decode_checkpoint, encode_checkpoint
from kafscale.formats.index import LEGACY_VERSION
from kafscale.formats.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.log.batch_append import AppendRules
from kafscale.log.checkpointer import Checkpointer
from kafscale.log.leadership.events import Event
from kafscale.log.partition import Partition, PartitionId
from kafscale.log.writing.publisher import FencedError, Publisher
from kafscale.memory.slab import SlabPool
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import ABSENT, Compare, MetadataStore, Put
from kafscale.objects.memory_store import MemoryStore as MemoryObjects
from kafscale.objects.object_store import ObjectStore
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import read_header, walk
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record, decode_records
from kafscale.settings.broker import Settings
from kafscale.tools.fsck import dropping
from tests.formats.segments import parse_segment, verify_segment
from tests.sim.unreliable import Network, UnreliableMetadata, UnreliableObjects

NAMESPACE = "default"
TOPIC = "simulated"
KEY = keys.partition(TOPIC, 0)
NOW_MS = 1_700_000_000_000
RULES = AppendRules(codec=None, log_append_time=False, segment_bytes=1024 * 1024)


@dataclass
class Outcome:
    """What one producer was told of one of its batches."""

    told: "asyncio.Future[int]"

    def published(self, base_offset: int, log_start_offset: int) -> None:
        if not self.told.done():
            self.told.set_result(base_offset)

    def refused(self, error_code: int, message: str) -> None:
        if not self.told.done():
            self.told.set_exception(RefusedError(error_code))


class RefusedError(Exception):
    """The broker answered with an error code."""

    def __init__(self, error_code: int) -> None:
        super().__init__(ErrorCode(error_code).name)
        self.error_code = error_code


@dataclass
class World:
    """The stores as they are, and everything that was acknowledged."""

    rng: random.Random
    fault_rate: float
    objects: MemoryObjects = field(default_factory=lambda: MemoryObjects(lambda: NOW_MS))
    metadata: MemoryMetadata = field(default_factory=MemoryMetadata)
    acknowledged: dict[bytes, int] = field(default_factory=dict)
    leader: "SimulatedBroker | None" = None

    def __post_init__(self) -> None:
        self.network = Network(self.rng, self.fault_rate)

    async def create(self) -> None:
        record = encode_partition_record(PartitionRecord(leader_epoch=-1))
        await self.metadata.transact([Compare(KEY, ABSENT)], [Put(KEY, record)])

    async def record(self) -> PartitionRecord:
        found = await self.metadata.get(KEY)
        assert found is not None
        return decode_partition_record(KEY, found.value)

    async def elect(self) -> None:
        """A new broker leads from now on; the one before does not know."""
        while True:
            found = await self.metadata.get(KEY)
            assert found is not None
            record = next_epoch(decode_partition_record(KEY, found.value))
            result = await self.metadata.transact(
                [Compare(KEY, found.mod_revision)], [Put(KEY, encode_partition_record(record))]
            )
            if result.succeeded:
                break
        self.leader = SimulatedBroker(self, record, result.revision)
        await self.leader.open()

    async def repair(self) -> None:
        """As `fsck --repair --drop-missing` does once no broker is registered: the leader does not know."""
        found = await self.metadata.get(KEY)
        assert found is not None
        record = decode_partition_record(KEY, found.value)
        checkpoint = EMPTY_CHECKPOINT
        if record.checkpoint_key:
            checkpoint = decode_checkpoint(
                record.checkpoint_key, await self.objects.get(record.checkpoint_key)
            )
        token = f"{self.rng.getrandbits(32):08x}"
        key = object_keys.checkpoint_key(
            NAMESPACE, TOPIC, 0, record.log_end_offset, record.leader_epoch, token
        )
        changed, whole = dropping.without_segments(record, checkpoint, (), key)
        await self.objects.put_if_absent(key, [encode_checkpoint(whole)])
        await self.metadata.transact(
            [Compare(KEY, found.mod_revision)], [Put(KEY, encode_partition_record(changed))]
        )


class SimulatedBroker:
    """The real partition log, publisher and checkpointer of one leader."""

    def __init__(self, world: World, record: PartitionRecord, revision: int) -> None:
        self._world = world
        config = effective({}, Settings())
        self.partition = Partition(PartitionId(TOPIC, 0), 0, record, revision, config, RULES, revision)
        self._pool = SlabPool(0)
        objects = cast(ObjectStore, UnreliableObjects(world.objects, world.network))
        metadata = cast(MetadataStore, UnreliableMetadata(world.metadata, world.network))
        rng = world.rng
        self._checkpointer = Checkpointer(
            objects, metadata, NAMESPACE, lambda: NOW_MS, lambda: f"{rng.getrandbits(32):08x}"
        )
        self._publisher = Publisher(
            objects,
            metadata,
            NAMESPACE,
            lambda: NOW_MS + rng.randrange(1000),
            lambda partition, sealed: self._checkpointer.consider(partition),
            rng,
            lambda: LEGACY_VERSION,
        )
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        while True:
            try:
                checkpoint = await self._checkpointer.load(self.partition)
            except StoreError:
                continue
            self.partition.open(checkpoint if self.partition.record.checkpoint_key else EMPTY_CHECKPOINT)
            return

    def append(self, batch: bytes, outcome: Outcome) -> None:
        log = self.partition.log
        if log is None:
            outcome.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced")
            return
        view = memoryview(batch)
        log.append(view, read_header(view, 0), RULES, NOW_MS, self._pool, outcome)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        log = self.partition.log
        while log is not None and log.waiting is not None:
            try:
                upload = await self._publisher.upload(self.partition, log)
                await (await self._publisher.publish(self.partition, log, upload)).index_is_there()
            except FencedError:
                self.partition.leadership.apply(Event.FENCED)
                self.partition.log = None
                log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced")
                return

    async def kill(self) -> None:
        """The process ends; what it sent may still arrive."""
        self.partition.leadership.apply(Event.FENCED)
        log, self.partition.log = self.partition.log, None
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._checkpointer.close()
        if log is not None:
            log.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, "killed")


async def produce(world: World, producer_id: int, batches: int) -> None:
    """An idempotent producer: each batch is sent until a leader acknowledges it, to whoever leads then."""
    sequence = 0
    for number in range(batches):
        values = [b"%d/%d/%d" % (producer_id, number, i) for i in range(world.rng.randrange(1, 4))]
        batch = encode_batch(
            [Record(i, NOW_MS, None, value) for i, value in enumerate(values)],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        base_offset = await _send(world, batch)
        for i, value in enumerate(values):
            world.acknowledged[value] = base_offset + i
        sequence += len(values)
        await asyncio.sleep(world.rng.uniform(0, 0.3))


async def _send(world: World, batch: bytes) -> int:
    while True:
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        assert world.leader is not None
        world.leader.append(batch, Outcome(told))
        try:
            return await asyncio.wait_for(told, timeout=world.rng.uniform(0.5, 5.0))
        except RefusedError as refusal:
            assert refusal.error_code in (
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                ErrorCode.REQUEST_TIMED_OUT,
            ), refusal
        except TimeoutError:
            pass
        await asyncio.sleep(0.05)


async def disturb(world: World, changes: int) -> None:
    """Leaders are replaced while they live, and killed; records are repaired beside leaders without a lease."""
    for _ in range(changes):
        await asyncio.sleep(world.rng.uniform(0.1, 3.0))
        if world.rng.random() < 0.3:
            await world.repair()
            await asyncio.sleep(world.rng.uniform(0.1, 1.0))
        if world.rng.random() < 0.5 and world.leader is not None:
            await world.leader.kill()
        await world.elect()


async def published_values(world: World) -> dict[int, bytes]:
    """Every published record by offset, from the objects that the record and its checkpoint name."""
    record = await world.record()
    reader = SimulatedBroker(World(world.rng, 0.0, world.objects, world.metadata), record, 0)
    await reader.open()
    values: dict[int, bytes] = {}
    assert reader.partition.references is not None
    epoch = -1
    for reference in reader.partition.references:
        key = object_keys.segment_key(NAMESPACE, TOPIC, 0, reference.base_offset)
        segment = parse_segment(key, await world.objects.get(key))
        verify_segment(segment)
        assert reference.leader_epoch >= epoch, "an older leader published after a newer one"
        epoch = reference.leader_epoch
        for position, header in walk(segment.body, 0, len(segment.body), key):
            assert header.partition_leader_epoch == epoch
            for one in decode_records(segment.body[position : position + header.size_bytes], 1 << 20):
                assert one.offset not in values, f"offset {one.offset} is published twice"
                assert one.value is not None
                values[one.offset] = one.value
    return values
