"""What the leader removes because nothing refers to it, and what it never does."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import StoreUnavailableError
from kafscale.metadata import keys
from kafscale.metadata.partition_record import (
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.metadata.store import Put
from kafscale.storage import object_keys
from kafscale.storage.garbage import candidates, garbage
from kafscale.storage.garbage_collector import GarbageCollector
from kafscale.storage.object_store import ObjectInfo
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

GRACE_SEC = 3600
LONG_AFTER_MS = 10 * GRACE_SEC * 1000


def collector(broker: InProcessBroker, now_ms: int = LONG_AFTER_MS) -> GarbageCollector:
    """One that looks at that time; the objects of the tests are from time 0."""
    return GarbageCollector(
        broker.objects,
        broker.process._logs,
        "default",
        lambda: now_ms,
        broker.metrics,
        grace_sec=GRACE_SEC,
        interval_sec=3600,
    )


def segment_keys(base_offset: int) -> set[str]:
    return {
        object_keys.segment_key("default", "topic", 0, base_offset),
        object_keys.index_key("default", "topic", 0, base_offset),
    }


async def leave(broker: InProcessBroker, base_offset: int) -> None:
    """What a leader leaves that was replaced between its upload and its publication."""
    for key in segment_keys(base_offset):
        await broker.objects.put_if_absent(key, [b"a leftover of an older leader"])


async def listed(broker: InProcessBroker) -> set[str]:
    prefix = object_keys.partition_prefix("default", "topic", 0)
    return {info.key async for info in broker.objects.list(prefix)}


async def produce(client: Client, value: bytes) -> int:
    part = await client.produce("topic", 0, wire.batch([value]))
    assert part.error_code == 0
    return int(part.base_offset)


async def test_a_leftover_is_removed_and_what_is_published_stays() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(client, b"first")
        await leave(broker, 1)
        assert await produce(client, b"second") == 2  # one offset was skipped
        published = segment_keys(0) | segment_keys(2)
        assert await listed(broker) == published | segment_keys(1)
        assert await collector(broker).collect(broker.partition("topic")) == 2
        assert await listed(broker) == published
        assert broker.metrics.garbage_removed == 2
        broker.forget_cached("topic")
        part = (await client.fetch("topic", {0: 0}))[0]
        assert [value for _, value in wire.records_in(part.records)] == [b"first", b"second"]


async def test_a_leftover_that_is_young_or_not_below_the_log_end_stays() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(client, b"first")
        await leave(broker, 1)
        assert await collector(broker).collect(broker.partition("topic")) == 0
        await produce(client, b"second")
        young = collector(broker, now_ms=GRACE_SEC * 1000)
        assert await young.collect(broker.partition("topic")) == 0
        assert segment_keys(1) <= await listed(broker)


async def test_a_leader_that_was_replaced_removes_nothing() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(client, b"first")
        await leave(broker, 1)
        await produce(client, b"second")
        found = await broker.metadata.get(keys.partition("topic", 0))
        assert found is not None
        record = decode_partition_record(found.key, found.value)
        taken = encode_partition_record(replace(record, leader_epoch=record.leader_epoch + 1))
        await broker.metadata.transact([], [Put(found.key, taken)])
        assert await collector(broker).collect(broker.partition("topic")) == 0
        assert segment_keys(1) <= await listed(broker)


async def test_segments_below_the_log_start_are_removed_if_the_broker_stopped_before_it_did() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        for value in (b"first", b"second", b"third"):
            await produce(client, value)
        await broker.process._record_deletion.delete_before(broker.partition("topic"), 2)
        assert await collector(broker).collect(broker.partition("topic")) == 4
        assert await listed(broker) == segment_keys(2)


async def test_a_store_that_is_away_is_asked_again_later() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(client, b"first")
        await leave(broker, 1)
        await produce(client, b"second")
        broker.objects.fail("delete", "*", StoreUnavailableError("away"))
        with pytest.raises(StoreUnavailableError):
            await collector(broker).collect(broker.partition("topic"))
        assert await collector(broker).collect(broker.partition("topic")) == 2


@given(
    referred=st.sets(st.integers(0, 30)),
    left=st.sets(st.integers(0, 30)),
    log_end_offset=st.integers(0, 30),
    is_young=st.sets(st.integers(0, 30)),
)
def test_nothing_that_is_referred_to_or_may_be_is_garbage(
    referred: set[int], left: set[int], log_end_offset: int, is_young: set[int]
) -> None:
    infos = [
        ObjectInfo(key=key, size_bytes=1, modified_ms=1000 if offset in is_young else 0)
        for offset in referred | left
        for key in (
            *segment_keys(offset),
            object_keys.merged_segment_key("default", "topic", 0, offset, offset + 5),
        )
    ]
    references = [
        SegmentReference(
            base_offset=offset,
            last_offset=offset,
            record_count=1,
            leader_epoch=0,
            size_bytes=1,
            max_timestamp_ms=0,
        )
        for offset in sorted(referred)
    ]
    removed = set(garbage(candidates(infos, log_end_offset, before_ms=1000), references))
    expected = {offset for offset in left - referred - is_young if offset < log_end_offset}
    assert removed == {key for offset in expected for key in segment_keys(offset)}
