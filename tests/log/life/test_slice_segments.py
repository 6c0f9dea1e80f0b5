"""Segments made of slices: what is stored, what an earlier attempt may have stored, and what cannot be read."""

import asyncio
from collections.abc import Callable

import pytest

from kafscale import clocks
from kafscale.errors import StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.index import parse_index
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, encode_footer, encode_header
from kafscale.journal.partition_state import unsealed
from kafscale.log.life import slice_segments
from kafscale.log.life.entry_reads import EntryReads
from kafscale.log.life.merge_pressure import MergePressure
from kafscale.log.life.pace import Pace
from kafscale.log.life.segment_merge import DamagedSourceError, KeyTakenError, MergePaces, SegmentMerge
from kafscale.log.life.slice_bodies import SliceBodies
from kafscale.log.life.slice_segments import SliceSegments
from kafscale.log.life.source_reads import MissingSourceError, SourceReads
from kafscale.protocol.compression import Codec
from tests.formats.segments import parse_segment, verify_segment
from tests.log.brokers import NAMESPACE, BrokerParts, Cluster, cluster_scenario

TOPIC = "events"
INDEX_VERSION = 2
VALUES = [b"one", b"two", b"three"]
KEY = object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, 0, 2)


async def broker_with_slices(cluster: Cluster) -> tuple[BrokerParts, tuple[SegmentReference, ...]]:
    """A broker that leads a partition with a slice of each value, none of which is sealed."""
    (broker,) = await cluster.start(0)
    await cluster.create_topic(TOPIC)
    for value in VALUES:
        await broker.produce(TOPIC, 0, value)
    return broker, unsealed(broker.partition(TOPIC).record.segments)


def segments_of(cluster: Cluster, broker: BrokerParts) -> SliceSegments:
    """Its parts are closed before the cluster is."""
    reads = EntryReads(cluster.objects)
    cluster.closing.push_async_callback(reads.close)
    pace = Pace()
    paces = MergePaces(pace, 1.0, clocks.thread_cpu_sec, MergePressure(1))
    merge = SegmentMerge(cluster.objects, SourceReads(reads, 4), NAMESPACE, paces)
    return SliceSegments(
        cluster.objects, merge, SliceBodies(broker.reader, reads), NAMESPACE, broker.now_ms, pace
    )


async def values_of(cluster: Cluster, key: str) -> int:
    """The number of records of a stored segment, which is sound."""
    segment = parse_segment(key, await cluster.objects.inner.get(key))
    verify_segment(segment)
    return segment.header.message_count


@cluster_scenario()
async def test_segment_and_index_are_stored(cluster: Cluster) -> None:
    broker, sources = await broker_with_slices(cluster)
    made = await segments_of(cluster, broker).create(broker.partition(TOPIC), sources, INDEX_VERSION)
    assert made.object_key == KEY
    assert (made.base_offset, made.last_offset, made.record_count) == (0, 2, 3)
    data = await cluster.objects.inner.get(KEY)
    segment = parse_segment(KEY, data)
    batches = verify_segment(segment)
    assert [header.base_offset for _, header in batches] == [0, 1, 2]
    assert made.size_bytes == len(data)
    index = parse_index("index", await cluster.objects.inner.get(object_keys.index_key_of(KEY)), 0)
    index.check(last_offset=2, body_end=segment.body_end)


@cluster_scenario(cache_size_bytes=1)
async def test_slices_out_of_memory_are_read_from_entries(cluster: Cluster) -> None:
    broker, sources = await broker_with_slices(cluster)
    broker.reader.forget(broker.partition(TOPIC))
    await segments_of(cluster, broker).create(broker.partition(TOPIC), sources, INDEX_VERSION)
    assert cluster.objects.count("get", "*.entry") == len(sources)
    assert await values_of(cluster, KEY) == 3


@cluster_scenario()
async def test_large_segments_are_the_same_and_streamed(cluster: Cluster) -> None:
    broker, sources = await broker_with_slices(cluster)
    segments, partition = segments_of(cluster, broker), broker.partition(TOPIC)
    small = await segments.create(partition, sources, INDEX_VERSION)
    body = parse_segment(KEY, await cluster.objects.inner.get(KEY)).body
    await cluster.objects.inner.delete([KEY, object_keys.index_key_of(KEY)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_segments, "IN_MEMORY_BYTES", sum(one.size_bytes for one in sources) - 1)
        large = await segments.create(partition, sources, INDEX_VERSION)
    assert cluster.objects.count("put_if_absent_streamed", KEY) == 1
    assert cluster.objects.count("get", "*.entry") + cluster.objects.count("get_range", "*.entry") == 0, (
        "all of it was in memory"
    )
    assert large == small
    assert parse_segment(KEY, await cluster.objects.inner.get(KEY)).body == body


@cluster_scenario()
async def test_streamed_segments_are_found_when_made_again(cluster: Cluster) -> None:
    broker, sources = await broker_with_slices(cluster)
    segments, partition = segments_of(cluster, broker), broker.partition(TOPIC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_segments, "IN_MEMORY_BYTES", 0)
        first = await segments.create(partition, sources, INDEX_VERSION)
        index = await cluster.objects.inner.get(object_keys.index_key_of(KEY))
        await cluster.settle()
        assert await segments.create(partition, sources, INDEX_VERSION) == first
        broker.reader.forget(partition)
        assert await segments.create(partition, sources, INDEX_VERSION) == first
    assert cluster.objects.count("get_range", "*.entry") > 0
    assert await cluster.objects.inner.get(object_keys.index_key_of(KEY)) == index


@cluster_scenario()
async def test_streamed_slices_stay_in_memory_until_the_end(cluster: Cluster) -> None:
    """The cache drops them meanwhile: their memory must not be used for anything else."""
    broker, sources = await broker_with_slices(cluster)
    segments, partition = segments_of(cluster, broker), broker.partition(TOPIC)
    held = [broker.reader.written(partition, one) for one in sources]
    with pytest.MonkeyPatch.context() as patch, cluster.objects.hold("put_if_absent_streamed", KEY) as put:
        patch.setattr(slice_segments, "IN_MEMORY_BYTES", 0)
        creating = asyncio.create_task(segments.create(partition, sources, INDEX_VERSION))
        await put.reached()
        broker.reader.forget(partition)
        assert [one is not None and one.is_held for one in held] == [True] * len(sources)
        put.release()
        await creating
    assert [one is not None and one.is_held for one in held] == [False] * len(sources)
    assert await values_of(cluster, KEY) == 3


@cluster_scenario()
async def test_an_attempt_after_a_lost_answer_succeeds(cluster: Cluster) -> None:
    """The segment is there already, made at another time, and its index is not."""
    broker, sources = await broker_with_slices(cluster)
    segments, partition = segments_of(cluster, broker), broker.partition(TOPIC)
    cluster.objects.fail("put", "*.index", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError):
        await segments.create(partition, sources, INDEX_VERSION)
    stored = await cluster.objects.inner.get(KEY)
    await cluster.settle()
    made = await segments.create(partition, sources, INDEX_VERSION)
    assert made.object_key == KEY
    assert await cluster.objects.inner.get(KEY) == stored
    assert await cluster.objects.inner.get(object_keys.index_key_of(KEY))


def longer(data: bytes) -> bytes:
    return data + b"x"


def with_another_checksum(data: bytes) -> bytes:
    return data[:-FOOTER_SIZE] + encode_footer(body_crc=1, last_offset=2)


def with_another_number_of_records(data: bytes) -> bytes:
    header = encode_header(codec=Codec.NONE, base_offset=0, message_count=2, created_ms=0)
    return header + data[HEADER_SIZE:]


@pytest.mark.parametrize("change", [longer, with_another_checksum, with_another_number_of_records])
def test_another_segment_under_the_key_is_left_alone(change: Callable[[bytes], bytes]) -> None:
    """It has the same offsets: an earlier topic of the name may have left it."""

    @cluster_scenario()
    async def scenario(cluster: Cluster) -> None:
        broker, sources = await broker_with_slices(cluster)
        segments, partition = segments_of(cluster, broker), broker.partition(TOPIC)
        await segments.create(partition, sources, INDEX_VERSION)
        other = change(await cluster.objects.inner.get(KEY))
        await cluster.objects.inner.put(KEY, [other])
        await cluster.objects.inner.delete([object_keys.index_key_of(KEY)])
        with pytest.raises(KeyTakenError, match=KEY):
            await segments.create(partition, sources, INDEX_VERSION)
        assert await cluster.objects.inner.get(KEY) == other
        assert await cluster.objects.keys("*.index") == []

    scenario()


@cluster_scenario(cache_size_bytes=1)
async def test_a_missing_entry_is_reported_and_nothing_stored(cluster: Cluster) -> None:
    broker, sources = await broker_with_slices(cluster)
    await cluster.objects.inner.delete([sources[1].object_key])
    broker.reader.forget(broker.partition(TOPIC))
    with pytest.raises(MissingSourceError) as found:
        await segments_of(cluster, broker).create(broker.partition(TOPIC), sources, INDEX_VERSION)
    assert found.value.source == sources[1]
    assert await cluster.objects.keys("*.kfs") == []


@cluster_scenario(cache_size_bytes=1)
async def test_a_damaged_slice_does_not_become_a_segment(cluster: Cluster) -> None:
    broker, sources = await broker_with_slices(cluster)
    broker.reader.forget(broker.partition(TOPIC))

    def damaged(data: bytes) -> bytes:
        return data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]

    cluster.objects.lie(sources[1].object_key, damaged)
    with pytest.raises(DamagedSourceError) as found:
        await segments_of(cluster, broker).create(broker.partition(TOPIC), sources, INDEX_VERSION)
    assert found.value.source == sources[1]
    assert await cluster.objects.keys("*.kfs") == []
