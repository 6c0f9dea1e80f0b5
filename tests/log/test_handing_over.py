"""A partition that its broker is handing over, and one whose record changes under its broker."""

import asyncio
from dataclasses import replace

import pytest

from kafscale.cluster.leadership import next_epoch
from kafscale.formats import object_keys
from kafscale.formats.checkpoint import Checkpoint, encode_checkpoint
from kafscale.formats.partition_record import (
    PartitionRecord,
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.log import partition_log
from kafscale.log.life import record_deletion, removals
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Compare, Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.owners import taken_over
from tests.support.waiting import PATIENCE_MS

TOPIC = "topic"
KEY = keys.partition(TOPIC, 0)


async def stored_record(broker: InProcessBroker) -> tuple[PartitionRecord, int]:
    found = await broker.metadata.get(KEY)
    assert found is not None
    return decode_partition_record(KEY, found.value), found.mod_revision


async def another_leader_publishes(broker: InProcessBroker, records: int) -> PartitionRecord:
    """The record after another broker has claimed the partition and published so many records."""
    before, revision = await stored_record(broker)
    claimed = next_epoch(await taken_over(broker.metadata, broker.objects.inner, before, 0))
    end = claimed.log_end_offset + records
    segment = SegmentReference(
        base_offset=claimed.log_end_offset,
        last_offset=end - 1,
        record_count=records,
        leader_epoch=claimed.leader_epoch,
        size_bytes=100,
        max_timestamp_ms=0,
    )
    after = replace(claimed, log_end_offset=end, segments=(*claimed.segments, segment))
    result = await broker.metadata.transact(
        [Compare(KEY, revision)], [Put(KEY, encode_partition_record(after))]
    )
    assert result.succeeded
    return after


@on_uvloop
async def test_a_read_during_a_hand_over_overwrites_no_successor() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        await client.produce(TOPIC, 0, wire.batch([b"published"]))
        partition = broker.partition(TOPIC)
        logs = broker.process.serving.logs
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(TOPIC, {0: wire.batch([b"too late"])})
            await hold.reached()
            resigning = asyncio.create_task(logs.resign(partition))
            await until(lambda: not partition.is_led, "it hands over")
            successors = await another_leader_publishes(broker, 5)
            error_code = await logs.stored.check_beyond_end(partition, successors.log_end_offset)
            assert error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            hold.release()
            await resigning
        assert (await client.receive_produce())[1][0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        # This broker, alone in its cluster, leads again by now.
        assert (await stored_record(broker))[0].segments == successors.segments


@on_uvloop
async def test_offsets_in_flight_are_not_out_of_range() -> None:
    """Others may find them in the journal, and serve them, before their leader knows that they are stored."""
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        await client.produce(TOPIC, 0, wire.batch([b"published"]))
        partition = broker.partition(TOPIC)
        stored = broker.process.serving.logs.stored
        with broker.objects.hold("put_if_absent", "*.entry") as hold:
            await client.send_produce(TOPIC, {0: wire.batch([b"in", b"flight"])})
            await hold.reached()
            assert await stored.check_beyond_end(partition, 3) is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert await stored.check_beyond_end(partition, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
            hold.release()
            assert (await client.receive_produce())[1][0].error_code == ErrorCode.NONE
        assert await stored.check_beyond_end(partition, 3) is ErrorCode.NONE


@on_uvloop
async def test_references_outdated_during_their_load_are_loaded_again() -> None:
    async with in_process_broker() as broker:
        await broker.create_topic(TOPIC)
        logs = broker.process.serving.logs
        logs._led.remove(broker.partition(TOPIC))  # led elsewhere, for all that this broker knows
        followed = await logs.follow(TOPIC, 0)
        assert followed is not None
        load = logs._checkpointer.load

        async def load_and_hear_of_a_checkpoint(partition: object) -> Checkpoint:
            checkpoint = await load(followed)
            logs._checkpointer.load = load  # type: ignore[method-assign]

            def hear() -> None:
                segment = SegmentReference(
                    base_offset=0,
                    last_offset=9,
                    record_count=10,
                    leader_epoch=0,
                    size_bytes=100,
                    max_timestamp_ms=0,
                )
                key = "_kafscale/default/checkpoints/topic/0/00000000000000000010-0-abc.ckpt"
                record = replace(
                    followed.record, log_end_offset=10, checkpoint_key=key, checkpoint_end_offset=10
                )
                followed.follow(record, followed.revision + 100)
                checkpoint = Checkpoint(end_offset=10, segments=(segment,))
                broker.objects.inner._objects[key] = (encode_checkpoint(checkpoint), 0)

            asyncio.get_running_loop().call_soon(hear)
            return checkpoint

        logs._checkpointer.load = load_and_hear_of_a_checkpoint  # type: ignore[method-assign]
        await logs.load(followed)
        assert followed.references is not None
        assert [one.last_offset for one in followed.references] == [9]


@on_uvloop
async def test_a_stop_during_garbage_collection_is_orderly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_log, "CHECKPOINT_SEGMENTS", 1)
    metadata, objects = MemoryMetadata(), ControlledStore()
    async with in_process_broker(metadata=metadata, objects=objects) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        while not broker.partition(TOPIC).record.checkpoint_key:
            await client.produce(TOPIC, 0, wire.batch([b"a", b"b"]))
            await broker.seal(TOPIC)
    await objects.put_if_absent(object_keys.segment_key("default", TOPIC, 0, 1), [b"an orphan"])
    with objects.hold("get", "*.ckpt") as hold:
        async with in_process_broker(
            metadata=metadata, objects=objects, garbage_check_interval_sec=1, garbage_grace_sec=1
        ) as broker:
            await hold.reached()
            assert await broker.stop() == 0


@on_uvloop
async def test_old_segments_are_not_deleted_from_a_recreated_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records were deleted, and their topic, which came back before their objects were to be removed."""
    monkeypatch.setattr(removals, "GRACE_SEC", 0.3)
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        await client.produce(TOPIC, 0, wire.batch([b"deleted"]))
        await broker.seal(TOPIC)
        deletion = broker.process.serving.segment_life.record_deletion
        assert await deletion.delete_before(broker.partition(TOPIC), record_deletion.HIGH_WATERMARK) == 1
        topics = broker.process.serving.services.topics
        await topics.delete(TOPIC, timeout_ms=PATIENCE_MS)
        await broker.create_topic(TOPIC)
        assert (await client.produce(TOPIC, 0, wire.batch([b"new"]))).base_offset == 0
        await broker.seal(TOPIC)
        removing = broker.process.serving.segment_life.removals._tasks
        assert removing, "the old segment was to be removed later than this"
        await removing.wait()
        assert await broker.objects.size_bytes(object_keys.merged_segment_key("default", TOPIC, 0, 0, 0))
