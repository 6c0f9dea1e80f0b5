"""A partition's record stays within what the metadata store takes, whatever producers and checkpoints do."""

from collections.abc import Sequence

import pytest

from kafscale.cluster.leadership import REMEMBERED_EPOCHS
from kafscale.errors import StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import (
    EpochStart,
    PartitionRecord,
    ProducerRecord,
    SegmentReference,
    encode_partition_record,
)
from kafscale.formats.producer_batches import MOST_BATCHES, ProducerBatch
from kafscale.log import checkpointer, partition_log
from kafscale.log.writing import segment_buffer
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Compare, Operation, Put, TransactionResult
from kafscale.metadata.write_batch import MAX_TRANSACTION_BYTES, Write
from kafscale.ops.metric_export import render
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.types import Buffer
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

TOPIC = "topic"
TIMEOUT_MS = 120_000


class NoCheckpoints(ControlledStore):
    """Takes no checkpoints of partition 0 until it is `well`."""

    def __init__(self) -> None:
        super().__init__()
        self.is_well = False
        self.refusals = 0

    async def put_if_absent(self, key: str, parts: Sequence[Buffer]) -> None:
        parsed = object_keys.parse_checkpoint_key(key)
        if parsed is not None and parsed.partition == 0 and not self.is_well:
            self.refusals += 1
            raise StoreUnavailableError("no checkpoints today")
        await super().put_if_absent(key, parts)


class SmallRequests(MemoryMetadata):
    """Refuses transactions with a value above `limit_bytes`, as etcd does above 1.5 MiB."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__()
        self.limit_bytes = limit_bytes
        self.largest = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        size_bytes = max((len(one.value) for one in operations if isinstance(one, Put)), default=0)
        if size_bytes > self.limit_bytes:
            raise ValueError(f"a request of {size_bytes} bytes is too large")
        self.largest = max(self.largest, size_bytes)
        return await super().transact(compares, operations)


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "CHECKPOINT_SEGMENTS", 2)
    monkeypatch.setattr(checkpointer, "_FIRST_RETRY_SEC", 0.01)
    monkeypatch.setattr(checkpointer, "_LAST_RETRY_SEC", 0.01)


async def produce(client: Client, number: int, partition: int = 0) -> ErrorCode:
    sent = wire.batch([b"%d" % number], producer_id=number, producer_epoch=0, sequence=0)
    return ErrorCode((await client.produce(TOPIC, partition, sent, timeout_ms=TIMEOUT_MS)).error_code)


@on_uvloop
async def test_full_record_refuses_producers_until_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grew by a reference a segment, until etcd refused it: then nothing of the partition was published."""
    monkeypatch.setattr(partition_log, "MOST_RECORD_SEGMENTS", 6)
    objects = NoCheckpoints()
    async with in_process_broker(objects=objects) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, partitions=2)
        partition = broker.partition(TOPIC, 0)
        async with broker.connect() as waiting:
            for number in range(100, 107):
                await waiting.send_produce(TOPIC, {0: wire.batch([b"%d" % number])}, timeout_ms=TIMEOUT_MS)
                if number < 106:
                    assert (await waiting.receive_produce())[1][0].error_code == 0
                    await broker.seal(TOPIC)
            log = partition.log
            assert log is not None
            await until(lambda: log.is_held_up, "no checkpoint can be stored")
            assert await produce(client, 1) is ErrorCode.NOT_ENOUGH_REPLICAS
            assert await produce(client, 2, partition=1) is ErrorCode.NONE
            assert b"kafscale_partitions_held_up 1.0" in render(broker.metrics)
            assert len(partition.record.segments) == 6
            objects.is_well = True
            assert (await waiting.receive_produce())[1][0].error_code == 0
        assert partition.log is log, "its leader stays"
        assert not log.is_held_up
        assert await produce(client, 3) is ErrorCode.NONE
        part = (await client.fetch(TOPIC, {0: 0}))[0]
        assert [value for _, value in wire.records_in(part.records)] == [
            *(b"%d" % number for number in range(100, 107)),
            b"3",
        ]


@on_uvloop
async def test_burst_of_producers_leaves_a_record_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 producers in one segment made a record that etcd never took."""
    monkeypatch.setattr(partition_log, "MOST_RECORD_PRODUCERS", 20)
    monkeypatch.setattr(segment_buffer, "MOST_SEGMENT_PRODUCERS", 10)
    metadata, objects = SmallRequests(limit_bytes=8 * 1024), NoCheckpoints()
    async with in_process_broker(metadata=metadata, objects=objects) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        assert await produce(client, 0) is ErrorCode.NONE
        epoch = broker.partition(TOPIC).record.leader_epoch
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            for number in range(1, 300):
                sent = wire.batch([b"x"], producer_id=number, producer_epoch=0, sequence=0)
                await client.send_produce(TOPIC, {0: sent}, timeout_ms=TIMEOUT_MS)
            await until(lambda: waiting_batches(broker) >= 299, "all are appended")
            hold.release()
        await until(lambda: objects.refusals > 2, "a checkpoint is needed")
        objects.is_well = True
        for _ in range(1, 300):
            assert (await client.receive_produce())[1][0].error_code == 0
        partition = broker.partition(TOPIC)
        assert partition.record.leader_epoch == epoch
        assert partition.record.log_end_offset == 300
        assert metadata.largest <= 8 * 1024


def waiting_batches(broker: InProcessBroker) -> int:
    """The number of batches that wait to be published."""
    log = broker.partition(TOPIC).log
    assert log is not None
    return sum(len(buffer.waiters) for buffer in log._buffers)


def test_largest_record_fits_into_a_shared_transaction() -> None:
    """With the segment for which there was just room."""
    segments = partition_log.MOST_RECORD_SEGMENTS
    producers = partition_log.MOST_RECORD_PRODUCERS - 1 + segment_buffer.MOST_SEGMENT_PRODUCERS
    batches = tuple(ProducerBatch(0, 0, 0) for _ in range(MOST_BATCHES))
    record = PartitionRecord(
        leader_epoch=1,
        epochs=tuple(EpochStart(epoch, epoch) for epoch in range(REMEMBERED_EPOCHS)),
        segments=tuple(
            SegmentReference(
                base_offset=offset,
                last_offset=offset,
                record_count=1,
                leader_epoch=1,
                size_bytes=100,
                max_timestamp_ms=0,
            )
            for offset in range(segments)
        ),
        producers=tuple(
            ProducerRecord(producer_id=number, producer_epoch=0, last_timestamp_ms=0, batches=batches)
            for number in range(producers)
        ),
        checkpoint_key="x" * 500,
    )
    key = "x" * 300
    write = Write((Compare(key, 1),), (Put(key, encode_partition_record(record)),))
    assert write.request_bytes <= MAX_TRANSACTION_BYTES // 2
