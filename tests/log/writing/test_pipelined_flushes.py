"""Two flushes of a partition in flight: the answers to clients, the published records, and the orphans."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from kafscale.errors import StoreRefusedError
from kafscale.formats import object_keys
from kafscale.log.partition_log import MOST_SEALED
from kafscale.log.writing.flusher import MOST_TASKS
from kafscale.metadata import keys
from kafscale.metadata.store import Compare, Delete, Operation, Put, TransactionResult
from kafscale.ops.metrics import FlushOutcome, LeadershipChange
from kafscale.protocol.error_codes import ErrorCode
from tests.log.brokers import NAMESPACE, BrokerParts, Cluster, cluster_scenario
from tests.sim.cluster import RefusedError
from tests.support.owners import end_leases, lead_elsewhere

TOPIC = "orders"
PRODUCER_ID = 7
Told = asyncio.Future[int]


class DefectError(Exception):
    """A failure that no second attempt would change."""


def segment(base_offset: int) -> str:
    return object_keys.segment_key(NAMESPACE, TOPIC, 0, base_offset)


def index(base_offset: int) -> str:
    return object_keys.index_key(NAMESPACE, TOPIC, 0, base_offset)


async def begun(cluster: Cluster) -> BrokerParts:
    """A broker that leads a partition in which it has published one record."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    assert await broker.produce(TOPIC, 0, b"first") == 0
    await cluster.settle()
    return broker


@contextmanager
def unclaimable(broker: BrokerParts) -> Iterator[None]:
    """The broker does not claim a partition that it loses while the block lasts."""
    with patch.object(broker.logs, "_lost_listeners", []):
        yield


def hold_publication(cluster: Cluster) -> tuple[asyncio.Event, asyncio.Event]:
    """Let the next publication wait until the first of these events is set; the second shows that it does."""
    transact, may_end, has_begun = cluster.metadata.transact, asyncio.Event(), asyncio.Event()

    async def transact_late(
        compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        cluster.metadata.transact = transact  # type: ignore[method-assign]
        assert [one.key for one in operations if isinstance(one, Put)] == [keys.partition(TOPIC, 0)]
        has_begun.set()
        await may_end.wait()
        return await transact(compares, operations)

    cluster.metadata.transact = transact_late  # type: ignore[method-assign]
    return may_end, has_begun


async def one_after_the_other(cluster: Cluster, broker: BrokerParts, *values: bytes) -> list[Told]:
    """Each is sent when all that the one before set off has come to a stand."""
    told = []
    for value in values:
        told.append(broker.produce(TOPIC, 0, value))
        await cluster.settle()
    return told


async def refused(told: Told, code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
    with pytest.raises(RefusedError) as refusal:
        await told
    assert refusal.value.error_code == code


def in_order(*told: Told) -> list[int]:
    """The numbers of the answered ones, in the order of their answers."""
    order: list[int] = []
    for number, one in enumerate(told):
        one.add_done_callback(lambda _, number=number: order.append(number))  # type: ignore[misc]
    return order


# --- in the good case


@cluster_scenario(flush_interval_ms=0)
async def test_uploads_overlap_and_are_acknowledged_in_order(cluster: Cluster) -> None:
    broker = await begun(cluster)
    with cluster.objects.hold("put_if_absent", segment(1)) as first:
        a = broker.produce(TOPIC, 0, b"a")
        await first.reached()
        b = broker.produce(TOPIC, 0, b"b")
        order = in_order(b, a)
        await cluster.settle()
        assert segment(2) in await cluster.objects.keys()
        assert not a.done()
        assert not b.done()
        assert (await cluster.record(TOPIC)).log_end_offset == 1
    assert (await a, await b) == (1, 2)
    assert order == [1, 0]
    assert await cluster.published(TOPIC) == {0: b"first", 1: b"a", 2: b"b"}
    assert broker.budget.used_bytes == 0


@cluster_scenario(flush_interval_ms=0)
async def test_batches_beyond_two_flushes_in_flight_share_a_segment(cluster: Cluster) -> None:
    broker = await begun(cluster)
    with cluster.objects.hold("put_if_absent", "*.kfs") as hold:
        told = await one_after_the_other(cluster, broker, b"a", b"b", b"c", b"d")
        assert hold.waiting == MOST_SEALED == 2
    assert await asyncio.gather(*told) == [1, 2, 3, 4]
    assert [one.record_count for one in (await cluster.record(TOPIC)).segments] == [1, 1, 1, 2]


@cluster_scenario(flush_interval_ms=0)
async def test_the_first_of_an_epoch_is_alone(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    with cluster.objects.hold("put_if_absent", "*.kfs") as hold:
        a = broker.produce(TOPIC, 0, b"a")
        await hold.reached()
        b = broker.produce(TOPIC, 0, b"b")
        await cluster.settle()
        assert hold.waiting == 1
    assert (await a, await b) == (0, 1)


# --- the leadership goes


@cluster_scenario(flush_interval_ms=0)
async def test_records_are_stored_once_if_an_orphan_is_in_the_way(cluster: Cluster) -> None:
    broker = await begun(cluster)
    await cluster.objects.inner.put_if_absent(segment(2), [b"a leftover"])

    def send(sequence: int) -> Told:
        value = b"%d" % sequence
        return broker.produce(TOPIC, 0, value, producer_id=PRODUCER_ID, producer_epoch=0, sequence=sequence)

    with cluster.objects.hold("put_if_absent", segment(1)) as first:
        told = [send(0)]
        await first.reached()
        told.append(send(1))
        await cluster.settle()
        told.append(send(2))
    assert await told[0] == 1
    await refused(told[1])
    await refused(told[2])
    assert broker.budget.used_bytes == 0
    await cluster.settle()
    assert broker.metrics.leadership_changes[LeadershipChange.LOST] == 1
    assert (await cluster.leaders(TOPIC))[0].leader_epoch == 1
    await cluster.check_led_by(TOPIC, [broker])
    again = [await send(sequence) for sequence in range(3)]
    # The third may have been in flight already, and is an orphan, too, then.
    assert again in ([1, 3, 4], [1, 4, 5])
    assert await cluster.published(TOPIC) == {
        0: b"first",
        **dict(zip(again, (b"0", b"1", b"2"), strict=True)),
    }
    assert await cluster.objects.inner.get(segment(2)) == b"a leftover"
    assert broker.budget.used_bytes == 0


@cluster_scenario(flush_interval_ms=0)
async def test_a_fenced_first_flush_publishes_nothing_of_the_second(cluster: Cluster) -> None:
    broker = await begun(cluster)
    with cluster.objects.hold("put_if_absent", segment(1)) as first:
        a = broker.produce(TOPIC, 0, b"a")
        await first.reached()
        b = broker.produce(TOPIC, 0, b"b")
        await cluster.settle()
        await lead_elsewhere(cluster.metadata, TOPIC)
        fenced_at = (await cluster.record(TOPIC)).log_end_offset
    await refused(a)
    await refused(b)
    await cluster.settle()
    assert (await cluster.record(TOPIC)).log_end_offset == fenced_at == 1
    assert {segment(1), segment(2)} <= set(await cluster.objects.keys())
    assert (broker.budget.used_bytes, broker.led()) == (0, set())
    # The next leader goes past both.
    await end_leases(cluster.metadata, keys.leader(TOPIC, 0))
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [broker])
    assert await broker.produce(TOPIC, 0, b"after") == 3
    assert await cluster.published(TOPIC) == {0: b"first", 3: b"after"}


@cluster_scenario(flush_interval_ms=0)
async def test_a_hand_over_publishes_flushes_in_flight_and_the_buffer(cluster: Cluster) -> None:
    broker = await begun(cluster)
    partition = broker.partition(TOPIC)
    with cluster.objects.hold("put_if_absent", "*.kfs") as hold:
        told = await one_after_the_other(cluster, broker, b"a", b"b", b"c")
        resigning = asyncio.create_task(broker.logs.resign(partition))
        await cluster.settle()
        assert hold.waiting == 2
    await resigning
    assert [one.result() for one in told] == [1, 2, 3]
    assert (broker.budget.used_bytes, broker.led()) == (0, set())
    assert await cluster.published(TOPIC) == {0: b"first", 1: b"a", 2: b"b", 3: b"c"}


@cluster_scenario(flush_interval_ms=0)
async def test_a_hand_over_that_takes_too_long_refuses_all_records(cluster: Cluster) -> None:
    broker = await begun(cluster)
    with cluster.objects.hold("put_if_absent", "*.kfs") as hold:
        told = await one_after_the_other(cluster, broker, b"a", b"b", b"c")
        await broker.logs.resign(broker.partition(TOPIC))
        assert hold.waiting == 0
    for one in told:
        await refused(one)
    assert broker.budget.used_bytes == 0
    assert (await cluster.record(TOPIC)).log_end_offset == 1


@pytest.mark.parametrize("is_in_time", [False, True])
def test_deleting_a_topic_publishes_or_refuses_flushes_in_flight(is_in_time: bool) -> None:
    @cluster_scenario(flush_interval_ms=0)
    async def play(cluster: Cluster) -> None:
        broker = await begun(cluster)
        with cluster.objects.hold("put_if_absent", "*.kfs") as hold:
            told = await one_after_the_other(cluster, broker, b"a", b"b", b"c")
            closing = asyncio.create_task(broker.logs.close_topic(TOPIC))
            await cluster.settle()
            if is_in_time:
                hold.release()
            await closing
            assert hold.waiting == 0
        if is_in_time:
            assert (await told[0], await told[1]) == (1, 2)
        else:
            await refused(told[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            await refused(told[1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await refused(told[2], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert broker.budget.used_bytes == 0
        assert (await cluster.record(TOPIC)).log_end_offset == (3 if is_in_time else 1)

    play()


@cluster_scenario(flush_interval_ms=0)
async def test_a_broker_killed_with_two_flushes_leaves_no_task(cluster: Cluster) -> None:
    broker = await begun(cluster)
    with (
        cluster.objects.hold("put_if_absent", "*.kfs") as segments,
        cluster.objects.hold("put_if_absent", "*.index") as indexes,
    ):
        told = [broker.produce(TOPIC, 0, b"a")]
        await segments.reached()
        told.append(broker.produce(TOPIC, 0, b"b"))
        await cluster.settle()
        await broker.kill()
        assert segments.waiting == indexes.waiting == 0
        assert not broker.partition(TOPIC).flush_tasks
    assert not any(one.done() for one in told), "a process that ends tells nobody anything"
    assert (await cluster.record(TOPIC)).log_end_offset == 1


@cluster_scenario(flush_interval_ms=0)
async def test_a_kill_during_a_topics_deletion_leaves_no_flush(cluster: Cluster) -> None:
    broker = await begun(cluster)
    partition = broker.partition(TOPIC)
    with cluster.objects.hold("put_if_absent", "*.kfs") as hold:
        told = broker.produce(TOPIC, 0, b"a")
        await hold.reached()
        await cluster.metadata.transact([], [Delete(keys.topic(TOPIC))])
        await cluster.settle()
        assert partition.flush_tasks
        await broker.kill()
        assert not partition.flush_tasks
    await refused(told, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert broker.budget.used_bytes == 0


@cluster_scenario(flush_interval_ms=0)
async def test_a_cancelled_first_flush_keeps_the_second_unpublished(cluster: Cluster) -> None:
    """The record would have named a segment before which another is missing, without a sign of it."""
    broker = await begun(cluster)
    partition = broker.partition(TOPIC)
    with cluster.objects.hold("put_if_absent", segment(1)) as first:
        a = broker.produce(TOPIC, 0, b"a")
        await first.reached()
        b = broker.produce(TOPIC, 0, b"b")
        await cluster.settle()
        partition.flush_tasks[0].cancel()
        await cluster.settle()
    assert (await cluster.record(TOPIC)).log_end_offset == 1
    assert not a.done()
    assert not b.done()
    await broker.logs.resign(partition)
    await refused(a)
    await refused(b)
    assert broker.budget.used_bytes == 0


@pytest.mark.parametrize("another_leads", [False, True])
def test_a_failed_second_upload_leaves_the_first_in_doubt(another_leads: bool) -> None:
    """It is published all the same, a moment later, or it is not: no client gets a second answer."""

    @cluster_scenario(flush_interval_ms=0)
    async def play(cluster: Cluster) -> None:
        broker = await begun(cluster)
        may_end, has_begun = hold_publication(cluster)
        cluster.objects.fail("put_if_absent", segment(2), DefectError("no"))
        with cluster.objects.hold("put_if_absent", segment(2)) as second, unclaimable(broker):
            a = broker.produce(TOPIC, 0, b"a")
            await has_begun.wait()
            b = broker.produce(TOPIC, 0, b"b")
            await second.reached()
            second.release()
            await refused(a, ErrorCode.REQUEST_TIMED_OUT)
            await refused(b, ErrorCode.KAFKA_STORAGE_ERROR)
            assert broker.budget.used_bytes == 0
            if another_leads:
                await lead_elsewhere(cluster.metadata, TOPIC)
            may_end.set()
            await cluster.settle()
        assert broker.metrics.flushes.outcomes[FlushOutcome.FAILED] == 1, "the first has not failed"
        published = {0: b"first"} if another_leads else {0: b"first", 1: b"a"}
        assert await cluster.published(TOPIC) == published
        assert broker.budget.used_bytes == 0

    play()


@cluster_scenario(flush_interval_ms=0)
async def test_refused_records_are_not_published_a_moment_later(cluster: Cluster) -> None:
    """The first waits to write the record while the second fails with the answer that nothing is stored."""
    broker = await begun(cluster)
    partition = broker.partition(TOPIC)
    cluster.objects.fail("put_if_absent", segment(2), DefectError("no"))
    with unclaimable(broker):
        async with partition.record_lock:
            with cluster.objects.hold("put_if_absent", segment(2)) as second:
                a = broker.produce(TOPIC, 0, b"a")
                await cluster.settle()
                b = broker.produce(TOPIC, 0, b"b")
                await second.reached()
                second.release()
                await refused(a, ErrorCode.KAFKA_STORAGE_ERROR)
                await refused(b, ErrorCode.KAFKA_STORAGE_ERROR)
        await cluster.settle()
    assert await cluster.published(TOPIC) == {0: b"first"}
    assert broker.budget.used_bytes == 0


# --- indexes


@cluster_scenario(flush_interval_ms=0)
async def test_slow_indexes_delay_no_acknowledgement_up_to_a_limit(cluster: Cluster) -> None:
    """But after a few no more segments are made: they would be found without an index after a crash."""
    broker = await begun(cluster)
    with cluster.objects.hold("put_if_absent", "*.index") as indexes:
        for number in range(MOST_TASKS):
            assert await broker.produce(TOPIC, 0, b"%d" % number) == 1 + number
        last = broker.produce(TOPIC, 0, b"last")
        await cluster.settle()
        assert indexes.waiting == MOST_TASKS
        assert not last.done()
        assert segment(1 + MOST_TASKS) not in await cluster.objects.keys()
    assert await last == 1 + MOST_TASKS
    await cluster.settle()
    assert len(await cluster.objects.keys("*.index")) == 2 + MOST_TASKS
    assert not broker.partition(TOPIC).flush_tasks


@cluster_scenario(flush_interval_ms=0)
async def test_a_refused_index_is_uploaded_once_the_store_accepts_it(cluster: Cluster) -> None:
    broker = await begun(cluster)
    cluster.objects.fail("put_if_absent", index(1), *[StoreRefusedError("no such right")] * 10)
    assert await broker.produce(TOPIC, 0, b"a") == 1
    assert await broker.produce(TOPIC, 0, b"b") == 2
    assert index(1) not in await cluster.objects.keys()
    await asyncio.sleep(60)
    assert index(1) in await cluster.objects.keys()
    assert (await cluster.leaders(TOPIC))[0].leader_epoch == 0
    assert await broker.produce(TOPIC, 0, b"c") == 3


@cluster_scenario(flush_interval_ms=0)
async def test_a_defect_in_an_index_takes_nothing_back(cluster: Cluster) -> None:
    """Acknowledged records stay; the rest is refused, and is stored in a new epoch when sent again."""
    broker = await begun(cluster)
    cluster.objects.fail("put_if_absent", index(1), DefectError("no"))
    with (
        cluster.objects.hold("put_if_absent", index(1)) as held,
        cluster.objects.hold("put_if_absent", segment(2)) as second,
    ):
        assert await broker.produce(TOPIC, 0, b"a") == 1
        b = broker.produce(TOPIC, 0, b"b")
        await second.reached()
        held.release()
        await refused(b, ErrorCode.KAFKA_STORAGE_ERROR)
        assert broker.budget.used_bytes == 0
        await cluster.settle()
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [broker])
    assert (await cluster.leaders(TOPIC))[0].leader_epoch == 1
    assert await broker.produce(TOPIC, 0, b"b") == 3
    assert await cluster.published(TOPIC) == {0: b"first", 1: b"a", 3: b"b"}
    assert broker.budget.used_bytes == 0


@cluster_scenario(flush_interval_ms=0)
async def test_a_hand_over_waits_for_an_index_only_so_long(cluster: Cluster) -> None:
    broker = await begun(cluster)
    with cluster.objects.hold("put_if_absent", index(1)) as held:
        assert await broker.produce(TOPIC, 0, b"a") == 1
        await held.reached()
        began = asyncio.get_running_loop().time()
        await broker.logs.resign(broker.partition(TOPIC))
        assert 0 < asyncio.get_running_loop().time() - began < 10
        assert held.waiting == 0
    assert await cluster.published(TOPIC) == {0: b"first", 1: b"a"}
    assert (broker.budget.used_bytes, broker.led()) == (0, set())
