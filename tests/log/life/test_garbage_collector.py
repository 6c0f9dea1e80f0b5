"""The leader deletes objects that nothing refers to, and never another one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.errors import StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.object_keys import Compaction
from kafscale.formats.partition_record import (
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.log.life.garbage import candidates, garbage
from kafscale.log.life.garbage_collector import GarbageCollector
from kafscale.log.references import SegmentReferences
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.objects.object_store import ObjectInfo
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

GRACE_SEC = 3600
LONG_AFTER_MS = 10 * GRACE_SEC * 1000


def collector(broker: InProcessBroker, now_ms: int = LONG_AFTER_MS) -> GarbageCollector:
    """One that looks at that time; the objects of the tests are from time 0."""
    return GarbageCollector(
        broker.objects,
        broker.process.serving.logs,
        "default",
        lambda: now_ms,
        broker.metrics,
        grace_sec=GRACE_SEC,
        interval_sec=3600,
    )


def orphan_keys(base_offset: int) -> set[str]:
    """Of a segment as leaders uploaded it before there were journals."""
    return {
        object_keys.segment_key("default", "topic", 0, base_offset),
        object_keys.index_key("default", "topic", 0, base_offset),
    }


def segment_keys(offset: int) -> set[str]:
    """Of a segment of one record."""
    key = object_keys.merged_segment_key("default", "topic", 0, offset, offset)
    return {key, object_keys.index_key_of(key)}


async def leave(broker: InProcessBroker, base_offset: int) -> None:
    """The orphans of a leader that was replaced between its upload and its publication."""
    for key in orphan_keys(base_offset):
        await broker.objects.put_if_absent(key, [b"an orphan of an older leader"])


async def listed(broker: InProcessBroker) -> set[str]:
    prefix = object_keys.partition_prefix("default", "topic", 0)
    return {info.key async for info in broker.objects.list(prefix)}


async def produce(broker: InProcessBroker, client: Client, value: bytes) -> int:
    """Produce a record that becomes a segment; returns its offset."""
    part = await client.produce("topic", 0, wire.batch([value]))
    assert part.error_code == 0
    await broker.seal("topic")
    return int(part.base_offset)


async def test_an_orphan_is_deleted_and_published_segments_stay() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(broker, client, b"first")
        await leave(broker, 1)
        assert await produce(broker, client, b"second") == 1, "it is in nobody's way"
        published = segment_keys(0) | segment_keys(1)
        assert await listed(broker) == published | orphan_keys(1)
        assert await collector(broker).collect(broker.partition("topic")) == 2
        assert await listed(broker) == published
        assert broker.metrics.garbage_removed == 2
        broker.forget_cached("topic")
        part = (await client.fetch("topic", {0: 0}))[0]
        assert [value for _, value in wire.records_in(part.records)] == [b"first", b"second"]


async def test_an_orphan_that_is_young_or_not_below_the_log_end_stays() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(broker, client, b"first")
        await leave(broker, 1)
        assert await collector(broker).collect(broker.partition("topic")) == 0
        await produce(broker, client, b"second")
        young = collector(broker, now_ms=GRACE_SEC * 1000)
        assert await young.collect(broker.partition("topic")) == 0
        assert orphan_keys(1) <= await listed(broker)


async def test_a_leader_that_was_replaced_removes_nothing() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(broker, client, b"first")
        await leave(broker, 1)
        await produce(broker, client, b"second")
        found = await broker.metadata.get(keys.partition("topic", 0))
        assert found is not None
        record = decode_partition_record(found.key, found.value)
        taken = encode_partition_record(replace(record, leader_epoch=record.leader_epoch + 1))
        await broker.metadata.transact([], [Put(found.key, taken)])
        assert await collector(broker).collect(broker.partition("topic")) == 0
        assert orphan_keys(1) <= await listed(broker)


async def test_segments_below_the_log_start_are_deleted_as_garbage() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        for value in (b"first", b"second", b"third"):
            await produce(broker, client, value)
        await broker.process.serving.segment_life.record_deletion.delete_before(broker.partition("topic"), 2)
        assert await collector(broker).collect(broker.partition("topic")) == 4
        assert await listed(broker) == segment_keys(2)


async def test_a_collection_without_a_store_is_retried_later() -> None:
    async with in_process_broker() as broker, broker.connect() as client:
        await broker.create_topic()
        await produce(broker, client, b"first")
        await leave(broker, 1)
        await produce(broker, client, b"second")
        broker.objects.fail("delete", "*", StoreUnavailableError("away"))
        with pytest.raises(StoreUnavailableError):
            await collector(broker).collect(broker.partition("topic"))
        assert await collector(broker).collect(broker.partition("topic")) == 2


def flushed(base_offset: int, last_offset: int) -> SegmentReference:
    return SegmentReference(
        base_offset=base_offset,
        last_offset=last_offset,
        record_count=1,
        leader_epoch=0,
        size_bytes=1,
        max_timestamp_ms=0,
    )


def merged(sources: Sequence[SegmentReference]) -> SegmentReference:
    whole = flushed(sources[0].base_offset, sources[-1].last_offset)
    key = object_keys.merged_segment_key("default", "topic", 0, whole.base_offset, whole.last_offset)
    return whole._replace(object_key=key)


def object_of(reference: SegmentReference) -> str:
    return object_keys.key_of_reference("default", "topic", 0, reference)


def every_key(log_end_offset: int) -> list[ObjectInfo]:
    """Everything that leaders could have left below that offset, all of it old."""
    found = []
    for base_offset in range(log_end_offset):
        key = object_keys.segment_key("default", "topic", 0, base_offset)
        found += [key, object_keys.index_key_of(key)]
        for last_offset in range(base_offset, log_end_offset):
            key = object_keys.merged_segment_key("default", "topic", 0, base_offset, last_offset)
            found += [key, object_keys.index_key_of(key)]
    return [ObjectInfo(key=key, size_bytes=1, modified_ms=0) for key in found]


@given(data=st.data())
def test_garbage_is_never_referred_to_again(data: st.DataObject) -> None:
    references = SegmentReferences()
    log_end_offset = 0
    garbage_so_far: set[str] = set()
    for _ in range(data.draw(st.integers(1, 14))):
        held = list(references)
        step = data.draw(st.sampled_from(["flush", "flush", "merge", "expire"]))
        if step == "flush":
            base_offset = log_end_offset + data.draw(st.integers(0, 2))  # it may skip orphans
            log_end_offset = base_offset + data.draw(st.integers(1, 3))
            references.append(flushed(base_offset, log_end_offset - 1))
        elif step == "expire" and held:
            references.drop_below(data.draw(st.sampled_from(held)).base_offset)
        elif step == "merge" and len(held) > 1:
            start = data.draw(st.integers(0, len(held) - 2))
            end = data.draw(st.integers(start + 2, len(held)))
            references.replace(merged(held[start:end]))
            gone = {object_of(source) for source in held[start:end]}
            now = set(garbage(candidates(every_key(log_end_offset), log_end_offset, 1), references, 0))
            assert {key for key in gone if "-" not in key.split("segment-")[1]} <= now
        named = {object_of(reference) for reference in references}
        assert not garbage_so_far & named
        found = garbage(candidates(every_key(log_end_offset), log_end_offset, 1), references, 0)
        assert not named & set(found)
        garbage_so_far.update(found)


def test_a_merged_segment_within_a_referenced_one_is_garbage() -> None:
    infos = [
        ObjectInfo(key=key, size_bytes=1, modified_ms=0)
        for first, last in ((0, 9), (0, 19), (10, 19), (20, 29))
        for key in (
            object_keys.merged_segment_key("default", "topic", 0, first, last),
            object_keys.merged_index_key("default", "topic", 0, first, last),
        )
    ]
    names = merged([flushed(0, 9), flushed(10, 19)])
    unwanted = garbage(
        candidates(infos, 40, 1), [names, flushed(20, 24), flushed(25, 29), flushed(30, 39)], 0
    )
    # 20 to 29 is not referred to, but a merge of the two that lie there would put it in their place.
    assert unwanted == [info.key for info in (*infos[0:2], *infos[4:6])]


def test_a_young_object_or_one_past_the_log_end_is_no_candidate() -> None:
    plain = object_keys.segment_key("default", "topic", 0, 5)
    whole = object_keys.merged_segment_key("default", "topic", 0, 0, 9)
    infos = [ObjectInfo(key=key, size_bytes=1, modified_ms=7) for key in (plain, whole)]
    assert [one.object_key for one in candidates(infos, 10, 8)] == [plain, whole]
    assert [one.object_key for one in candidates(infos, 9, 8)] == [plain]
    assert candidates(infos, 5, 8) == []
    assert candidates(infos, 10, 7) == []


def compacted_reference(first: int, last: int, leader_epoch: int, token: str = "token") -> SegmentReference:
    """A compacted segment in the place of others."""
    key = object_keys.compacted_segment_key(
        "default", "topic", 0, first, last, Compaction(last + 1, leader_epoch, token)
    )
    return merged([flushed(first, last)])._replace(object_key=key)


@pytest.mark.parametrize(("made_by", "is_garbage"), [(4, True), (5, True), (6, False)])
def test_an_unnamed_compacted_segment_is_garbage(made_by: int, is_garbage: bool) -> None:
    """A leader of a later epoch may be about to publish it: then the references are out of date."""
    unnamed = compacted_reference(0, 9, made_by, "another")
    infos = [ObjectInfo(key=unnamed.object_key, size_bytes=1, modified_ms=0)]
    for names in (compacted_reference(0, 9, 5), merged([flushed(0, 9)])):
        unwanted = garbage(candidates(infos, 20, 1), [names, flushed(10, 19)], 5)
        assert unwanted == ([unnamed.object_key] if is_garbage else [])


def test_what_a_compacted_segment_replaced_is_garbage() -> None:
    replaced = object_keys.merged_segment_key("default", "topic", 0, 0, 9)
    infos = [ObjectInfo(key=replaced, size_bytes=1, modified_ms=0)]
    named = [compacted_reference(0, 9, 5), flushed(10, 19)]
    assert garbage(candidates(infos, 20, 1), named, 5) == [replaced]
    assert garbage(candidates(infos, 20, 1), [flushed(0, 4), flushed(5, 9), flushed(10, 19)], 5) == []
