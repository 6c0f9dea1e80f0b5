"""The loop that stores records and seals: the outcome of slices at a look, and what a failure leaves."""

import asyncio
import random
from collections.abc import Iterator, Sequence

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.journal_keys import is_unsealed_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.log import partition_log
from kafscale.log.life import pace, seal_planner, segment_life, slice_segments
from kafscale.log.life import sealer as sealer_module
from kafscale.log.life.sealer import Sealer
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.ops.metric_export import render
from kafscale.ops.prices import Operation, Prices
from kafscale.protocol.types import Buffer
from tests.log.brokers import AN_HOUR_MS, NAMESPACE, TTL_SEC, BrokerParts, Cluster, cluster_scenario
from tests.support.metrics_page import MetricsPage

TOPIC = "events"
PARTITIONS = 3
WORTHWHILE_BYTES = 1_000
SMALL, LARGE = b"small", random.Random(0).randbytes(WORTHWHILE_BYTES)


@pytest.fixture(autouse=True)
def small_limits() -> Iterator[None]:
    """Of brokers that are made meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_life, "WORTHWHILE_BYTES", WORTHWHILE_BYTES)
        patch.setattr(segment_life, "_LEAST_MEMORY_BYTES", 1)
        yield


def sealer(broker: BrokerParts) -> Sealer:
    return broker.parts.segment_life.sealer


async def leading_broker(cluster: Cluster) -> BrokerParts:
    (broker,) = await cluster.start(0)
    await cluster.create_topic(TOPIC, PARTITIONS)
    return broker


async def named(cluster: Cluster, index: int = 0) -> list[str]:
    """The kinds of the objects that the partition's stored record names, in order."""
    return [kind(one) for one in (await cluster.record(TOPIC, index)).segments]


def kind(reference: SegmentReference) -> str:
    return reference.object_key.rpartition(".")[2]


async def write_as_another(cluster: Cluster, index: int) -> None:
    """Write the partition's record as another leader would: its own loses it at the next write."""
    key = keys.partition(TOPIC, index)
    found = await cluster.metadata.get(key)
    assert found is not None
    await cluster.metadata.transact([], [Put(key, found.value)])


async def revision(cluster: Cluster, index: int = 0) -> int:
    found = await cluster.metadata.get(keys.partition(TOPIC, index))
    assert found is not None
    return found.mod_revision


@cluster_scenario()
async def test_a_look_stores_what_is_published(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    await broker.produce(TOPIC, 0, SMALL)
    assert (await cluster.record(TOPIC)).log_end_offset == 0, "not on the acknowledgement's way"
    await sealer(broker).look()
    record = await cluster.record(TOPIC)
    assert record.log_end_offset == 1
    assert await named(cluster) == ["entry"], "a single slice would only be copied"


@cluster_scenario()
async def test_a_look_without_anything_new_writes_nothing(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    await broker.produce(TOPIC, 0, SMALL)
    await broker.produce(TOPIC, 1, LARGE)
    await sealer(broker).look()
    before = [await revision(cluster, index) for index in range(PARTITIONS)]
    objects = await cluster.objects.keys()
    await sealer(broker).look()
    assert [await revision(cluster, index) for index in range(PARTITIONS)] == before
    assert await cluster.objects.keys() == objects


@cluster_scenario()
async def test_little_is_gathered_and_much_is_sealed(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for _ in range(2):
        for index, value in enumerate((SMALL, LARGE, SMALL)):
            await broker.produce(TOPIC, index, value)
    await sealer(broker).look()
    assert [await named(cluster, index) for index in range(PARTITIONS)] == [
        ["gathered"],
        ["kfs"],
        ["gathered"],
    ]
    assert len(await cluster.objects.keys("*.gathered")) == 1
    assert await cluster.published(TOPIC, 1) == {0: LARGE, 1: LARGE}
    assert await cluster.published(TOPIC, 2) == {0: SMALL, 1: SMALL}


@cluster_scenario()
async def test_topics_share_what_a_gathered_object_costs(cluster: Cluster) -> None:
    """Half of the PUT by bytes, half by slices: two of one topic, and a larger one of another."""
    broker = await leading_broker(cluster)
    await cluster.create_topic("clicks")
    for _ in range(2):
        await broker.produce(TOPIC, 0, SMALL)
        await broker.produce(TOPIC, 1, SMALL)
        await broker.produce("clicks", 0, 50 * SMALL)
    put = cluster.objects.put_if_absent

    async def metered(key: str, parts: Sequence[Buffer]) -> None:
        broker.meter.sent(Operation.PUT_OBJECT, key, sum(map(len, parts)))
        await put(key, parts)

    cluster.objects.put_if_absent = metered  # type: ignore[method-assign]
    await sealer(broker).look()
    slices = {
        (topic, index): (await cluster.record(topic, index)).segments[0]
        for topic, index in ((TOPIC, 0), (TOPIC, 1), ("clicks", 0))
    }
    assert len({one.object_key for one in slices.values()}) == 1, "one object"
    of_bytes = slices["clicks", 0].size_bytes / sum(one.size_bytes for one in slices.values())
    dollars = Prices().of_request(Operation.PUT_OBJECT)
    page = MetricsPage(render(broker.metrics).decode())
    costs = page.by_label("kafscale_topic_request_cost_dollars_total", "topic", "class")
    assert {names: cost for names, cost in costs.items() if cost} == {
        ("clicks", "put"): pytest.approx(dollars * (of_bytes + 1 / 3) / 2),
        (TOPIC, "put"): pytest.approx(dollars * (1 - of_bytes + 2 / 3) / 2),
    }


@cluster_scenario(seal_max_age_ms=60_000)
async def test_what_is_old_becomes_a_segment(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for _ in range(2):
        await broker.produce(TOPIC, 0, SMALL)
    await sealer(broker).look()
    await asyncio.sleep(58)
    await broker.produce(TOPIC, 0, SMALL)
    await sealer(broker).look()
    assert await named(cluster) == ["gathered", "entry"]
    await asyncio.sleep(2)
    await sealer(broker).look()
    assert await named(cluster) == ["kfs"], "what was gathered, and what came later, in one"
    assert await cluster.published(TOPIC) == dict.fromkeys(range(3), SMALL)


@cluster_scenario(seal_max_age_ms=60_000)
async def test_what_comes_after_a_seal_waits_its_own_time(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    await broker.produce(TOPIC, 0, SMALL)
    await asyncio.sleep(60)
    await sealer(broker).look()
    await broker.produce(TOPIC, 0, SMALL)
    await asyncio.sleep(30)
    await sealer(broker).look()
    assert await named(cluster) == ["kfs", "entry"]


@cluster_scenario()
async def test_what_was_sealed_is_read_as_a_segment(cluster: Cluster) -> None:
    """Its slices leave memory: the record names them no more."""
    broker = await leading_broker(cluster)
    for _ in range(2):
        await broker.produce(TOPIC, 0, LARGE)
    partition = broker.partition(TOPIC)
    slices = partition.record.segments
    await sealer(broker).look()
    assert [broker.reader.copy_of(partition, one) for one in slices] == [None, None]
    assert partition.references is not None
    assert tuple(partition.references) == partition.record.segments
    assert not is_unsealed_key(partition.record.segments[0].object_key)


# --- when it looks


@cluster_scenario(seal_interval_ms=60_000, cache_size_bytes=1 << 20)
async def test_it_looks_at_its_interval(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    running = asyncio.create_task(sealer(broker).run())
    await broker.produce(TOPIC, 0, SMALL)
    await asyncio.sleep(59)
    assert await named(cluster) == []
    await asyncio.sleep(2)
    assert await named(cluster) == ["entry"]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@cluster_scenario(seal_interval_ms=AN_HOUR_MS, cache_size_bytes=4 * WORTHWHILE_BYTES)
async def test_it_looks_earlier_when_memory_is_full(cluster: Cluster) -> None:
    """As long as slices are in memory, they need not be read: half of the cache is for them."""
    broker = await leading_broker(cluster)
    running = asyncio.create_task(sealer(broker).run())
    await broker.produce(TOPIC, 0, LARGE)
    await cluster.settle()
    assert await named(cluster) == []
    await broker.produce(TOPIC, 1, LARGE)
    await cluster.settle()
    assert [await named(cluster, index) for index in (0, 1)] == [["kfs"], ["kfs"]]
    await broker.produce(TOPIC, 0, LARGE)
    await cluster.settle()
    assert await named(cluster) == ["kfs"], "it counts from the last look on"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@cluster_scenario(seal_interval_ms=AN_HOUR_MS, cache_size_bytes=1 << 20)
async def test_full_partition_is_sealed_at_once(cluster: Cluster) -> None:
    """It is still in memory then, and its segment is large enough not to be merged."""
    broker = await leading_broker(cluster)
    one = sealer(broker)
    one._full_bytes = 2 * WORTHWHILE_BYTES
    running = asyncio.create_task(one.run())
    await broker.produce(TOPIC, 0, LARGE)
    await broker.produce(TOPIC, 1, LARGE)
    await cluster.settle()
    assert [await named(cluster, index) for index in (0, 1)] == [[], []]
    await broker.produce(TOPIC, 0, LARGE)
    await cluster.settle()
    assert [await named(cluster, index) for index in (0, 1)] == [["kfs"], []]
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@cluster_scenario(seal_interval_ms=AN_HOUR_MS)
async def test_one_look_seals_more_than_one_segment(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for _ in range(3):
        await broker.produce(TOPIC, 0, LARGE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seal_planner, "MOST_BYTES", 2 * WORTHWHILE_BYTES)
        await sealer(broker).look()
    assert await named(cluster) == ["kfs", "kfs", "kfs"]


# --- much to seal


@pytest.fixture
def slow_pace() -> Iterator[None]:
    """More than a slice is much to seal, and takes ten seconds for each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slice_segments, "IN_MEMORY_BYTES", WORTHWHILE_BYTES * 3 // 2)
        patch.setattr(pace, "LEAST_BYTES_PER_SEC", WORTHWHILE_BYTES / 10)
        yield


@pytest.mark.usefixtures("slow_pace")
@cluster_scenario()
async def test_much_is_sealed_at_a_pace_beside_the_looks(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for index in (0, 0, 2, 2):
        await broker.produce(TOPIC, index, LARGE)
    began_sec = asyncio.get_running_loop().time()
    await sealer(broker).look()
    await broker.produce(TOPIC, 1, SMALL)
    await sealer(broker).look()
    assert [await named(cluster, index) for index in range(PARTITIONS)] == [[], ["entry"], []]
    await sealer(broker).settled()
    assert [await named(cluster, index) for index in range(PARTITIONS)] == [["kfs"], ["entry"], ["kfs"]]
    assert asyncio.get_running_loop().time() - began_sec >= 40
    assert await cluster.published(TOPIC, 2) == {0: LARGE, 1: LARGE}


@pytest.mark.usefixtures("slow_pace")
@cluster_scenario()
async def test_partition_with_much_to_seal_goes_on(cluster: Cluster) -> None:
    """Records that come while their segment is made are for the next look."""
    broker = await leading_broker(cluster)
    for _ in range(2):
        await broker.produce(TOPIC, 0, LARGE)
    await sealer(broker).look()
    await broker.produce(TOPIC, 0, LARGE)
    await sealer(broker).look()
    await sealer(broker).settled()
    assert await named(cluster) == ["kfs", "entry"]
    await sealer(broker).look()
    assert await named(cluster) == ["kfs", "kfs"]
    assert await cluster.published(TOPIC) == dict.fromkeys(range(3), LARGE)


@pytest.mark.usefixtures("slow_pace")
@cluster_scenario()
async def test_record_without_room_does_not_wait_for_the_pace(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_log, "MOST_RECORD_SEGMENTS", 4)
        for _ in range(4):
            await broker.produce(TOPIC, 0, LARGE)
        await sealer(broker).look()
        began_sec = asyncio.get_running_loop().time()
        assert await broker.produce(TOPIC, 0, LARGE) == 4
        assert asyncio.get_running_loop().time() - began_sec < 10
    await sealer(broker).settled()
    assert await cluster.published(TOPIC) == dict.fromkeys(range(5), LARGE)


@pytest.mark.usefixtures("slow_pace")
@cluster_scenario()
async def test_a_lost_partition_keeps_no_other_from_being_sealed(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for index in (0, 0, 1, 1):
        await broker.produce(TOPIC, index, LARGE)
    await write_as_another(cluster, 0)
    await sealer(broker).look()
    await sealer(broker).settled()
    assert "kfs" not in await named(cluster, 0)
    assert await named(cluster, 1) == ["kfs"]


# --- partitions come and go


@cluster_scenario(seal_max_age_ms=60_000)
async def test_slices_of_an_earlier_leader_are_sealed(cluster: Cluster) -> None:
    """Nothing is produced any more: that they are there is known from the claim."""
    first = await leading_broker(cluster)
    for _ in range(2):
        await first.produce(TOPIC, 0, SMALL)
    await first.kill()
    (second,) = await cluster.start(1)
    await asyncio.sleep(2 * TTL_SEC)
    await asyncio.sleep(60)
    await sealer(second).look()
    assert await named(cluster) == ["kfs"]
    assert await cluster.published(TOPIC) == {0: SMALL, 1: SMALL}


@cluster_scenario()
async def test_a_lost_partition_is_lost_alone(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for index in range(PARTITIONS):
        await broker.produce(TOPIC, index, SMALL)
    await write_as_another(cluster, 1)
    partition = broker.partition(TOPIC, 1)
    await sealer(broker).look()
    assert not partition.is_led
    assert [await named(cluster, index) for index in range(PARTITIONS)] == [["entry"], [], ["entry"]]


# --- failures


@pytest.mark.parametrize("pattern", ["*.kfs", "*.index"])
def test_a_store_that_is_away_is_tried_at_the_next_look(pattern: str) -> None:
    @cluster_scenario()
    async def scenario(cluster: Cluster) -> None:
        broker = await leading_broker(cluster)
        await broker.produce(TOPIC, 0, LARGE)
        await broker.produce(TOPIC, 1, SMALL)
        method = "put" if pattern == "*.index" else "put_if_absent"
        cluster.objects.fail(method, pattern, StoreUnavailableError("away"))
        await sealer(broker).look()
        assert [await named(cluster, index) for index in (0, 1)] == [[], ["entry"]]
        await sealer(broker).look()
        assert await named(cluster) == ["kfs"]
        assert await cluster.published(TOPIC) == {0: LARGE}

    scenario()


@cluster_scenario()
async def test_a_gathering_that_fails_is_tried_at_the_next_look(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for _ in range(2):
        await broker.produce(TOPIC, 0, SMALL)
    cluster.objects.fail("put_if_absent", "*.gathered", StoreUnavailableError("away"))
    await sealer(broker).look()
    await sealer(broker).look()
    assert await named(cluster) == ["gathered"]


@cluster_scenario()
async def test_where_a_key_is_taken_a_shorter_segment_is_made(cluster: Cluster) -> None:
    """An object of an earlier topic of the name may have the key. It is left alone."""
    broker = await leading_broker(cluster)
    for _ in range(3):
        await broker.produce(TOPIC, 0, LARGE)
    taken = object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, 0, 2)
    await cluster.objects.inner.put(taken, [b"another topic's"])
    await sealer(broker).look()
    segments = (await cluster.record(TOPIC)).segments
    assert [(one.base_offset, one.last_offset) for one in segments] == [(0, 1), (2, 2)]
    assert await named(cluster) == ["kfs", "kfs"]
    assert await cluster.objects.inner.get(taken) == b"another topic's"
    assert await cluster.published(TOPIC) == dict.fromkeys(range(3), LARGE)


@cluster_scenario(seal_max_age_ms=60_000)
async def test_what_a_shorter_segment_leaves_waits_its_own_time(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    for _ in range(3):
        await broker.produce(TOPIC, 0, SMALL)
    taken = object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, 0, 2)
    await cluster.objects.inner.put(taken, [b"another topic's"])
    await asyncio.sleep(60)
    for _ in range(2):
        await sealer(broker).look()
    assert await named(cluster) == ["kfs", "entry"]
    await asyncio.sleep(60)
    await sealer(broker).look()
    assert await named(cluster) == ["kfs", "kfs"]


@cluster_scenario(cache_size_bytes=1)
async def test_a_missing_slice_keeps_no_record_from_being_stored(cluster: Cluster) -> None:
    """A slice that cannot be sealed stays where it is; the record goes on, and so do the other partitions."""
    broker = await leading_broker(cluster)
    for index in range(2):
        await broker.produce(TOPIC, index, LARGE)
    lost = broker.partition(TOPIC).record.segments[0]
    content = await cluster.objects.inner.get(lost.object_key)
    await cluster.objects.inner.delete([lost.object_key])
    broker.reader.forget(broker.partition(TOPIC))
    await sealer(broker).look()
    assert [await named(cluster, index) for index in (0, 1)] == [["entry"], ["kfs"]]
    await cluster.objects.inner.put(lost.object_key, [content])
    await sealer(broker).look()
    assert await named(cluster) == ["kfs"]


@pytest.mark.parametrize("bad", [0, 2, 4])
def test_slices_beside_a_damaged_one_are_sealed(bad: int) -> None:
    """Else its partition would run out of room in the record, and take no more records."""

    @cluster_scenario(cache_size_bytes=1)
    async def play(cluster: Cluster) -> None:
        broker = await leading_broker(cluster)
        for _ in range(5):
            await broker.produce(TOPIC, 0, LARGE)
        damaged = broker.partition(TOPIC).record.segments[bad]
        broker.reader.forget(broker.partition(TOPIC))
        cluster.objects.lie(damaged.object_key, lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
        for _ in range(3):
            await sealer(broker).look()
        parts = [(0, bad - 1, "kfs"), (bad, bad, "entry"), (bad + 1, 4, "kfs")]
        assert [
            (one.base_offset, one.last_offset, kind(one)) for one in (await cluster.record(TOPIC)).segments
        ] == [part for part in parts if part[0] <= part[1]]
        assert await broker.produce(TOPIC, 0, LARGE) == 5

    play()


# --- room in the record


@cluster_scenario()
async def test_a_record_without_room_gets_some_by_sealing(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_log, "MOST_RECORD_SEGMENTS", 4)
        for number in range(8):
            assert await broker.produce(TOPIC, 0, SMALL) == number
            assert len(broker.partition(TOPIC).record.segments) <= 4
    assert await cluster.published(TOPIC) == dict.fromkeys(range(8), SMALL)


@cluster_scenario()
async def test_without_room_a_producer_waits_for_the_store(cluster: Cluster) -> None:
    broker = await leading_broker(cluster)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partition_log, "MOST_RECORD_SEGMENTS", 4)
        for _ in range(4):
            await broker.produce(TOPIC, 0, SMALL)
        away = [StoreUnavailableError("away")] * 3
        cluster.objects.fail("put_if_absent", "*.kfs", *away)
        told = broker.produce(TOPIC, 0, SMALL)
        await asyncio.sleep(0.2)
        assert not told.done()
        assert await told == 4


@cluster_scenario()
async def test_many_slices_of_leaders_before_are_looked_at_soon(cluster: Cluster) -> None:
    """Leaders that changed within their intervals left so many that the record was full: then nothing was flushed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sealer_module, "MANY_REFERENCES", 4)
        first, second = await cluster.start(0, 1)
        await cluster.create_topic(TOPIC, 1)
        (leader,) = (one for one in (first, second) if one.led())
        other = second if leader is first else first
        for _ in range(5):
            await leader.produce(TOPIC, 0, SMALL)
        assert sealer(leader)._there_is_much.is_set(), "its own, too"
        await leader.kill()
        await asyncio.sleep(2 * TTL_SEC)
        assert other.led()
        assert sealer(other)._there_is_much.is_set()
