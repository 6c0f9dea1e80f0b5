"""Retention: the segments that the leader removes, when, and at what cost."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.log import partition_log
from kafscale.log.checkpoint_pointer import with_checkpoint
from kafscale.log.life import removals
from kafscale.log.life.log_start import LogStart
from kafscale.log.life.removals import Removals
from kafscale.log.life.retention_enforcer import RetentionEnforcer
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.ops.metrics import ExpiryReason
from tests.log.brokers import NAMESPACE, BrokerParts, Cluster, cluster_scenario
from tests.support.owners import lead_elsewhere
from tests.support.waiting import PATIENCE_MS

TOPIC = "orders"
A_DAY_MS = 24 * 3_600_000
FUTURE_MS = 10**15


class Retention:
    """A broker's, as its process puts it together. `add_ms` moves its clock on."""

    def __init__(self, cluster: Cluster, broker: BrokerParts, interval_ms: int = 1000) -> None:
        self.add_ms = 0
        self.removals = Removals(broker.logs, cluster.objects, NAMESPACE)
        cluster.closing.push_async_callback(self.removals.close)
        self.log_start = LogStart(
            broker.logs, broker.checkpointer, self.removals, broker.parts.segment_life.sealer.seal_some
        )
        self.enforcer = RetentionEnforcer(
            broker.logs,
            cluster.objects,
            broker.checkpointer,
            self.log_start,
            NAMESPACE,
            lambda: broker.now_ms() + self.add_ms,
            broker.metrics,
            interval_ms=interval_ms,
        )


async def started(cluster: Cluster, **configs: str) -> tuple[BrokerParts, Partition, Retention]:
    """One broker that leads the topic's one partition."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC, 1, **configs)
    return broker, broker.partition(TOPIC), Retention(cluster, broker)


async def produce(broker: BrokerParts, *timestamps: int, size: int = 1) -> None:
    """A segment of one record for each timestamp, of `size` bytes that no codec makes fewer."""
    for timestamp in timestamps:
        await broker.produce_segment(TOPIC, 0, random.Random(0).randbytes(size), timestamp=timestamp)


async def set_configs(broker: BrokerParts, configs: dict[str, str]) -> None:
    await broker.topics.alter_configs(TOPIC, lambda _: configs, timeout_ms=PATIENCE_MS)


def offsets(partition: Partition) -> Sequence[int]:
    """Those at which the segments begin."""
    assert partition.references is not None
    return [reference.base_offset for reference in partition.references]


def segment_keys(*base_offsets: int) -> set[str]:
    """Of segments with one record each."""
    keys = (object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, offset, offset) for offset in base_offsets)
    return {one for key in keys for one in (key, object_keys.index_key_of(key))}


async def stored(cluster: Cluster) -> set[str]:
    return set(await cluster.objects.keys(f"{NAMESPACE}/*"))


@cluster_scenario()
async def test_expired_segments_leave_the_record_and_later_the_store(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    await produce(broker, 0, 500, FUTURE_MS, 0)
    retention.add_ms = 100_000
    assert await retention.enforcer.enforce(partition) == 2
    record = await cluster.record(TOPIC)
    assert replace(record, journal=None) == replace(partition.record, journal=None)
    assert (record.log_start_offset, record.log_end_offset) == (2, 4)
    assert [segment.base_offset for segment in record.segments] == offsets(partition) == [2, 3]
    assert await broker.logs.size_bytes(TOPIC, 0) == sum(one.size_bytes for one in record.segments)
    assert broker.metrics.segments_expired == {ExpiryReason.TIME: 2, ExpiryReason.SIZE: 0}
    assert broker.metrics.bytes_expired[ExpiryReason.TIME] > 100
    assert segment_keys(0, 1) <= await stored(cluster)
    await asyncio.sleep(removals.GRACE_SEC + 1)
    assert await stored(cluster) == segment_keys(2, 3)
    assert await retention.enforcer.enforce(partition) == 0
    assert await broker.produce(TOPIC, 0, b"next") == 4


@cluster_scenario()
async def test_a_log_that_is_too_large_loses_its_oldest_segments(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.bytes": "2500", "retention.ms": "-1"})
    await produce(broker, *[0] * 5, size=1000)
    assert await retention.enforcer.enforce(partition) == 2
    assert offsets(partition) == [2, 3, 4]
    assert broker.metrics.segments_expired == {ExpiryReason.TIME: 0, ExpiryReason.SIZE: 2}
    assert await retention.enforcer.enforce(partition) == 0
    await produce(broker, 0, size=1000)
    assert await retention.enforcer.enforce(partition) == 1
    assert partition.record.log_start_offset == 3


@cluster_scenario()
async def test_expired_segments_are_counted_by_the_limit_that_applied(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.bytes": "3300", "retention.ms": "5"})
    await produce(broker, FUTURE_MS, FUTURE_MS, 0, 0, FUTURE_MS, size=1000)
    retention.add_ms = 100_000
    assert await retention.enforcer.enforce(partition) == 4
    assert broker.metrics.segments_expired == {ExpiryReason.TIME: 2, ExpiryReason.SIZE: 2}
    assert offsets(partition) == [4]


@cluster_scenario()
async def test_changed_configs_apply_at_the_next_look(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": str(A_DAY_MS)})
    await produce(broker, 0, 0)
    retention.add_ms = 100_000
    for configs in ({"cleanup.policy": "compact", "retention.ms": "5"}, {"retention.ms": "-1"}, {}):
        await set_configs(broker, configs)
        await cluster.settle()
        assert await retention.enforcer.enforce(partition) == 0
    await set_configs(broker, {"retention.ms": "5"})
    await cluster.settle()
    assert await retention.enforcer.enforce(partition) == 2


@cluster_scenario()
async def test_segments_without_timestamps_expire_by_an_age_read_once(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    await produce(broker, -1, -1, -1)
    await asyncio.sleep(30)
    await produce(broker, *[-1] * 20)
    assert partition.record.segments[0].max_timestamp_ms == -1
    cluster.objects.calls.clear()
    for _ in range(3):
        assert await retention.enforcer.enforce(partition) == 0
    assert cluster.objects.count("get_range") == 1
    retention.add_ms = 40_000
    for _ in range(3):
        await retention.enforcer.enforce(partition)
    assert offsets(partition) == [*range(3, 23)]
    assert cluster.objects.count("get_range") <= 4
    retention.add_ms = 100_000
    assert await retention.enforcer.enforce(partition) == 20
    assert partition.record.log_start_offset == partition.record.log_end_offset == 23
    assert cluster.objects.count("get_range") == 23


# --- the last segment


@cluster_scenario()
async def test_the_last_segment_expires_once_a_checkpoint_has_the_end(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    producer = {"producer_id": 7, "producer_epoch": 0}
    assert await broker.produce(TOPIC, 0, b"a", b"b", timestamp=0, sequence=0, **producer) == 0
    retention.add_ms = 100_000
    assert await retention.enforcer.enforce(partition) == 1
    record = await cluster.record(TOPIC)
    assert (record.log_start_offset, record.log_end_offset, record.segments) == (2, 2, ())
    checkpoint = await broker.checkpointer.load(partition)
    assert checkpoint.end_offset == record.checkpoint_end_offset == 2
    assert [one.producer_id for one in checkpoint.producers] == [7]
    # A retry is still known, and what is new comes after what has expired.
    assert await broker.produce(TOPIC, 0, b"a", b"b", timestamp=0, sequence=0, **producer) == 0
    assert await broker.produce(TOPIC, 0, b"c", timestamp=FUTURE_MS, sequence=2, **producer) == 2
    assert offsets(partition) == [2]


@cluster_scenario()
async def test_nothing_goes_while_the_checkpoint_cannot_be_written(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    await produce(broker, 0)
    retention.add_ms = 100_000
    cluster.objects.fail("put_if_absent", "*.ckpt", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError):
        await retention.enforcer.enforce(partition)
    assert (await cluster.record(TOPIC)).log_start_offset == 0
    assert await retention.enforcer.enforce(partition) == 1


@cluster_scenario()
async def test_a_checkpoint_that_the_record_names_already_is_enough(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    await produce(broker, 0, 0)
    log = await broker.logs.open(partition)
    assert log is not None
    assert partition.references is not None
    pointer = await broker.checkpointer.write(partition, log, partition.references)
    async with partition.record_lock:
        await broker.logs.records.write(partition, log, lambda state: with_checkpoint(state, pointer))
    retention.add_ms = 100_000
    cluster.objects.calls.clear()
    assert await retention.enforcer.enforce(partition) == 2
    assert cluster.objects.count("put_if_absent") == 0
    assert partition.record.checkpoint_key == pointer.key


@cluster_scenario()
async def test_a_segment_that_is_published_meanwhile_stays(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    await produce(broker, 0)
    retention.add_ms = 100_000
    with cluster.objects.hold("put_if_absent", "*.ckpt") as hold:
        enforcing = asyncio.create_task(retention.enforcer.enforce(partition))
        await hold.reached()
        await produce(broker, 0)
    assert await enforcing == 1
    record = await cluster.record(TOPIC)
    assert (record.log_start_offset, offsets(partition)) == (1, [1])
    assert record.checkpoint_key == ""  # It was not needed after all.


# --- what a look costs


@cluster_scenario()
async def test_idle_partitions_cost_no_calls_until_something_is_due(cluster: Cluster) -> None:
    """They are led and not open, with a checkpoint and without one."""
    first, partition, retention = await started(cluster, **{"retention.ms": str(A_DAY_MS)})
    await produce(first, *[1000] * (partition_log.CHECKPOINT_SEGMENTS + 3))
    await cluster.settle()
    assert partition.record.checkpoint_key
    await cluster.create_topic("small", 1, **{"retention.ms": str(A_DAY_MS)})
    await first.produce("small", 0, b"x", timestamp=1000)
    await first.stop()
    (second,) = await cluster.start(2)
    retention = Retention(cluster, second)
    cluster.objects.calls.clear()
    for _ in range(5):
        await retention.enforcer.look()
    assert {key for _, key in cluster.objects.calls} == {second.partition(TOPIC).record.checkpoint_key}
    assert sum(cluster.objects.calls.values()) == 1
    assert second.partition(TOPIC).references is second.partition("small").references is None
    retention.add_ms = A_DAY_MS
    await retention.enforcer.look()
    for topic in (TOPIC, "small"):
        record = await cluster.record(topic)
        assert record.log_start_offset == record.log_end_offset > 0
    cluster.objects.calls.clear()
    retention.add_ms = 2 * A_DAY_MS
    await retention.enforcer.look()
    assert not cluster.objects.calls


@cluster_scenario()
async def test_a_changed_limit_applies_to_an_idle_partition(cluster: Cluster) -> None:
    first, _, _ = await started(cluster, **{"retention.ms": str(A_DAY_MS)})
    await produce(first, 0)
    await first.stop()
    (second,) = await cluster.start(2)
    retention = Retention(cluster, second)
    retention.add_ms = 100_000
    await retention.enforcer.look()
    assert (await cluster.record(TOPIC)).log_start_offset == 0
    await set_configs(second, {"retention.ms": "5"})
    await cluster.settle()
    await retention.enforcer.look()
    assert (await cluster.record(TOPIC)).log_start_offset == 1


# --- other brokers, and trouble


@cluster_scenario()
async def test_one_partition_that_fails_does_not_keep_the_others(
    cluster: Cluster,
) -> None:
    broker, _, retention = await started(cluster, **{"retention.ms": "60000"})
    await cluster.create_topic("other", 1, **{"retention.ms": "60000"})
    await broker.produce("other", 0, b"x", timestamp=0)
    await produce(broker, 0)
    retention.add_ms = 100_000
    cluster.objects.fail("put_if_absent", f"*/{TOPIC}/*.ckpt", StoreUnavailableError("away"))
    await retention.enforcer.look()
    assert (await cluster.record("other")).log_start_offset == 1
    assert (await cluster.record(TOPIC)).log_start_offset == 0
    await retention.enforcer.look()
    assert (await cluster.record(TOPIC)).log_start_offset == 1


@cluster_scenario()
async def test_a_leader_that_was_replaced_expires_nothing(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "60000"})
    await produce(broker, 0, FUTURE_MS)
    await lead_elsewhere(cluster.metadata, TOPIC)
    retention.add_ms = 100_000
    with pytest.raises(FencedError):
        await retention.enforcer.enforce(partition)
    await retention.enforcer.look()
    assert (await cluster.record(TOPIC)).log_start_offset == 0
    await asyncio.sleep(2 * removals.GRACE_SEC)
    assert segment_keys(0) <= await stored(cluster)


@cluster_scenario()
async def test_it_looks_again_and_again(cluster: Cluster) -> None:
    broker, partition, retention = await started(cluster, **{"retention.ms": "10000"})
    looking = asyncio.create_task(retention.enforcer.run())
    for number in range(3):
        await produce(broker, broker.now_ms())
        assert offsets(partition) == [number]
        await asyncio.sleep(9)
        assert offsets(partition) == [number]
        await asyncio.sleep(3)
        assert offsets(partition) == []
    assert partition.record.log_start_offset == 3
    looking.cancel()


@cluster_scenario()
async def test_readers_at_other_brokers_learn_of_it(cluster: Cluster) -> None:
    brokers = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 1, **{"retention.ms": "60000"})
    leader, reader = sorted(brokers, key=lambda one: (TOPIC, 0) not in one.led())
    partition, retention = leader.partition(TOPIC), Retention(cluster, leader)
    followed = await reader.logs.follow(TOPIC, 0)
    assert followed is not None
    await produce(leader, 0, FUTURE_MS)
    await cluster.settle()
    await reader.logs.load(followed)
    assert offsets(followed) == [0, 1]
    retention.add_ms = 100_000
    await retention.enforcer.enforce(partition)
    await cluster.settle()
    assert replace(followed.record, journal=None) == replace(partition.record, journal=None)
    assert offsets(followed) == [1]
