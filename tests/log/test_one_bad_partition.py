"""An error that nobody expects at one partition ends no background work: the others are looked after."""

import asyncio
from collections.abc import Sequence

import pytest

from kafscale.formats import object_keys
from kafscale.formats.partition_record import PartitionRecord, SegmentReference, encode_partition_record
from kafscale.log.life import removals
from kafscale.log.manager import LogManager
from kafscale.log.partition import Partition
from kafscale.log.partition_factory import PartitionFactory
from kafscale.log.partition_log import Change, PartitionLog
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore as MemoryMetadata
from kafscale.metadata.store import Compare, Operation, Put, TransactionResult
from kafscale.ops.item_failures import BackgroundWork
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop
from tests.support.waiting import PATIENCE_MS, PATIENCE_SEC

TOPIC = "topic"


class Bounded(MemoryMetadata):
    """Refuses transactions with more than `limit_bytes` of values, as etcd does above 1.5 MiB."""

    limit_bytes = 1 << 30

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if sum(len(one.value) for one in operations if isinstance(one, Put)) > self.limit_bytes:
            raise ValueError("etcd refuses the transaction: request is too large")
        return await super().transact(compares, operations)


def failures(broker: InProcessBroker, work: BackgroundWork) -> int:
    return broker.metrics.background_failures[work]


@on_uvloop
async def test_retention_goes_on_behind_a_record_too_large_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The task ended with the first partition whose record etcd refused, and the broker with it."""
    metadata = Bounded()
    async with (
        in_process_broker(metadata=metadata, retention_check_interval_ms=20) as broker,
        broker.connect() as client,
    ):
        await broker.create_topic(TOPIC, partitions=3, configs={"retention.ms": -1})
        for index in range(3):
            for _ in range(3):
                sent = wire.batch([b"x"], timestamp=1)
                assert (await client.produce(TOPIC, index, sent)).error_code == 0
        bad = broker.partition(TOPIC, 1)
        records = broker.process.serving.logs.records
        write = records.write

        async def refused(partition: Partition, log: PartitionLog, change: Change) -> PartitionRecord:
            if partition is bad:
                raise ValueError("etcd refuses the transaction: request is too large")
            return await write(partition, log, change)

        monkeypatch.setattr(records, "write", refused)
        await broker.process.serving.services.topics.alter_configs(
            TOPIC, lambda _: {"retention.ms": "1000"}, timeout_ms=PATIENCE_MS
        )
        others = [broker.partition(TOPIC, index) for index in (0, 2)]
        await until(
            lambda: all(other.record.log_start_offset == 3 for other in others), "the others' records expire"
        )
        await until(lambda: failures(broker, BackgroundWork.RETENTION) > 1, "the bad one is looked at again")
        assert not broker.running.done()


@on_uvloop
async def test_garbage_search_goes_on_behind_a_bad_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[int] = []
    load = LogManager.load

    async def bad(self: LogManager, partition: Partition) -> None:
        loaded.append(partition.id.index)
        if partition.id.index == 0:
            raise ValueError("nobody expects this")
        await load(self, partition)

    async with in_process_broker(garbage_check_interval_sec=1, garbage_grace_sec=0) as broker:
        await broker.create_topic(TOPIC, partitions=2)
        async with broker.connect() as client:
            for index in (0, 1):
                assert (await client.produce(TOPIC, index, wire.batch([b"x"]))).error_code == 0
                await broker.seal(TOPIC, index)
        monkeypatch.setattr(LogManager, "load", bad)
        await until(lambda: 1 in loaded, "the second partition is looked at")
        await until(lambda: loaded.count(0) > 1, "the first is looked at again")
        assert failures(broker, BackgroundWork.GARBAGE) > 0
        assert not broker.running.done()
        monkeypatch.undo()


@on_uvloop
async def test_claim_of_a_record_too_large_leaves_the_others_led() -> None:
    """One such record left 59 of 64 partitions without a leader, at every attempt."""
    metadata, objects = Bounded(), ControlledStore()
    async with in_process_broker(metadata=metadata, objects=objects) as broker:
        await broker.create_topic(TOPIC, partitions=64)
    grown = PartitionRecord(
        leader_epoch=5,
        log_end_offset=1000,
        segments=tuple(
            SegmentReference(
                base_offset=offset,
                last_offset=offset,
                record_count=1,
                leader_epoch=5,
                size_bytes=100,
                max_timestamp_ms=0,
            )
            for offset in range(1000)
        ),
    )
    bad = keys.partition(TOPIC, 5)
    await metadata.transact([], [Put(bad, encode_partition_record(grown))])
    # The claims' own bound for a transaction is far above what this store takes.
    metadata.limit_bytes = 20_000
    await objects.put_if_absent(object_keys.segment_key("default", TOPIC, 5, 0), [b"looked for at the start"])
    async with in_process_broker(metadata=metadata, objects=objects) as broker:
        logs = broker.process.serving.logs
        await until(lambda: logs.partition_count == 63, "all others are led")
        assert logs.partition(TOPIC, 5) is None
        assert failures(broker, BackgroundWork.CLAIMS) == 1
        async with broker.connect() as client:
            assert (await client.produce(TOPIC, 63, wire.batch([b"x"]))).error_code == 0


@on_uvloop
async def test_defect_at_one_claimed_partition_leaves_the_others_led(monkeypatch: pytest.MonkeyPatch) -> None:
    led = PartitionFactory.led

    def bad(self: PartitionFactory, topic: str, index: int, *arguments: object) -> Partition | None:
        if index == 5:
            raise ValueError("nobody expects this")
        return led(self, topic, index, *arguments)  # type: ignore[arg-type]

    metadata = Bounded()
    async with in_process_broker(metadata=metadata) as broker:
        await broker.create_topic(TOPIC, partitions=64)
    monkeypatch.setattr(PartitionFactory, "led", bad)
    async with in_process_broker(metadata=metadata) as broker:
        logs = broker.process.serving.logs
        await until(lambda: logs.partition_count == 63, "all others are led")
        assert failures(broker, BackgroundWork.KEEPING) == 1


@on_uvloop
async def test_removal_that_meets_a_defect_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removals, "GRACE_SEC", 0.0)

    async def bad(self: LogManager, partition: Partition) -> bool:
        raise ValueError("nobody expects this")

    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic(TOPIC)
        for _ in range(2):
            assert (await client.produce(TOPIC, 0, wire.batch([b"x"]))).error_code == 0
            await broker.seal(TOPIC)
        partition = broker.partition(TOPIC)
        monkeypatch.setattr(LogManager, "is_leader_still", bad)
        deletion = broker.process.serving.segment_life.record_deletion
        await asyncio.wait_for(deletion.delete_before(partition, 1), PATIENCE_SEC)
        await until(lambda: failures(broker, BackgroundWork.REMOVALS) == 1, "the defect is counted")
        monkeypatch.undo()
