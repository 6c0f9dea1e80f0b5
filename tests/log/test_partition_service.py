"""Brokers that share partitions: they spread, hand over without a loss, and survive their leases and defects."""

import asyncio
from collections import Counter
from collections.abc import Sequence

import pytest

from kafscale.cluster.keeper import LOOK_AGAIN_SEC
from kafscale.cluster.preferred import preferred_brokers
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerState, LeaderRecord
from kafscale.metadata.store import Compare, Delete, Operation, TransactionResult
from kafscale.protocol.error_codes import ErrorCode
from tests.log.brokers import AN_HOUR_MS, TTL_SEC, Cluster, cluster_scenario
from tests.log.outcome import RefusedError
from tests.support.faults import Fault, Fuse, FusedMetadataStore
from tests.support.owners import end_journal, end_leases, lead_elsewhere
from tests.support.waiting import PATIENCE_MS

TOPIC = "orders"


async def refused(told: "asyncio.Future[int]", code: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER) -> None:
    with pytest.raises(RefusedError) as refusal:
        await told
    assert refusal.value.error_code == code


# --- spreading


@cluster_scenario()
async def test_a_single_broker_leads_everything(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC, 7)
    await cluster.check_led_by(TOPIC, [broker])
    assert {leader.leader_epoch for leader in (await cluster.leaders(TOPIC)).values()} == {0}


@cluster_scenario()
async def test_partitions_are_spread_again_as_brokers_come_and_go(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 12)
    await cluster.check_led_by(TOPIC, [first, second])
    assert len(first.led()) == len(second.led()) == 6
    (third,) = await cluster.start(3)
    await cluster.check_led_by(TOPIC, [first, second, third])
    assert len(first.led()) == len(second.led()) == len(third.led()) == 4
    await second.stop()
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [first, third])
    assert len(first.led()) == len(third.led()) == 6
    # No epoch grew more often than its leader changed.
    epochs = Counter(leader.leader_epoch for leader in (await cluster.leaders(TOPIC)).values())
    assert max(epochs) <= 2
    assert epochs[0] >= 3


@cluster_scenario()
async def test_every_partition_is_with_its_preferred_broker_in_the_end(cluster: Cluster) -> None:
    brokers = await cluster.start(5, 3, 9)
    for partitions in (1, 2, 10):
        await cluster.create_topic(f"topic-{partitions}", partitions)
        leaders = await cluster.leaders(f"topic-{partitions}")
        assert tuple(leaders[index].broker_id for index in range(partitions)) == preferred_brokers(
            f"topic-{partitions}", partitions, [3, 5, 9]
        )
        await cluster.check_led_by(f"topic-{partitions}", brokers)


@cluster_scenario()
async def test_added_partitions_are_led_and_the_others_hardly_move(cluster: Cluster) -> None:
    brokers = await cluster.start(1, 2, 3)
    await cluster.create_topic(TOPIC, 6)
    before = await cluster.leaders(TOPIC)
    await brokers[0].topics.create_partitions(TOPIC, 12, timeout_ms=PATIENCE_MS)
    await cluster.settle()
    await cluster.check_led_by(TOPIC, brokers)
    after = await cluster.leaders(TOPIC)
    assert sum(before[index] != after[index] for index in before) <= 2


@cluster_scenario()
async def test_partitions_of_a_killed_broker_are_led_after_its_lease(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 6)
    told = [second.produce(topic, index, b"before") for topic, index in sorted(second.led())]
    assert await asyncio.gather(*told) == [0, 0, 0]
    await second.kill()
    killed_at = asyncio.get_running_loop().time()
    await first.view.wait_until(
        lambda: [one.broker_id for one in first.view.leaders(TOPIC).values()] == [1] * 6
    )
    assert asyncio.get_running_loop().time() - killed_at < TTL_SEC + 0.1
    await cluster.check_led_by(TOPIC, [first])
    for index in range(6):
        led_before = (await cluster.leaders(TOPIC))[index].leader_epoch == 0
        assert await first.produce(TOPIC, index, b"after") == (0 if led_before else 1)


# --- handing over


@cluster_scenario(flush_interval_ms=AN_HOUR_MS)
async def test_a_hand_over_publishes_and_acknowledges_its_appends(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 4)
    told = {index: second.produce(TOPIC, index, b"a", b"b") for _, index in second.led()}
    assert len(told) == 2
    await cluster.settle()
    assert not any(one.done() for one in told.values())
    began = asyncio.get_running_loop().time()
    await second.stop()
    assert asyncio.get_running_loop().time() - began < 0.1
    assert {index: await one for index, one in told.items()} == dict.fromkeys(told, 0)
    assert second.budget.used_bytes == 0
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [first])
    for index in told:
        assert await cluster.published(TOPIC, index) == {0: b"a", 1: b"b"}
        assert (await cluster.leaders(TOPIC))[index] == LeaderRecord(broker_id=1, leader_epoch=1)
        again = first.produce(TOPIC, index, b"c")
        await first.logs.drain()
        assert await again == 2


@cluster_scenario(flush_interval_ms=AN_HOUR_MS)
async def test_a_broker_that_joins_costs_no_record(cluster: Cluster) -> None:
    (first,) = await cluster.start(1)
    await cluster.create_topic(TOPIC, 4)
    told = [first.produce(TOPIC, index, b"before") for index in range(4)]
    (second,) = await cluster.start(2)
    await cluster.check_led_by(TOPIC, [first, second])
    moved = {index for _, index in second.led()}
    assert len(moved) == 2
    # What stays goes up with what moves: it costs nothing.
    assert await asyncio.gather(*told) == [0] * 4
    assert cluster.objects.count("put_if_absent", "*.entry") == 1


@cluster_scenario()
async def test_a_flushed_partition_is_led_while_others_still_flush(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 4)
    slow, fast = sorted(second.led())
    with cluster.objects.hold("put_if_absent", "*.entry") as hold:
        told = second.produce(*slow, b"slow")
        await hold.reached()
        stopping = asyncio.create_task(second.stop())
        await cluster.settle()
        assert fast in first.led()
        assert slow not in first.led()
        assert slow in second.led()
        assert not second.partition(*slow).is_led  # accepts nothing more
        hold.release()
        await stopping
    assert await told == 0
    await cluster.settle()
    assert slow in first.led()


@cluster_scenario()
async def test_a_flush_past_the_time_limit_is_not_acknowledged(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 2)
    ((_, index),) = second.led()
    with cluster.objects.hold("put_if_absent", "*.entry") as hold:
        told = [second.produce(TOPIC, index, b"sealed")]
        await hold.reached()
        told.append(second.produce(TOPIC, index, b"behind it"))
        stopping = asyncio.create_task(second.stop())
        for one in told:
            # It may be there: no answer says that it is not stored.
            await refused(one, ErrorCode.REQUEST_TIMED_OUT)
        stopping.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        await second.kill()
    assert second.budget.used_bytes == 0
    await second.registration.close()
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [first])
    assert await first.produce(TOPIC, index, b"after") == 0
    assert list((await cluster.published(TOPIC, index)).values()) == [b"after"]


# --- leases that end


@cluster_scenario(flush_interval_ms=AN_HOUR_MS)
async def test_a_broker_whose_lease_ends_publishes_and_leads_again(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC, 3)
    told = [broker.produce(TOPIC, index, b"accepted") for index in range(3)]
    lease = broker.registration.lease
    await cluster.metadata.revoke_lease(lease)
    assert await asyncio.gather(*told) == [0] * 3
    await asyncio.sleep(TTL_SEC)
    assert broker.registration.lease != lease
    await cluster.check_led_by(TOPIC, [broker])
    assert {leader.leader_epoch for leader in (await cluster.leaders(TOPIC)).values()} == {1}
    assert broker.view.broker_state(1) is BrokerState.RUNNING


@cluster_scenario(flush_interval_ms=AN_HOUR_MS)
async def test_a_lost_partition_refuses_its_records_and_comes_back(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 4)
    ours = sorted(index for _, index in second.led())
    told = [second.produce(TOPIC, index, b"too late") for index in ours]
    await end_journal(cluster.metadata, cluster.objects.inner, second.parts.journals.current.journal_id)
    await cluster.metadata.revoke_lease(second.registration.lease)
    for one in told:
        await refused(one)
    await asyncio.sleep(TTL_SEC)
    await cluster.check_led_by(TOPIC, [first, second])
    assert sorted(index for _, index in second.led()) == ours
    assert {(await cluster.leaders(TOPIC))[index].leader_epoch for index in ours} == {2}
    for index in ours:
        assert await cluster.published(TOPIC, index) == {}


class SlowAnswers(MemoryStore):
    """A store whose answers to claims of partitions take their time."""

    def __init__(self) -> None:
        super().__init__()
        self.hold: asyncio.Event | None = None
        self.held = asyncio.Event()

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        result = await super().transact(compares, operations)
        if self.hold is not None and any(one.key.startswith(keys.LEADERS) for one in operations):
            self.held.set()
            await self.hold.wait()
        return result


@cluster_scenario()
async def test_a_claim_answered_after_its_lease_has_ended_is_repeated(cluster: Cluster) -> None:
    cluster.metadata = store = SlowAnswers()
    (broker,) = await cluster.start(1)
    store.hold = asyncio.Event()
    creating = asyncio.create_task(cluster.create_topic(TOPIC, 3))
    await store.held.wait()
    await store.revoke_lease(broker.registration.lease)
    await asyncio.sleep(TTL_SEC)
    held, store.hold = store.hold, None
    held.set()
    await asyncio.sleep(TTL_SEC)
    await creating
    await cluster.check_led_by(TOPIC, [broker])
    assert await broker.produce(TOPIC, 0, b"x") == 0


@cluster_scenario()
async def test_a_claim_answered_after_its_topic_came_back(cluster: Cluster) -> None:
    """The broker would lead the deleted topic's log, and the store would know of no leader, for good."""
    cluster.metadata = store = SlowAnswers()
    (broker,) = await cluster.start(1)
    store.hold = asyncio.Event()
    creating = [asyncio.create_task(cluster.create_topic(TOPIC))]
    await store.held.wait()
    held, store.hold = store.hold, None
    await cluster.settle()
    await store.transact([], [Delete(of(TOPIC, 0)) for of in (keys.partition, keys.leader)])
    await store.transact([], [Delete(keys.topic(TOPIC))])
    await cluster.settle()
    creating.append(asyncio.create_task(cluster.create_topic(TOPIC)))
    await cluster.settle()
    assert (TOPIC, 0) not in broker.logs.claims
    held.set()
    await asyncio.sleep(LOOK_AGAIN_SEC)
    await asyncio.gather(*creating)
    await cluster.check_led_by(TOPIC, [broker])
    assert await broker.produce(TOPIC, 0, b"x") == 0


@cluster_scenario()
async def test_a_claim_ends_although_its_election_meets_a_defect(cluster: Cluster) -> None:
    """Its requests would have waited, each for as long as one may, in vain."""
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC)
    lease = await lead_elsewhere(cluster.metadata, TOPIC, objects=cluster.objects.inner)
    await refused(broker.produce(TOPIC, 0, b"too late"))
    followed = await broker.logs.follow(TOPIC, 0)
    assert followed is not None

    class Reader:
        def grown(self, size_bytes: int, stable_bytes: int) -> None:
            pass

        def closed(self) -> None:
            raise RuntimeError("a defect")

    followed.listen(Reader())
    await cluster.metadata.revoke_lease(lease)
    await cluster.settle()
    assert broker.led() == {(TOPIC, 0)}
    assert not broker.logs.claims.are_any


@cluster_scenario()
async def test_a_metadata_outage_past_the_lease_costs_no_record(cluster: Cluster) -> None:
    fuse = Fuse(0, Fault.UNAVAILABLE)
    metadata = FusedMetadataStore(cluster.metadata, fuse)
    broker = cluster.broker(1, metadata)
    await broker.start()
    await cluster.create_topic(TOPIC, 2)
    away = Fuse(1, Fault.CRASH_NOT_DONE)  # no call is answered
    metadata._fuse = away
    assert await broker.produce(TOPIC, 0, b"during") == 0
    await asyncio.sleep(60)
    assert await broker.produce(TOPIC, 0, b"for long") == 1
    await end_leases(cluster.metadata, keys.BROKERS)
    metadata._fuse = fuse
    await asyncio.sleep(2 * TTL_SEC)
    await cluster.check_led_by(TOPIC, [broker])
    assert await broker.produce(TOPIC, 0, b"after") == 2
    assert await cluster.published(TOPIC) == {0: b"during", 1: b"for long", 2: b"after"}


# --- flushes that fail


@cluster_scenario()
async def test_a_fenced_flush_gives_the_partition_up(cluster: Cluster) -> None:
    (broker,) = await cluster.start(1)
    await cluster.create_topic(TOPIC, 2)
    assert await broker.produce(TOPIC, 0, b"before") == 0
    lease = await lead_elsewhere(cluster.metadata, TOPIC, 0, cluster.objects.inner)
    await refused(broker.produce(TOPIC, 0, b"too late"))
    await cluster.settle()
    assert broker.led() == {(TOPIC, 1)}, "somebody else leads it"
    await cluster.metadata.revoke_lease(lease)
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [broker])
    assert broker.partition(TOPIC).record.leader_epoch == 2
    assert await broker.produce(TOPIC, 0, b"after") > 0
    assert list((await cluster.published(TOPIC)).values()) == [b"before", b"after"]


@cluster_scenario()
async def test_a_defect_in_a_flush_starts_the_next_leader_epoch(cluster: Cluster) -> None:
    first, second = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 2)
    ((_, index),) = second.led()
    assert await second.produce(TOPIC, index, b"before") == 0
    with cluster.objects.hold("put_if_absent", "*.entry") as hold:
        lost = [second.produce(TOPIC, index, b"lost")]
        await hold.reached()
        lost.append(second.produce(TOPIC, index, b"lost behind it"))
        cluster.objects.fail("put_if_absent", "*.entry", RuntimeError("a defect"))
    # What the call did before it failed is not known; what waited for it was not sent.
    for one, told in zip(lost, (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR), strict=True):
        await refused(one, told)
    assert second.budget.used_bytes == 0
    await cluster.settle()
    await cluster.check_led_by(TOPIC, [first, second])
    assert (await cluster.leaders(TOPIC))[index] == LeaderRecord(broker_id=2, leader_epoch=1)
    assert await second.produce(TOPIC, index, b"after") >= 1
    assert list((await cluster.published(TOPIC, index)).values()) == [b"before", b"after"]


# --- topics that go


@cluster_scenario()
async def test_topics_that_are_recreated_are_led_again(cluster: Cluster) -> None:
    brokers = await cluster.start(1, 2)
    for generation in range(3):
        await cluster.create_topic(TOPIC, 4)
        await cluster.check_led_by(TOPIC, brokers)
        for broker in brokers:
            for topic, index in broker.led():
                assert await broker.produce(topic, index, b"%d" % generation) == 0
        snapshot = await cluster.metadata.range("")
        await cluster.metadata.transact(
            [],
            [
                *(
                    Delete(item.key)
                    for item in snapshot.items
                    if item.key == keys.topic(TOPIC)
                    or item.key.startswith((keys.partition(TOPIC, 0)[:-1], keys.leader(TOPIC, 0)[:-1]))
                )
            ],
        )
        for key in await cluster.objects.keys():
            await cluster.objects.inner.delete([key])
        await cluster.settle()
        assert not any(broker.led() for broker in brokers)
