"""Lost objects: when the leader goes on without them, and when it does nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable

import pytest

from kafscale.cluster.marker import claim_marker
from kafscale.errors import CorruptDataError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.log.life.log_start import LogStart
from kafscale.log.life.lost_objects import BETWEEN_LOOKS_SEC, QUIET_SEC, LostObjects
from kafscale.log.life.removals import Removals
from kafscale.log.partition import Partition
from kafscale.log.writing.record_writer import FencedError
from kafscale.objects.object_store import ObjectInfo
from kafscale.ops.metrics import LossOutcome
from tests.log.brokers import NAMESPACE, BrokerParts, Cluster, cluster_scenario
from tests.support.owners import lead_elsewhere

TOPIC = "orders"
SEGMENTS = 6


class Finder:
    """The search of one broker, and the world around it."""

    def __init__(self, cluster: Cluster, broker: BrokerParts) -> None:
        self.is_store_away = False
        removals = Removals(broker.logs, cluster.objects, NAMESPACE)
        self.lost = LostObjects(
            broker.logs,
            cluster.objects,
            LogStart(broker.logs, broker.checkpointer, removals, broker.parts.segment_life.sealer.seal_some),
            NAMESPACE,
            "test",
            lambda: self.is_store_away,
            broker.metrics,
        )
        cluster.closing.push_async_callback(removals.close)
        cluster.closing.push_async_callback(self.lost.close)


async def started(cluster: Cluster, *, marker: str = "test") -> tuple[BrokerParts, Partition, Finder]:
    """A broker that leads a partition of six segments with one record each."""
    if marker:
        await claim_marker(cluster.objects, NAMESPACE, marker)
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    for number in range(SEGMENTS):
        await broker.produce_segment(TOPIC, 0, b"%d" % number)
    return broker, broker.partition(TOPIC), Finder(cluster, broker)


def key(offset: int) -> str:
    return object_keys.merged_segment_key(NAMESPACE, TOPIC, 0, offset, offset)


async def remove(cluster: Cluster, offsets: Iterable[int]) -> None:
    """As a bucket's rule does: each object as if it were the only one."""
    for offset in offsets:
        await cluster.objects.delete([key(offset)])
        await cluster.objects.delete([object_keys.index_key_of(key(offset))])


def starts(partition: Partition) -> list[int]:
    assert partition.references is not None
    return [reference.base_offset for reference in partition.references]


@cluster_scenario()
async def test_the_log_starts_after_the_oldest_objects_that_are_gone(cluster: Cluster) -> None:
    broker, partition, finder = await started(cluster)
    await remove(cluster, [0, 1])
    loss = await finder.lost.search(partition)
    assert [one.base_offset for one in loss.droppable] == [0, 1]
    record = await cluster.record(TOPIC)
    assert (record.log_start_offset, record.log_end_offset) == (2, SEGMENTS)
    assert starts(partition) == [one.base_offset for one in record.segments] == [2, 3, 4, 5]
    assert broker.metrics.segments_lost == {LossOutcome.DROPPED: 2, LossOutcome.KEPT: 0}
    assert not await finder.lost.search(partition)


@cluster_scenario()
async def test_a_whole_log_can_be_gone_and_goes_on_at_its_end(cluster: Cluster) -> None:
    broker, partition, finder = await started(cluster)
    await remove(cluster, range(SEGMENTS))
    await finder.lost.search(partition)
    record = await cluster.record(TOPIC)
    assert (record.log_start_offset, record.log_end_offset, record.segments) == (SEGMENTS, SEGMENTS, ())
    assert record.checkpoint_end_offset == SEGMENTS
    assert await broker.produce(TOPIC, 0, b"next") == SEGMENTS


@pytest.mark.parametrize("gone", [[3], [5], [1, 2], [0, 2], [0, 1, 2, 3, 5]])
def test_a_loss_behind_segments_that_exist_drops_nothing(
    gone: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    @cluster_scenario()
    async def scenario(cluster: Cluster) -> None:
        broker, partition, finder = await started(cluster)
        await remove(cluster, gone)
        loss = await finder.lost.search(partition)
        assert [one.base_offset for one in (*loss.at_start, *loss.inside)] == gone
        assert (await cluster.record(TOPIC)).log_start_offset == 0
        assert starts(partition) == [*range(SEGMENTS)]
        assert broker.metrics.segments_lost == {LossOutcome.DROPPED: 0, LossOutcome.KEPT: len(gone)}

    with caplog.at_level(logging.ERROR):
        scenario()
    (line,) = [one for one in caplog.records if one.name.endswith("lost_objects")]
    assert "kafscale fsck" in line.message
    first = min(offset for offset in gone if {*range(offset)} - {*gone})
    assert line.__dict__["first"] == key(first)


@pytest.mark.parametrize("marker", ["", "another-cluster"])
def test_a_bucket_without_the_clusters_marker_makes_nothing_go(marker: str) -> None:
    @cluster_scenario()
    async def scenario(cluster: Cluster) -> None:
        _, partition, finder = await started(cluster, marker=marker)
        await remove(cluster, range(SEGMENTS))
        with pytest.raises(CorruptDataError, match="nothing in this bucket counts as lost"):
            await finder.lost.search(partition)
        assert (await cluster.record(TOPIC)).log_start_offset == 0

    scenario()


@cluster_scenario()
async def test_a_store_that_is_away_makes_nothing_go(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    await remove(cluster, [0])
    finder.is_store_away = True
    with pytest.raises(StoreUnavailableError):
        await finder.lost.search(partition)
    assert (await cluster.record(TOPIC)).log_start_offset == 0


def hidden(cluster: Cluster, offsets: Iterable[int]) -> Callable[[str], AsyncIterator[ObjectInfo]]:
    """A listing that lags: it does not show these segments."""
    hidden_keys = {key(offset) for offset in offsets}

    async def listing(prefix: str) -> AsyncIterator[ObjectInfo]:
        async for info in cluster.objects.inner.list(prefix):
            if info.key not in hidden_keys:
                yield info

    return listing


@cluster_scenario()
async def test_what_a_listing_does_not_show_and_is_there_is_not_lost(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    cluster.objects.list = hidden(cluster, [0, 1, 3])  # type: ignore[method-assign,assignment]
    assert not await finder.lost.search(partition)
    await remove(cluster, [0])
    await finder.lost.search(partition)
    assert (await cluster.record(TOPIC)).log_start_offset == 1


@cluster_scenario()
async def test_what_comes_back_between_the_looks_is_not_lost(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    content = await cluster.objects.get(key(1))
    await remove(cluster, [0, 1])
    searching = asyncio.create_task(finder.lost.search(partition))
    await asyncio.sleep(BETWEEN_LOOKS_SEC / 2)
    await cluster.objects.put(key(1), [content])
    await searching
    assert (await cluster.record(TOPIC)).log_start_offset == 1


@cluster_scenario()
async def test_only_what_was_missing_at_both_looks_goes(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    await remove(cluster, [0])
    searching = asyncio.create_task(finder.lost.search(partition))
    await asyncio.sleep(BETWEEN_LOOKS_SEC / 2)
    await remove(cluster, [1])
    assert (await cluster.record(TOPIC)).log_start_offset == 0
    await searching
    assert (await cluster.record(TOPIC)).log_start_offset == 1
    await finder.lost.search(partition)
    assert (await cluster.record(TOPIC)).log_start_offset == 2


@cluster_scenario()
async def test_what_this_broker_drops_itself_is_not_lost(cluster: Cluster) -> None:
    """A search began before its record ceased to name the segment, and looked for the object after that."""
    broker, partition, finder = await started(cluster)
    await remove(cluster, [0])
    with cluster.objects.hold("get", object_keys.cluster_marker_key(NAMESPACE)) as hold:
        searching = asyncio.create_task(finder.lost.search(partition))
        await hold.reached()
        await finder.lost._log_start.move_up(partition, 1)
    assert not await searching
    assert broker.metrics.segments_lost[LossOutcome.DROPPED] == 0


@cluster_scenario()
async def test_what_is_published_meanwhile_stays(cluster: Cluster) -> None:
    broker, partition, finder = await started(cluster)
    await remove(cluster, range(SEGMENTS))
    searching = asyncio.create_task(finder.lost.search(partition))
    await asyncio.sleep(BETWEEN_LOOKS_SEC / 2)
    assert await broker.produce(TOPIC, 0, b"next") == SEGMENTS
    await searching
    assert starts(partition) == [SEGMENTS]
    assert (await cluster.record(TOPIC)).log_start_offset == SEGMENTS


@cluster_scenario()
async def test_a_leader_that_was_replaced_drops_nothing(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    await remove(cluster, [0])
    await lead_elsewhere(cluster.metadata, TOPIC)
    with pytest.raises(FencedError):
        await finder.lost.search(partition)
    assert (await cluster.record(TOPIC)).log_start_offset == 0


# --- reports


@cluster_scenario()
async def test_many_reports_make_one_search(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    await remove(cluster, [2])
    reference = partition.record.segments[2]
    marker = object_keys.cluster_marker_key(NAMESPACE)
    cluster.objects.calls.clear()
    for _ in range(100):
        finder.lost.report(partition, reference)
        await asyncio.sleep(QUIET_SEC / 200)
    assert cluster.objects.count("get", marker) == 2  # one for each of its two looks
    await asyncio.sleep(QUIET_SEC)
    finder.lost.report(partition, reference)
    await asyncio.sleep(2 * BETWEEN_LOOKS_SEC)
    assert cluster.objects.count("get", marker) == 4


@cluster_scenario()
async def test_a_report_after_a_successful_search_counts_at_once(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    for number in range(3):
        await remove(cluster, [number])
        assert partition.references is not None
        finder.lost.report(partition, next(iter(partition.references)))
        await asyncio.sleep(BETWEEN_LOOKS_SEC + 1)
        assert (await cluster.record(TOPIC)).log_start_offset == number + 1


@cluster_scenario()
async def test_a_search_that_fails_is_made_again_later(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    await remove(cluster, [0])
    reference = partition.record.segments[0]
    cluster.objects.fail("get", "*/cluster", StoreUnavailableError("away"))
    finder.lost.report(partition, reference)
    await asyncio.sleep(QUIET_SEC + 1)
    assert (await cluster.record(TOPIC)).log_start_offset == 0
    finder.lost.report(partition, reference)
    await asyncio.sleep(BETWEEN_LOOKS_SEC + 1)
    assert (await cluster.record(TOPIC)).log_start_offset == 1


@cluster_scenario()
async def test_a_broker_that_only_follows_leaves_it_to_the_leader(cluster: Cluster) -> None:
    await claim_marker(cluster.objects, NAMESPACE, "test")
    brokers = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC)
    leader, reader = sorted(brokers, key=lambda one: (TOPIC, 0) not in one.led())
    await leader.produce_segment(TOPIC, 0, b"x")
    followed = await reader.logs.follow(TOPIC, 0)
    assert followed is not None
    await remove(cluster, [0])
    Finder(cluster, reader).lost.report(followed, followed.record.segments[0])
    await asyncio.sleep(2 * BETWEEN_LOOKS_SEC)
    assert (await cluster.record(TOPIC)).log_start_offset == 0


@cluster_scenario()
async def test_listing_without_segments_is_no_report_before_sealing(cluster: Cluster) -> None:
    """Each look for garbage asked for every slice of a partition that has nothing else."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    await broker.produce(TOPIC, 0, b"x")
    finder = Finder(cluster, broker)
    finder.lost.compare(broker.partition(TOPIC), None)
    assert not finder.lost._searches


@cluster_scenario()
async def test_a_listing_without_the_oldest_segment_counts_as_a_report(cluster: Cluster) -> None:
    _, partition, finder = await started(cluster)
    lost = finder.lost
    cluster.objects.calls.clear()
    lost.compare(partition, key(0))
    await asyncio.sleep(1)
    assert not cluster.objects.calls
    await remove(cluster, [0, 1])
    lost.compare(partition, key(2))
    await asyncio.sleep(BETWEEN_LOOKS_SEC + 1)
    assert (await cluster.record(TOPIC)).log_start_offset == 2
    await remove(cluster, range(SEGMENTS))
    lost.compare(partition, None)
    await asyncio.sleep(BETWEEN_LOOKS_SEC + 1)
    assert (await cluster.record(TOPIC)).log_start_offset == SEGMENTS
    lost.compare(partition, None)  # There is nothing to miss any more.
    assert not lost._searches
