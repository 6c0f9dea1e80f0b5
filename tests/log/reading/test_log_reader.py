"""The read path over a store whose calls are counted: what costs a GET, what is kept, and what is read ahead."""

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.index import LARGE_VERSION, LEGACY_VERSION, build_index, parse_index
from kafscale.formats.partition_record import EpochStart
from kafscale.log.reading import read_ahead
from kafscale.log.reading.segment_loader import ReadSizes, read_sizes
from kafscale.ops.metric_export import render
from tests.log.stored_log import MIB, Reading, StoredLog, StoredSegmentFile, partition_of, stored_batch
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import until

KIB = 1024
WHOLE = read_sizes(1 << 30)
IN_CHUNKS = ReadSizes(whole_bytes=2 * KIB, chunk_bytes=KIB)


def small_segments(count: int, value_bytes: int = 100) -> list[StoredSegmentFile]:
    """Each of two batches with two records."""
    return [
        StoredSegmentFile([stored_batch(4 * number + 2 * half, [b"x" * value_bytes] * 2) for half in (0, 1)])
        for number in range(count)
    ]


def large_segment(
    batches: int = 40, *, first_offset: int = 0, gap_after: int | None = None, interval: int = 2
) -> StoredSegmentFile:
    """A merged one of batches with two records and about 300 bytes; there may be a gap of three offsets."""
    made, offset = [], first_offset
    for number in range(batches):
        made.append(stored_batch(offset, [b"%04d" % offset * 30] * 2))
        offset += 5 if number == gap_after else 2
    return StoredSegmentFile(made, merged=True, interval=interval)


@pytest.mark.parametrize("log_start_offset", [0, 12])
async def test_gap_between_segments_is_logged(
    log_start_offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a consumer misses records, this tells whether its broker has passed them."""
    segments = small_segments(4)
    del segments[1:3]
    caplog.set_level(logging.INFO, logger="kafscale")
    async with reading(segments) as (log, _, made):
        assert made.partition.record.log_end_offset == 16
        made.partition.record = dataclasses.replace(made.partition.record, log_start_offset=log_start_offset)
        assert await made.fetch(0) == b"".join(log.batches_from(0))
        found = [one for one in caplog.records if one.msg == "a reader passes offsets that no segment has"]
        assert [(vars(one)["first"], vars(one)["before"]) for one in found] == (
            [(4, 12)] if log_start_offset == 0 else []
        )


@asynccontextmanager
async def reading(
    segments: Sequence[StoredSegmentFile], sizes: ReadSizes = WHOLE, **more: Any
) -> AsyncIterator[tuple[StoredLog, ControlledStore, Reading]]:
    log, objects = StoredLog(segments, [EpochStart(3, 0)]), ControlledStore()
    await log.put_into(objects)
    made = Reading(log, objects, more.pop("primary", objects), sizes=sizes, **more)
    try:
        yield log, objects, made
    finally:
        await made.close()


def gets(objects: ControlledStore, pattern: str = "*") -> int:
    return sum(objects.count(method, pattern) for method in ("get", "get_range", "read_into", "size_bytes"))


# --- small segments


@pytest.mark.parametrize("read_ahead_segments", [0, 2])
@pytest.mark.parametrize("max_bytes", [1, 1000, MIB])
async def test_many_readers_from_the_start_cost_one_get_per_segment(
    max_bytes: int, read_ahead_segments: int
) -> None:
    segments = small_segments(60)
    async with reading(segments, read_ahead_segments=read_ahead_segments) as (log, objects, made):
        found = await asyncio.gather(*(made.drain(0, max_bytes) for _ in range(8)))
        assert set(found) == {b"".join(log.batches_from(0))}
        assert [objects.count("read_into", segment.key) for segment in segments] == [1] * 60
        assert gets(objects) == 60
        assert await made.drain(0, max_bytes) == found[0]
        assert gets(objects) == 60


async def test_one_fetch_takes_records_of_so_many_segments_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafscale.log.reading.log_reader.MAX_SEGMENTS_PER_READ", 7)
    async with reading(small_segments(20)) as (log, objects, made):
        assert await made.fetch(0) == b"".join(log.batches_from(0)[:14])
        assert gets(objects) == 7
        await made.drain(0)
        assert await made.fetch(0) == b"".join(log.batches_from(0)[:14])


@pytest.mark.parametrize("segments", [small_segments(8), [large_segment(20)]])
async def test_nothing_is_read_from_the_end_offset_on(segments: Sequence[StoredSegmentFile]) -> None:
    """Neither planned nor returned, from segments and from chunks of one, with and without what is in memory."""
    async with reading(segments, sizes=IN_CHUNKS) as (log, _, made):
        for end_offset in range(2, 33, 2):
            for offset in range(end_offset + 3):
                wanted = [
                    batch
                    for batch, header in zip(
                        (one for segment in segments for one in segment.batches), log.headers(), strict=True
                    )
                    if header.last_offset >= offset and header.base_offset < end_offset
                ]
                assert await made.fetch(offset, end_offset=end_offset) == b"".join(wanted)
                assert made.reader.has(made.partition, offset, MIB, end_offset)
                assert made.reader.has_first(made.partition, offset, (), end_offset)


async def test_a_read_below_an_end_offset_loads_nothing_above() -> None:
    async with reading(small_segments(8)) as (_, objects, made):
        await made.fetch(0, end_offset=6)
        assert gets(objects, "*.kfs") == 2
    async with reading([large_segment(40)], sizes=IN_CHUNKS) as (_, objects, made):
        await made.fetch(0, end_offset=6)
        assert gets(objects, "*.kfs") == 1


async def test_cached_records_are_served_however_small_the_cache_is() -> None:
    segments = small_segments(6)
    one = segments[0].reference.size_bytes + 3 * KIB
    async with reading(segments, cache_bytes=one) as (log, objects, made):
        await made.fetch(0, 1)
        assert len(made.reader.cache) == 1
        assert await made.fetch(0) == b"".join(log.batches_from(0))
        assert objects.count("read_into", segments[0].key) == 1


async def test_a_cached_source_is_not_taken_for_the_merged_segment() -> None:
    sources = small_segments(5)
    merged = StoredSegmentFile([batch for one in sources for batch in one.batches], merged=True)
    async with reading(sources) as (_, objects, made):
        await made.drain(0)
        await StoredLog([merged]).put_into(objects)
        after = partition_of(StoredLog([merged]).record)
        assert await made.fetch(0, MIB, after) == b"".join(merged.batches)
        assert objects.count("read_into", merged.key) == 1
        # A reader that still has one of the sources does not take it for the beginning of the merged one.
        held = await made.reader.load(made.partition, sources[0].reference, 0)
        read = made.reader.read(after, 0, MIB, True, [held])
        assert b"".join(read.views) == b"".join(merged.batches)
        read.release()
        held.release()
        made.reader.forget_segments(made.partition, [one.reference for one in sources])
        assert len(made.reader.cache) == 1
        assert gets(objects, sources[0].key) == 1
        await made.fetch(0, 1)
        assert gets(objects, sources[0].key) == 2


async def test_many_small_views_are_joined_and_pin_no_segment() -> None:
    async with reading(small_segments(40)) as (log, _, made):
        expected = await made.drain(0)
        read = made.reader.read(made.partition, 0, MIB, True)
        assert (len(read.views), read.segments) == (1, [])
        assert bytes(read.views[0]) == expected == b"".join(log.batches_from(0))
        read.release()
    async with reading(small_segments(40, 3 * KIB)) as (log, _, made):
        await made.drain(0)
        read = made.reader.read(made.partition, 0, MIB, True)
        assert len(read.views) == len(read.segments) == 40
        read.release()


# --- large segments


async def test_a_large_segment_costs_one_index_and_one_get_per_chunk() -> None:
    segment = large_segment()
    async with reading([segment], IN_CHUNKS) as (log, objects, made):
        assert await made.drain(0, 400) == b"".join(log.batches_from(0))
        chunks = len(made.reader.cache)
        assert 12 <= chunks <= 20
        assert objects.count("read_into", segment.key) == chunks
        assert objects.count("get", segment.index_key) == 1
        assert gets(objects) == chunks + 1
        assert await made.drain(0, 700) == b"".join(log.batches_from(0))
        assert gets(objects) == chunks + 1
        assert made.metrics.index_rebuilds == 0


async def test_a_fetch_from_the_middle_reads_only_what_it_wants() -> None:
    segment = large_segment(200)
    async with reading([segment], IN_CHUNKS) as (log, objects, made):
        found = await made.fetch(301, 500)
        assert found == b"".join(log.batches_from(301)[: len(found) // 300])
        assert gets(objects) == 2
        await made.fetch(301, 3000)
        assert objects.count("get", segment.index_key) == 1
        assert objects.count("read_into", segment.key) <= 5


async def test_readers_of_a_large_segment_share_its_index_and_chunks() -> None:
    segment = large_segment(100)
    async with reading([segment], IN_CHUNKS, read_ahead_segments=2) as (log, objects, made):
        found = await asyncio.gather(*(made.drain(0, 500) for _ in range(6)))
        assert set(found) == {b"".join(log.batches_from(0))}
        assert objects.count("get", segment.index_key) == 1
        assert objects.count("read_into", segment.key) == len(made.reader.cache)


async def test_an_index_that_is_in_memory_serves_chunks_that_are_not() -> None:
    segment = large_segment()
    async with reading([segment], IN_CHUNKS, cache_bytes=0) as (log, objects, made):
        for _ in range(3):
            assert await made.drain(0, 400) == b"".join(log.batches_from(0))
        assert objects.count("get", segment.index_key) == 1
        assert made.metrics.cache("index").misses == 1
        assert made.metrics.cache("index").hits > 10


async def test_indexes_are_kept_up_to_their_limit() -> None:
    segments = [large_segment(first_offset=100 * number) for number in range(6)]
    async with reading(segments, IN_CHUNKS, index_cache_bytes=3000) as (_, objects, made):
        await made.drain(0)
        layouts = made.loader.layouts.cache
        assert 0 < layouts.used_bytes <= 3000
        assert made.metrics.cache("index").evictions == 6 - len(layouts) > 0
        made.reader.forget(made.partition)
        assert (len(layouts), len(made.reader.cache)) == (0, 0)
        assert objects.count("get", "*.index") == 6


async def test_a_large_segment_that_is_cached_whole_costs_no_chunks() -> None:
    segment = large_segment()
    async with reading([segment], ReadSizes(whole_bytes=MIB, chunk_bytes=KIB)) as (log, objects, made):
        await made.fetch(0, 1)
        made.reader._whole_bytes = 100
        assert await made.drain(0, 2000) == b"".join(log.batches_from(0))
        assert gets(objects) == 1


@pytest.mark.parametrize("gap_after", [3, 4, 5, 6, 7, 38])
async def test_a_gap_makes_the_whole_segment_be_verified_once(gap_after: int) -> None:
    segment = large_segment(gap_after=gap_after)
    async with reading([segment], IN_CHUNKS, cache_bytes=0) as (log, objects, made):
        expected = log.batches_from(0)
        assert await made.drain(0, 400) == b"".join(expected)
        assert objects.count("get_range", segment.key) == 1  # It has less than the bytes of a piece.
        for offset in range(segment.reference.last_offset + 1):
            assert (await made.fetch(offset, 1)) == log.batches_from(offset)[0]
        assert objects.count("get_range", segment.key) == 1
        assert made.metrics.index_rebuilds == 0
        assert objects.count("put") == 0


async def test_a_damaged_base_offset_is_noticed_even_before_a_gap() -> None:
    """The batch's own CRC does not cover it, and where there is a gap its neighbours say nothing."""
    segment = large_segment(gap_after=5)
    position = segment.entries()[6][1]
    async with reading([segment], IN_CHUNKS, cache_bytes=0) as (log, objects, made):
        assert await made.drain(0, 400) == b"".join(log.batches_from(0))
        assert made.loader.layouts.cache.used_bytes

        def damaged(data: bytes) -> bytes:
            place = data.find(segment.data[position : position + 61])
            if place < 0:
                return data
            return data[: place + 7] + bytes([data[place + 7] ^ 1]) + data[place + 8 :]

        objects.lie(segment.key, damaged, times=1)
        assert await made.drain(0, 400) == b"".join(log.batches_from(0))
        objects.lie(segment.key, damaged)
        with pytest.raises(CorruptDataError):
            await made.drain(0, 400)


async def test_chunks_are_small_even_where_the_index_is_too_coarse() -> None:
    segment = large_segment(200, interval=1000)
    assert len(parse_index("index", segment.index, 0).offsets) == 1
    async with reading([segment], IN_CHUNKS) as (log, _, made):
        assert await made.drain(0, 400) == b"".join(log.batches_from(0))
        assert len(made.reader.cache) >= 50
        assert max(chunk.end - chunk._start for chunk, _ in made.reader.cache._entries.values()) <= KIB
        assert made.metrics.index_rebuilds == 0


# --- indexes that cannot be used


def lying(segment: StoredSegmentFile, change: Any) -> bytes:
    return build_index([(*change(offset, position), 2) for offset, position, _ in segment.entries()[::3]], 2)


BAD_INDEXES: dict[str, Any] = {
    "cut": lambda one: one.index[:-1],
    "empty": lambda one: b"",
    "magic": lambda one: b"JDX" + one.index[3:],
    "version": lambda one: one.index[:5] + b"\x09" + one.index[6:],
    "another segment's": lambda one: build_index([(7, 32, 2)], 2),
    "behind the last offset": lambda one: build_index([(0, 32, 2), (5000, 400, 2)], 2),
    "behind the end": lambda one: build_index([(0, 32, 2), (4, 10**6, 2)], 2),
    "between two batches": lambda one: lying(
        one, lambda offset, position: (offset, position + 5 * (offset > 9))
    ),
    "offsets too high": lambda one: lying(one, lambda offset, position: (offset + (offset > 9), position)),
    "offsets too low": lambda one: lying(one, lambda offset, position: (offset - (offset > 9), position)),
    "positions of the next batch": lambda one: lying(
        one, lambda offset, position: (offset, position + one.headers[0].size_bytes * (offset > 9))
    ),
    "at the end of the last batch": lambda one: lying(
        one, lambda offset, position: (offset, position if offset < 70 else len(one.data) - 60 + offset // 6)
    ),
    "missing": None,
}


@pytest.mark.parametrize("version", [LEGACY_VERSION, LARGE_VERSION])
@pytest.mark.parametrize("bad", BAD_INDEXES)
async def test_a_bad_index_is_rebuilt_counted_and_written_back(bad: str, version: int) -> None:
    segment = large_segment()
    async with reading([segment], IN_CHUNKS, index_version=version) as (log, objects, made):
        if BAD_INDEXES[bad] is None:
            await objects.inner.delete([segment.index_key])
        else:
            await objects.inner.put(segment.index_key, [BAD_INDEXES[bad](segment)])
        for offset in range(0, 80, 2):
            assert await made.fetch(offset, 1) == log.batches_from(offset)[0]
        assert made.metrics.index_rebuilds == 1
        await until(lambda: not made.loader.layouts._index_writes, "it is written back")
        assert await objects.inner.get(segment.index_key) == segment.index_of(version=version)
        assert objects.count("get_range", segment.key) == 1


async def test_the_index_of_a_damaged_segment_is_left_alone() -> None:
    segment = large_segment()
    async with reading([segment], IN_CHUNKS) as (_, objects, made):
        await objects.inner.delete([segment.index_key])
        objects.lie(segment.key, lambda data: data[:700] + b"?" + data[701:])
        with pytest.raises(CorruptDataError):
            await made.fetch(0)
        looked = gets(objects)
        # It is not looked through again and again, however often clients ask.
        for _ in range(5):
            with pytest.raises(CorruptDataError):
                await made.fetch(0)
        assert gets(objects) == looked + 5
        assert (made.metrics.index_rebuilds, objects.count("put")) == (0, 0)


async def test_a_batch_that_is_damaged_costs_its_chunk_and_no_other() -> None:
    segment = large_segment()
    place = segment.entries()[20][1] + 100
    async with reading([segment], IN_CHUNKS) as (log, objects, made):
        data = bytearray(segment.data)
        data[place] ^= 1
        await objects.inner.put(segment.key, [bytes(data)])
        failed = []
        for number, header in enumerate(segment.headers):
            try:
                assert await made.fetch(header.base_offset, 1) == log.batches_from(header.base_offset)[0]
            except CorruptDataError:
                failed.append(number)
        assert 20 in failed
        assert len(failed) <= 4
        assert (made.metrics.index_rebuilds, objects.count("get_range")) == (0, 0)


async def test_a_missing_segment_is_reported_by_its_own_name() -> None:
    for sizes in (WHOLE, IN_CHUNKS):
        segment = large_segment()
        async with reading([segment], sizes) as (_, objects, made):
            await objects.inner.delete([segment.key, segment.index_key])
            with pytest.raises(ObjectNotFoundError, match=segment.key):
                await made.fetch(0)


# --- replicas


@pytest.mark.parametrize("sizes", [WHOLE, IN_CHUNKS])
async def test_an_older_topics_replica_is_skipped_without_a_warning(
    sizes: ReadSizes, caplog: pytest.LogCaptureFixture
) -> None:
    segment = large_segment()
    older = StoredSegmentFile(
        [stored_batch(one.base_offset, [b"older" * 24] * 2, leader_epoch=1) for one in segment.headers],
        merged=True,
    )
    assert older.reference.size_bytes == segment.reference.size_bytes
    primary = ControlledStore()
    await StoredLog([segment]).put_into(primary)
    async with reading([older], sizes, primary=primary) as (_, replica, made):
        made.partition = partition_of(StoredLog([segment], [EpochStart(3, 0)]).record)
        assert await made.drain(0, 400) == b"".join(segment.batches)
        assert gets(primary, segment.key) >= 1
        assert gets(replica, segment.key) >= 1
        assert made.metrics.index_rebuilds == 0
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


# --- reading ahead


async def all_ahead(made: Reading) -> None:
    await until(lambda: not made.reader._ahead._tasks, "what is read ahead is there")


@pytest.mark.parametrize(("segment_kib", "expected"), [(1, read_ahead.MAX_LOADS_AHEAD), (1000, 8), (5000, 2)])
async def test_small_segments_are_read_further_ahead_than_large_ones(segment_kib: int, expected: int) -> None:
    """Two segments of the setting stand for 8 MiB of small ones, of which so many are loaded at a time."""
    segments = small_segments(50 if segment_kib == 1 else 12, segment_kib * KIB // 4)
    async with reading(segments, read_ahead_segments=2, cache_bytes=1 << 30) as (_, objects, made):
        await made.fetch(0, 1)
        await all_ahead(made)
        assert gets(objects) == 1 + expected


async def test_chunks_are_read_ahead_over_the_end_of_their_segment() -> None:
    segments = [large_segment(8), large_segment(8, first_offset=16)]
    async with reading(segments, IN_CHUNKS, read_ahead_segments=2) as (log, objects, made):
        await made.fetch(15, 1)
        await all_ahead(made)
        assert objects.count("get", segments[1].index_key) == 1
        assert objects.count("read_into", segments[1].key) == 1
        assert await made.drain(0, 400) == b"".join(log.batches_from(0))
        await all_ahead(made)
        assert gets(objects) == 2 + len(made.reader.cache)


async def test_read_ahead_takes_a_part_of_the_cache_until_it_is_read() -> None:
    segments = small_segments(40, 10 * KIB)
    cost = segments[0].reference.size_bytes + 2 * KIB
    async with reading(segments, read_ahead_segments=2, cache_bytes=20 * cost) as (_, objects, made):
        await made.fetch(0, 1)
        await all_ahead(made)
        assert gets(objects) == 1 + 5  # A quarter of the cache.
        await made.fetch(80, 1)
        await all_ahead(made)
        assert gets(objects) == 1 + 5 + 1
        await made.fetch(4, 1)
        await made.fetch(8, 1)
        await all_ahead(made)
        assert gets(objects) == 1 + 5 + 1 + 2
        # Segments that leave the cache unread make room, too.
        made.reader.forget(made.partition)
        assert made.reader._ahead._unused_bytes == 0


async def test_read_ahead_loads_nothing_without_a_cache_or_if_disabled() -> None:
    for cache_bytes, count in ((0, 2), (MIB, 0)):
        async with reading(small_segments(10), cache_bytes=cache_bytes, read_ahead_segments=count) as (
            _,
            objects,
            made,
        ):
            await made.fetch(0, 1)
            await all_ahead(made)
            assert gets(objects) == 1


async def test_read_ahead_repeats_no_read_that_is_done_or_in_flight() -> None:
    segments = small_segments(30)
    async with reading(segments, read_ahead_segments=3) as (_, objects, made):
        with objects.hold("read_into", segments[5].key) as hold:
            await made.fetch(0, 1)
            await hold.reached()
            for offset in (0, 4, 8):
                await made.fetch(offset, 1)
            waiting = asyncio.create_task(made.fetch(20, 1))
            await until(lambda: made.metrics.cache("segment").misses == 2, "somebody wants what is in flight")
        assert await waiting == segments[5].batches[0]
        await all_ahead(made)
        assert gets(objects) == 30


# --- metrics


async def test_both_caches_are_exported() -> None:
    async with reading([large_segment()], IN_CHUNKS, cache_bytes=5 * KIB, index_cache_bytes=4000) as (
        _,
        _,
        made,
    ):
        made.reader.register_gauges(made.metrics)
        await made.drain(0, 400)
        page = render(made.metrics).decode()
        cache, layouts = made.reader.cache, made.loader.layouts.cache
        for line in (
            f'kafscale_cache_used_bytes{{cache="segment"}} {float(cache.used_bytes)}',
            f'kafscale_cache_used_bytes{{cache="index"}} {float(layouts.used_bytes)}',
            'kafscale_cache_limit_bytes{cache="segment"} 5120.0',
            'kafscale_cache_limit_bytes{cache="index"} 4000.0',
            f'kafscale_cache_evictions_total{{cache="segment"}} {float(cache.evictions)}',
            'kafscale_cache_evictions_total{cache="index"} 0.0',
            'kafscale_cache_misses_total{cache="index"} 1.0',
        ):
            assert line in page
        assert cache.evictions > 5
