"""Records are deleted, or expire, and the metadata store is lost after that: the log goes on where it ended."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafscale.cluster.cluster_record import new_kafka_uuid
from kafscale.formats.partition_record import PartitionRecord, decode_partition_record
from kafscale.log.life import removals
from kafscale.log.life.record_deletion import HIGH_WATERMARK
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import MetadataStore
from kafscale.objects.memory_store import MemoryStore as MemoryObjects
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.tools.recovery.rebuild import plan_rebuild
from kafscale.tools.recovery.write import RecoveryWriter
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker
from tests.support.on_uvloop import on_uvloop
from tests.tools.recovery.recovery_bucket import Silence

TOPIC = "orders"
LONG_AGO_MS = 1_000_000


async def produce(client: Client, *values: bytes, **fields: Any) -> int:
    part = await client.produce(TOPIC, 0, wire.batch(list(values), timestamp=LONG_AGO_MS, **fields))
    assert part.error_code == 0
    return int(part.base_offset)


async def record_of(metadata: MetadataStore) -> PartitionRecord:
    found = await metadata.get(keys.partition(TOPIC, 0))
    assert found is not None
    return decode_partition_record(found.key, found.value)


async def rebuilt(objects: ControlledStore) -> MetadataStore:
    """A metadata store that `kafscale recover --apply` made."""
    metadata = MemoryStore()
    plan = await plan_rebuild(objects, "default", concurrency=4, progress=Silence())
    writer = RecoveryWriter(metadata, objects, plan, configs={}, new_uuid=new_kafka_uuid, progress=Silence())
    await writer.write(skip_damaged=False)
    return metadata


async def delete_all(broker: InProcessBroker) -> None:
    end = broker.partition(TOPIC).record.log_end_offset
    deletion = broker.process.serving.segment_life.record_deletion
    assert await deletion.delete_before(broker.partition(TOPIC), HIGH_WATERMARK) == end


async def let_all_expire(broker: InProcessBroker) -> None:
    assert await broker.process.serving.segment_life._retention.enforce(broker.partition(TOPIC)) > 0


@pytest.mark.parametrize("empty", [delete_all, let_all_expire])
@pytest.mark.parametrize("segments", [1, 5])
def test_an_emptied_log_ends_where_it_did_after_a_rebuild(
    empty: Callable[[InProcessBroker], Awaitable[None]], segments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removals, "GRACE_SEC", 0.0)

    @on_uvloop
    async def run() -> None:
        objects = ControlledStore()
        # Of two checkpoints with the same end the newer one counts.
        objects.inner = MemoryObjects(itertools.count().__next__)
        async with in_process_broker(objects=objects) as first, first.connect() as client:
            await first.create_topic(TOPIC)
            for number in range(segments):
                await produce(client, b"a", b"b", producer_id=7, producer_epoch=0, sequence=2 * number)
            await empty(first)
            await first.process.serving.segment_life.removals._tasks.wait()
            assert await first.objects.keys("default/*") == []
            before = await record_of(first.metadata)
        metadata = await rebuilt(first.objects)
        after = await record_of(metadata)
        assert (after.log_start_offset, after.log_end_offset) == (2 * segments, 2 * segments)
        assert before.log_end_offset == after.log_end_offset
        async with (
            in_process_broker(metadata=metadata, objects=first.objects) as second,
            second.connect() as client,
        ):
            # The last of its batches, again: its producer did not hear of it.
            again = {"producer_id": 7, "producer_epoch": 0, "sequence": 2 * (segments - 1)}
            assert await produce(client, b"a", b"b", **again) == 2 * (segments - 1)
            assert await produce(client, b"next") == 2 * segments
            part = (await client.fetch(TOPIC, {0: 0}))[0]
            assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            part = (await client.fetch(TOPIC, {0: 2 * segments}))[0]
            assert wire.records_in(part.records) == [(2 * segments, b"next")]

    run()


@on_uvloop
async def test_a_log_that_keeps_segments_needs_no_checkpoint() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        for _ in range(3):
            await produce(client, b"a", b"b")
            await broker.seal(TOPIC)
        deletion = broker.process.serving.segment_life.record_deletion
        assert await deletion.delete_before(broker.partition(TOPIC), 5) == 5
        assert await broker.objects.keys("*.ckpt") == []
        after = await record_of(await rebuilt(broker.objects))
        assert after.log_end_offset == 6


@on_uvloop
async def test_deletions_beside_flushes_all_come_true() -> None:
    """Each deletion empties the log, or would if no flush came between."""
    async with in_process_broker() as broker, broker.connect() as client, broker.connect() as other:
        await broker.create_topic(TOPIC)
        partition = broker.partition(TOPIC)
        deletion = broker.process.serving.segment_life.record_deletion
        for _ in range(30):
            await produce(client, b"a")
            await other.send_produce(TOPIC, {0: wire.batch([b"b"])})
            start = await deletion.delete_before(partition, HIGH_WATERMARK)
            assert (await other.receive_produce())[1][0].error_code == 0
            record = partition.record
            assert (await record_of(broker.metadata)).log_start_offset == start
            assert start == record.log_start_offset <= record.log_end_offset
            assert record.segments or record.checkpoint_end_offset == record.log_end_offset
        assert partition.record.log_end_offset == 60


@on_uvloop
async def test_a_partition_that_is_not_led_any_more_is_not_emptied() -> None:
    """Not even when that comes out only while the checkpoint is written."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        await produce(client, b"a")
        partition = broker.partition(TOPIC)
        with broker.objects.hold("put_if_absent", "*.ckpt") as hold:
            deleting = asyncio.create_task(
                broker.process.serving.segment_life.record_deletion.delete_before(partition, HIGH_WATERMARK)
            )
            await hold.reached()
            await broker.process.serving.logs.resign(partition)
        with pytest.raises(KafkaError) as refused:
            await deleting
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await record_of(broker.metadata)).log_start_offset == 0
