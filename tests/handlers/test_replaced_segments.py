"""Reads of segments whose objects are gone: merged or expired meanwhile, or removed by something else."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafscale.formats.partition_record import SegmentReference
from kafscale.log.life import merge_planner
from kafscale.log.partition import Partition
from kafscale.log.reading import segment_loader, timestamp_search
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.records import first_record_at_or_after
from tests.handlers.test_cold_fetch import key, one_segment_each
from tests.handlers.test_fetch_elsewhere import TOPIC, Pair, pair
from tests.handlers.test_offsets import TIME_MS, delete_before, list_offset, produce_times
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker, until
from tests.support.on_uvloop import on_uvloop

VALUES = [b"%d" % number * 50 for number in range(6)]
SEGMENTS = "default/*/segment-*.kfs"


def merged(last_offset: int) -> str:
    """The pattern of a segment of all records from offset 0 on."""
    return f"default/*/segment-{0:020d}-{last_offset:020d}.kfs"


MERGED = merged(len(VALUES) - 1)
# Merging happens when a test says so.
BY_HAND: dict[str, Any] = {"merge_min_segments": 2, "merge_check_interval_ms": 3_600_000}


@pytest.fixture(autouse=True)
def _the_newest_are_merged_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_planner, "NEWEST_LEFT", 0)


async def merge(broker: InProcessBroker, partition: Partition) -> None:
    """Replace the partition's segments by one; nobody waits with the removal of their objects."""
    folder = f"default/{partition.id.topic}/{partition.id.index}/segment-*.kfs"
    sources = await broker.objects.keys(folder)
    assert await broker.process.serving.segment_life.merger.consider(partition)
    await broker.objects.inner.delete(sources)


def reported(broker: InProcessBroker) -> list[int]:
    """The base offsets of segments that are reported as missing from now on."""
    found: list[int] = []

    def report(partition: Partition, reference: SegmentReference) -> None:
        found.append(reference.base_offset)

    broker.process.serving.logs._missing_listeners[:] = [report]
    return found


@on_uvloop
async def test_a_fetch_of_segments_merged_meanwhile_gets_their_records() -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, VALUES)
        broker.forget_cached(topic)
        missing = reported(broker)
        with broker.objects.hold("read_into", SEGMENTS) as hold:
            await client.send_fetch(topic, {0: 1})
            await until(lambda: hold.waiting == 5, "all are asked for")
            await merge(broker, broker.partition(topic))
        part = (await client.receive_fetch())[0]
        assert part.error_code == 0
        assert wire.records_in(part.records) == list(enumerate(VALUES))[1:]
        assert broker.objects.count("read_into", MERGED) == 1
        assert missing == []


@on_uvloop
async def test_a_follower_behind_a_merge_reads_the_record_again() -> None:
    async with pair() as both:
        for value in VALUES:
            await both.produce(value)
            await both.leader.seal(TOPIC, both.index)
        assert await records(both) == list(enumerate(VALUES))
        stale = both.reader.process.serving.logs.readable(TOPIC, both.index)
        assert stale is not None and stale.references is not None
        missing = reported(both.reader)
        merger = both.leader.process.serving.segment_life.merger
        merger._candidates._settings = replace(merger._candidates._settings, merge_min_segments=2)
        await merge(both.leader, both.leader.partition(TOPIC, both.index))
        both.reader.process.serving.reader.forget(stale)
        part = await both.fetch(both.consumer, 0)
        assert part.error_code == 0
        assert wire.records_in(part.records) == list(enumerate(VALUES))
        assert missing == []
        assert both.reader.objects.count("read_into", MERGED) == 1


async def records(both: Pair) -> list[tuple[int, bytes | None]]:
    return wire.records_in((await both.fetch(both.consumer, 0)).records)


@on_uvloop
async def test_records_that_expire_during_a_read_are_out_of_range() -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, VALUES)
        broker.forget_cached(topic)
        missing = reported(broker)
        with broker.objects.hold("read_into", key(topic, 1)) as hold:
            await client.send_fetch(topic, {0: 1}, partition_max_bytes=1)
            await hold.reached()
            assert await delete_before(other, topic, 3) == (0, 3)
            await broker.objects.inner.delete([key(topic, offset) for offset in range(3)])
        part = (await client.receive_fetch())[0]
        assert (part.error_code, part.records or b"") == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")
        assert missing == []


@pytest.mark.parametrize("in_cache_too", [False, True])
@on_uvloop
async def test_log_start_moved_while_loading_is_out_of_range(in_cache_too: bool) -> None:
    """The reply went on with the first segment that was left, and said nothing of those before it."""
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, VALUES)
        if not in_cache_too:
            broker.forget_cached(topic)
        else:
            partition = broker.partition(topic)
            assert partition.references is not None
            reader = broker.process.serving.logs.reader
            reader.forget_segments(partition, [next(partition.references.from_offset(1))])
        with broker.objects.hold("read_into", key(topic, 1)) as hold:
            await client.send_fetch(topic, {0: 1})
            await hold.reached()
            assert await delete_before(other, topic, 3) == (0, 3)
        part = (await client.receive_fetch())[0]
        assert (part.error_code, part.records or b"") == (ErrorCode.OFFSET_OUT_OF_RANGE, b"")


@on_uvloop
async def test_other_partitions_of_a_fetch_out_of_range_are_served() -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client, broker.connect() as other:
        topic = await broker.create_topic(partitions=2)
        await one_segment_each(broker, client, topic, VALUES)
        assert (await client.produce(topic, 1, wire.batch([b"kept"]))).error_code == 0
        broker.forget_cached(topic)
        with broker.objects.hold("read_into", key(topic, 1)) as hold:
            await client.send_fetch(topic, {0: 1, 1: 0})
            await hold.reached()
            assert await delete_before(other, topic, 3) == (0, 3)
        parts = await client.receive_fetch()
        assert parts[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert wire.records_in(parts[1].records) == [(0, b"kept")]


@on_uvloop
async def test_timestamp_found_below_a_moved_log_start_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await produce_times(client, topic, *([number] for number in range(6)))
        partition, look = broker.partition(topic), first_record_at_or_after

        def found_before_the_log_start_moves(*arguments: Any, **named: Any) -> tuple[int, int] | None:
            found = look(*arguments, **named)
            if partition.record.log_start_offset == 0:
                assert partition.references is not None
                partition.record = replace(partition.record, log_start_offset=3)
                partition.references.drop_below(3)
            return found

        monkeypatch.setattr(timestamp_search, "first_record_at_or_after", found_before_the_log_start_moves)
        found = await list_offset(client, topic, TIME_MS + 1000)
        assert (found.error_code, found.offset, found.timestamp) == (0, 3, TIME_MS + 3000)


@on_uvloop
async def test_a_lost_object_is_reported_and_a_retriable_error() -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, VALUES)
        broker.forget_cached(topic)
        missing = reported(broker)
        await broker.objects.inner.delete([key(topic, 2)])
        # What lies before it is served.
        part = (await client.fetch(topic, {0: 0}))[0]
        assert (part.error_code, len(wire.records_in(part.records))) == (0, 2)
        assert (await client.fetch(topic, {0: 2}))[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert set(missing) == {2}


@on_uvloop
async def test_a_lost_object_is_reported_by_a_follower_too() -> None:
    async with pair() as both:
        for value in VALUES:
            await both.produce(value)
            await both.leader.seal(TOPIC, both.index)
        await records(both)
        followed = both.reader.process.serving.logs.readable(TOPIC, both.index)
        assert followed is not None
        missing = reported(both.reader)
        both.reader.process.serving.reader.forget(followed)
        await both.reader.objects.inner.delete([key(TOPIC, 0, partition=both.index)])
        assert (await both.fetch(both.consumer, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert missing == [0]


@on_uvloop
async def test_segments_that_are_replaced_again_and_again_are_no_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        await one_segment_each(broker, client, topic, VALUES)
        broker.forget_cached(topic)
        await broker.objects.inner.delete([key(topic, 0)])
        looks = 0

        def never_named(partition: Partition, reference: SegmentReference) -> bool:
            nonlocal looks
            looks += 1
            return False

        monkeypatch.setattr("kafscale.log.reading.current_references._names", never_named)
        part = (await client.fetch(topic, {0: 0}, partition_max_bytes=1))[0]
        assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert looks == 3


@pytest.mark.parametrize("timestamp", [TIME_MS + 2500, -3])
@on_uvloop
async def test_a_time_is_looked_up_in_what_replaced_its_segment(timestamp: int) -> None:
    async with in_process_broker(**BY_HAND) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for second in (1, 2, 3):
            await produce_times(client, topic, [second])
            await broker.seal(topic)
        broker.forget_cached(topic)
        with broker.objects.hold("read_into", key(topic, 2)) as hold:
            asked = asyncio.create_task(list_offset(client, topic, timestamp))
            await hold.reached()
            await merge(broker, broker.partition(topic))
        part = await asked
        assert (part.error_code, part.offset, part.timestamp) == (0, 2, TIME_MS + 3000)


# --- merged segments that are too large to be read whole


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_loader, "WHOLE_SEGMENT_BYTES", 4096)


@pytest.mark.usefixtures("_small_chunks")
@on_uvloop
async def test_a_merged_segment_is_fetched_and_searched_in_chunks() -> None:
    async with in_process_broker(**BY_HAND, read_ahead_segments=2) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for number in range(60):
            stamp = TIME_MS + 1000 * (number if number != 30 else 500)
            await client.produce(topic, 0, wire.batch([b"%d" % number * 100] * 3, timestamp=[stamp] * 3))
        await broker.seal(topic)
        assert len(await broker.objects.keys(merged(179))) == 1
        assert broker.partition(topic).record.log_end_offset == 180
        found: list[tuple[int, bytes | None]] = []
        while len(found) < 180:
            part = (await client.fetch(topic, {0: len(found)}, partition_max_bytes=3000))[0]
            assert part.error_code == 0
            found += wire.records_in(part.records)
        assert found == [(offset, b"%d" % (offset // 3) * 100) for offset in range(180)]
        chunks = broker.objects.count("read_into", merged(179))
        assert chunks >= 10
        assert broker.objects.count("get", "*.index") == 1
        # What is known of chunks after they were read saves reading them again.
        broker.process.serving.reader.cache.limit_bytes = 0
        for wanted, expected in (
            (TIME_MS + 2500, 9),
            (TIME_MS + 40_500, 90),
            (-3, 90),
            (TIME_MS + 500_001, -1),
        ):
            assert (await list_offset(client, topic, wanted)).offset == expected


@pytest.mark.usefixtures("_small_chunks")
@on_uvloop
async def test_a_timestamp_search_does_not_reread_earlier_chunks() -> None:
    async with in_process_broker(**BY_HAND, cache_size_bytes=0) as broker, broker.connect() as client:
        topic = await broker.create_topic()
        for number in range(60):
            await client.produce(
                topic, 0, wire.batch([b"x" * 300] * 3, timestamp=[TIME_MS + 1000 * number] * 3)
            )
        await broker.seal(topic)
        assert (await list_offset(client, topic, TIME_MS + 55_000)).offset == 165
        first = broker.objects.count("read_into", merged(179))
        assert first >= 10
        assert (await list_offset(client, topic, TIME_MS + 55_000)).offset == 165
        assert broker.objects.count("read_into", merged(179)) == first + 1
