"""The coordinator keeps the lag table: commits, deletions, expiry, lost shards, and what is read at a start."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence

import pytest

from kafscale.cluster.coordination import Coordination
from kafscale.cluster.view import ClusterView
from kafscale.errors import StoreUnavailableError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.group_record import GroupRecord, MemberRecord, encode_group_record
from kafscale.formats.topic_record import encode_topic_record
from kafscale.groups.coordinator import GroupCoordinator
from kafscale.groups.expiry import OffsetExpiry
from kafscale.groups.lag import ConsumerLag
from kafscale.groups.lag_seeding import LagSeeding
from kafscale.groups.shards import GroupShards
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import Compare, Operation, Put, Snapshot, TransactionResult
from kafscale.ops.metrics import Metrics
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from tests.groups.consumer.member import ConsumerMember
from tests.groups.no_transactions import NoTransactions
from tests.support.in_process_broker import until
from tests.support.owners import end_leases

TOPIC = "orders"
TOPIC_ID = uuid.UUID(int=1)
END = 1000
NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 10**9


class WatchedStore(MemoryStore):
    """Says which groups' offsets were read, and can hold up the answers of reads and writes."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.may_read = asyncio.Event()
        self.may_read.set()
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.writes_done = 0
        self.failures = 0

    async def range(self, prefix: str) -> Snapshot:
        snapshot = await super().range(prefix)
        if prefix.startswith(keys.GROUP_OFFSETS):
            self.read.append(prefix)
            await self.may_read.wait()
            if self.failures:
                self.failures -= 1
                raise StoreUnavailableError("away")
        return snapshot

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        result = await super().transact(compares, operations)
        self.writes_done += 1
        await self.may_write.wait()
        return result


class Coordinating:
    """One broker's groups, and the lag table that they keep."""

    def __init__(self, store: WatchedStore, view: ClusterView, lease: int, max_series: int) -> None:
        settings, metrics = Settings(), Metrics().groups
        self.lag = ConsumerLag(view, lambda *_: END, max_series)
        self.store = store
        self.shards = GroupShards(
            store, Coordination(store, 0, lambda: lease), settings, metrics, lambda: NOW_MS, self.lag
        )
        self.coordinator = GroupCoordinator(
            self.shards, store, view, settings, metrics, lambda: NOW_MS, NoTransactions()
        )
        self.expiry = OffsetExpiry(self.shards, store, view, settings, lambda: NOW_MS)

    async def commit(self, group_id: str, *offsets: int, expire_ms: int | None = LATER_MS) -> None:
        """Commit these offsets of the first partitions."""
        committed = {
            (TOPIC, index): CommittedOffset(
                topic_id=TOPIC_ID, offset=offset, commit_timestamp_ms=NOW_MS, expire_timestamp_ms=expire_ms
            )
            for index, offset in enumerate(offsets)
        }
        assert await self.coordinator.commit(
            group_id, member_id="", group_instance_id=None, generation=-1, offsets=committed
        ) is ErrorCode.NONE  # fmt: skip

    def samples(self) -> dict[tuple[str, int], int]:
        """Group and partition, and the lag."""
        return {(group_id, int(index)): lag for (group_id, _, index), lag in self.lag.samples()}


@pytest.fixture
async def store() -> AsyncIterator[WatchedStore]:
    store = WatchedStore()
    yield store
    await store.close()


class Brokers:
    """One broker after the other on the same store; each coordinates every group from its start on."""

    def __init__(self, store: WatchedStore) -> None:
        self.store = store
        self.started: list[Coordinating] = []

    async def start(self, max_series: int = 100) -> Coordinating:
        record = TopicRecord(name=TOPIC, topic_id=TOPIC_ID, partition_count=3)
        await self.store.transact([], [Put(keys.topic(TOPIC), encode_topic_record(record))])
        view = ClusterView("test")
        view.apply(keys.TOPICS, await self.store.range(keys.TOPICS))
        await end_leases(self.store, keys.COORDINATORS)
        started = Coordinating(self.store, view, await self.store.grant_lease(3600), max_series)
        self.started.append(started)
        await started.shards.claim(range(keys.GROUP_SHARD_COUNT))
        return started


@pytest.fixture
async def brokers(store: WatchedStore) -> AsyncIterator[Brokers]:
    brokers = Brokers(store)
    yield brokers
    store.may_read.set()
    store.may_write.set()
    for started in brokers.started:
        await started.expiry.close()
        await started.shards.close()


async def test_a_commit_is_seen_once_it_is_durable(brokers: Brokers, store: WatchedStore) -> None:
    broker = await brokers.start()
    store.may_write.clear()
    commit = asyncio.create_task(broker.commit("billing", 100, 200))
    done = store.writes_done
    await until(lambda: store.writes_done > done, "the store has the write")
    assert broker.samples() == {}
    store.may_write.set()
    await commit
    assert broker.samples() == {("billing", 0): 900, ("billing", 1): 800}
    await broker.commit("billing", 150)
    assert broker.samples() == {("billing", 0): 850, ("billing", 1): 800}


async def test_a_refused_commit_leaves_no_lag(brokers: Brokers) -> None:
    broker = await brokers.start()
    offsets = {(TOPIC, 0): CommittedOffset(topic_id=TOPIC_ID, offset=1, commit_timestamp_ms=NOW_MS)}
    answer = await broker.coordinator.commit(
        "billing", member_id="nobody", group_instance_id=None, generation=3, offsets=offsets
    )
    assert answer is not ErrorCode.NONE
    assert broker.lag.series_count == 0


async def test_deleted_offsets_and_deleted_groups_leave_the_table(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit("billing", 100, 200)
    await broker.commit("shipping", 300)
    await broker.coordinator.delete_offsets("billing", [(TOPIC, 0)])
    assert broker.samples() == {("billing", 1): 800, ("shipping", 0): 700}
    assert await broker.coordinator.delete("shipping") is ErrorCode.NONE
    assert broker.samples() == {("billing", 1): 800}


async def test_expired_offsets_and_groups_leave_the_table(brokers: Brokers) -> None:
    broker = await brokers.start()
    await broker.commit("billing", 0, 200)
    await broker.commit("billing", 100, expire_ms=NOW_MS - 1)
    await broker.commit("shipping", 300, expire_ms=NOW_MS - 1)
    assert len(broker.samples()) == 3
    await broker.expiry.check()
    assert broker.samples() == {("billing", 1): 800}


async def test_a_group_that_cannot_be_removed_keeps_its_lag(brokers: Brokers, store: WatchedStore) -> None:
    broker = await brokers.start()
    await broker.commit("billing", 100)
    store.failures = 1
    with pytest.raises(KafkaError):
        await broker.coordinator.delete("billing")
    assert broker.samples() == {("billing", 0): 900}


async def test_lag_moves_to_the_next_coordinator(brokers: Brokers) -> None:
    before = await brokers.start()
    await before.commit("billing", 100)
    after = await brokers.start()
    with pytest.raises(KafkaError):
        await before.commit("billing", 200)
    assert before.lag.series_count == 0
    await until(lambda: after.samples() == {("billing", 0): 900}, "the lag is read")


async def test_lag_of_a_consumer_group_is_followed(brokers: Brokers) -> None:
    before = await brokers.start()
    member = ConsumerMember(before.coordinator, "billing")
    await member.heartbeat()
    assert await member.commit(300) is ErrorCode.NONE
    assert before.samples() == {("billing", 0): 700}
    after = await brokers.start()
    await until(lambda: after.samples() == {("billing", 0): 700}, "the lag is read")
    member.coordinator = after.coordinator
    await member.leave()
    assert await after.coordinator.delete("billing") is ErrorCode.NONE
    assert after.samples() == {}


async def test_a_commit_that_outlasts_its_group_here_leaves_nothing(
    brokers: Brokers, store: WatchedStore
) -> None:
    broker = await brokers.start()
    store.may_write.clear()
    commit = asyncio.create_task(broker.commit("billing", 100))
    done = store.writes_done
    await until(lambda: store.writes_done > done, "the store has the write")
    broker.shards.refuse_requests()
    store.may_write.set()
    await commit
    assert broker.lag.series_count == 0


async def test_a_start_does_not_wait_for_the_offsets(brokers: Brokers, store: WatchedStore) -> None:
    await (await brokers.start()).commit("billing", 100)
    store.may_read.clear()
    broker = await brokers.start()
    await until(lambda: store.read, "a read is in flight")
    assert broker.samples() == {}
    await broker.commit("shipping", 300)
    store.may_read.set()
    await until(lambda: broker.samples() == {("billing", 0): 900, ("shipping", 0): 700}, "the lag is read")


async def test_what_happens_while_offsets_are_read_counts(brokers: Brokers, store: WatchedStore) -> None:
    await (await brokers.start()).commit("billing", 100, 200, 300)
    store.may_read.clear()
    broker = await brokers.start()
    await until(lambda: store.read, "a read is in flight")
    await broker.commit("billing", 150)
    await broker.coordinator.delete_offsets("billing", [(TOPIC, 1)])
    store.may_read.set()
    await until(lambda: ("billing", 2) in broker.samples(), "the lag is read")
    assert broker.samples() == {("billing", 0): 850, ("billing", 2): 700}


async def test_a_group_that_goes_while_it_is_read_does_not_come_back(
    brokers: Brokers, store: WatchedStore
) -> None:
    first = await brokers.start()
    await first.commit("billing", 100)
    await first.commit("shipping", 300)
    await first.commit("reporting", 500)
    store.may_read.clear()
    broker = await brokers.start()
    await until(lambda: store.read, "a read is in flight")
    group_id = next(
        one for one in ("billing", "shipping", "reporting") if keys.group_offsets(one) in store.read
    )
    deleting = asyncio.create_task(broker.coordinator.delete(group_id))
    await until(lambda: len(store.read) > 1, "the deletion reads as well")
    store.may_read.set()
    assert await deleting is ErrorCode.NONE
    await until(lambda: broker.lag.series_count == 2, "the others are read")
    assert (group_id, 0) not in broker.samples()


async def test_a_shard_that_is_lost_while_it_is_read_leaves_nothing(
    brokers: Brokers, store: WatchedStore
) -> None:
    await (await brokers.start()).commit("billing", 100)
    store.may_read.clear()
    broker = await brokers.start()
    await until(lambda: store.read, "a read is in flight")
    after = await brokers.start()
    with pytest.raises(KafkaError):
        await broker.commit("billing", 200)
    store.may_read.set()
    await until(lambda: after.samples() == {("billing", 0): 900}, "the next broker has read")
    assert broker.lag.series_count == 0


async def test_reading_ends_when_nothing_more_would_be_counted(brokers: Brokers, store: WatchedStore) -> None:
    first = await brokers.start()
    for number in range(10):
        await first.commit(f"group-{number}", 100)
    broker = await brokers.start(max_series=2)
    await until(lambda: broker.lag.omitted_count == 2, "the limit is reached")
    for _ in range(100):
        await asyncio.sleep(0)
    assert broker.lag.series_count == 2
    assert len(store.read) == 4


async def test_groups_with_members_are_read_first(brokers: Brokers, store: WatchedStore) -> None:
    first = await brokers.start()
    for number in range(10):
        await first.commit(f"idle-{number}", 100)
    await first.commit("busy", 100)
    member = MemberRecord(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocols=(("range", b""),),
        assignment=b"",
    )
    record = GroupRecord(
        generation=1,
        state_since_ms=NOW_MS,
        protocol_type="consumer",
        protocol_name="range",
        leader="m",
        members=(member,),
    )
    await store.transact([], [Put(keys.group("busy"), encode_group_record(record))])
    broker = await brokers.start(max_series=1)
    await until(lambda: broker.lag.is_full, "the limit is reached")
    assert broker.samples() == {("busy", 0): 900}


async def test_a_store_that_is_away_is_asked_again(brokers: Brokers, store: WatchedStore) -> None:
    broker = await brokers.start()
    await broker.commit("billing", 100)
    broker.lag.remove_group("billing")
    store.failures = 2
    seeding = LagSeeding(broker.lag, store, retry_delay_sec=0)
    seeding.add([broker.shards.shard("billing")])
    await until(lambda: broker.samples() == {("billing", 0): 900}, "the lag is read")
    assert len(store.read) == 3
    await seeding.close()


async def test_unreadable_offsets_do_not_block_seeding_of_others(
    brokers: Brokers, store: WatchedStore
) -> None:
    broker = await brokers.start()
    await broker.commit("broken", 100)
    await broker.commit("billing", 100)
    for group_id in ("broken", "billing"):
        broker.lag.remove_group(group_id)
    await store.transact([], [Put(keys.group_offset("broken", TOPIC, 0), b"?")])
    seeding = LagSeeding(broker.lag, store)
    seeding.add([broker.shards.shard("broken")])
    seeding.add([broker.shards.shard("billing")])
    await until(lambda: broker.samples() == {("billing", 0): 900}, "the lag is read")
    await seeding.close()


async def test_foreign_key_in_a_group_hides_no_lag(brokers: Brokers, store: WatchedStore) -> None:
    broker = await brokers.start()
    await broker.commit("billing", 100)
    broker.lag.remove_group("billing")
    await store.transact([], [Put(keys.group_offsets("billing") + "foreign", b"?")])
    seeding = LagSeeding(broker.lag, store)
    seeding.add([broker.shards.shard("billing")])
    await until(lambda: broker.samples() == {("billing", 0): 900}, "the lag is read")
    await seeding.close()


async def test_a_stop_ends_the_reading(brokers: Brokers, store: WatchedStore) -> None:
    await (await brokers.start()).commit("billing", 100)
    store.may_read.clear()
    broker = await brokers.start()
    await until(lambda: store.read, "a read is in flight")
    await asyncio.wait_for(broker.shards.close(), 5)
    assert "consumer lag" not in {task.get_name() for task in asyncio.all_tasks()}
