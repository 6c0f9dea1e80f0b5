"""Partitions that another broker leads and clients read here: they keep up, and end when they should."""

import asyncio
import random
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from kafscale.cluster.topic_configs import effective
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.errors import CorruptDataError, StoreUnavailableError
from kafscale.formats.checkpoint import EMPTY_CHECKPOINT
from kafscale.formats.partition_record import (
    JournalPosition,
    PartitionRecord,
    SegmentReference,
    encode_partition_record,
)
from kafscale.formats.partition_transactions import (
    NO_TRANSACTIONS,
    BatchKind,
    TransactionEvent,
    after_events,
    without_aborted_below,
)
from kafscale.log import partition_log
from kafscale.log.followed_partitions import FollowedPartitions
from kafscale.log.journal.followed_journal import JournalReader
from kafscale.log.partition import NOT_LED, SIZE_UNKNOWN, Partition, PartitionId
from kafscale.log.partition_factory import append_rules
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Changes, Delete, Put, Snapshot
from kafscale.objects.memory_store import MemoryStore as MemoryObjects
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.broker import Settings
from tests.log.brokers import AN_HOUR_MS, NAMESPACE, BrokerParts, Cluster, cluster_scenario
from tests.support.faults import Away, CountingStore, Fault, Fuse, FusedMetadataStore
from tests.support.owners import lead_elsewhere
from tests.support.virtual_time import run_virtually
from tests.support.waiting import PATIENCE_MS

TOPIC = "orders"
KEY = keys.partition(TOPIC, 0)
IDLE_SEC = 60.0


class Listener:
    """Records the notifications of a waiter."""

    def __init__(self) -> None:
        self.heard: list[int | str] = []

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        self.heard.append(size_bytes)

    def closed(self) -> None:
        self.heard.append("closed")


class StableListener(Listener):
    """Records also how much of it is stable."""

    def __init__(self) -> None:
        super().__init__()
        self.heard_stable: list[tuple[int, int]] = []

    def grown(self, size_bytes: int, stable_bytes: int) -> None:
        self.heard_stable.append((size_bytes, stable_bytes))


def segment(number: int, size_bytes: int = 100) -> SegmentReference:
    """One of ten records."""
    return SegmentReference(
        base_offset=10 * number,
        last_offset=10 * number + 9,
        record_count=10,
        leader_epoch=0,
        size_bytes=size_bytes,
        max_timestamp_ms=0,
    )


def record_with(*segments: SegmentReference, **fields: Any) -> PartitionRecord:
    """A record whose newest segments these are."""
    end = segments[-1].last_offset + 1 if segments else 0
    return PartitionRecord(leader_epoch=0, log_end_offset=end, segments=segments, **fields)


async def write(store: MemoryStore, record: PartitionRecord) -> None:
    await store.transact([], [Put(KEY, encode_partition_record(record))])


def make(topic: str, index: int, record: PartitionRecord, revision: int) -> Partition | None:
    if topic != TOPIC:
        return None
    config = effective({}, Settings())
    return Partition(PartitionId(topic, index), 0, record, revision, config, append_rules(config), NOT_LED)


def always(_: Partition) -> bool:
    return True


def no_journals() -> JournalReader:
    """An object store without entries."""
    return MemoryObjects(lambda: 0), NAMESPACE, StoreRetries(random.Random(0))


def ends(partition: Partition) -> list[int]:
    assert partition.references is not None
    return [reference.last_offset + 1 for reference in partition.references]


Scenario = Callable[[MemoryStore, FollowedPartitions], Awaitable[None]]


def played(scenario: Scenario) -> None:
    """Play it in virtual time; neither a task nor a watch may be left."""

    async def play() -> None:
        store = MemoryStore()
        followed = FollowedPartitions(store, make, always, no_journals(), IDLE_SEC)
        await scenario(store, followed)
        await followed.close()
        assert len(followed) == 0
        await asyncio.sleep(0)
        assert store.watcher_count == 0
        assert asyncio.all_tasks() == {asyncio.current_task()}
        await store.close()

    run_virtually(play())


async def begin(store: MemoryStore, followed: FollowedPartitions, record: PartitionRecord) -> Partition:
    """Follow a partition whose references are complete."""
    await write(store, record)
    partition = await followed.follow(TOPIC, 0)
    assert partition is not None
    partition.load(EMPTY_CHECKPOINT)
    await asyncio.sleep(0.1)
    return partition


# --- keeping up


def test_publications_of_the_leader_are_seen_and_notified() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        partition = await begin(store, followed, record_with(segment(0)))
        assert (partition.is_led, partition.log, partition.high_watermark) == (False, None, 10)
        listener = Listener()
        partition.listen(listener)
        await write(store, record_with(segment(0), segment(1, 70)))
        await asyncio.sleep(0.1)
        assert partition.high_watermark == 20
        assert listener.heard == [70]
        await write(store, record_with(segment(0), segment(1), segment(2, 30), segment(3, 5)))
        await asyncio.sleep(0.1)
        assert ends(partition) == [10, 20, 30, 40]
        assert listener.heard == [70, 35]
        found = await store.get(KEY)
        assert found is not None
        assert partition.revision == found.mod_revision
        assert followed.get(TOPIC, 0) is partition

    played(scenario)


def test_a_raised_log_start_is_seen_and_notifies_no_listener() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        partition = await begin(store, followed, record_with(segment(0), segment(1)))
        listener = Listener()
        partition.listen(listener)
        await write(store, record_with(segment(1), log_start_offset=12))
        await asyncio.sleep(0.1)
        assert partition.record.log_start_offset == 12
        assert ends(partition) == [20]
        assert listener.heard == []

    played(scenario)


def test_an_older_record_changes_nothing() -> None:
    partition = make(TOPIC, 0, record_with(segment(0)), 7)
    assert partition is not None
    partition.load(EMPTY_CHECKPOINT)
    partition.follow(record_with(segment(0), segment(1)), 7)
    partition.follow(record_with(), 6)
    assert (partition.high_watermark, partition.revision) == (10, 7)
    assert ends(partition) == [10]


@pytest.mark.parametrize(
    ("newest", "checkpoint_end", "complete", "heard"),
    [
        ([1, 2], 0, True, 200),
        ([1, 2], 10, True, 200),  # the checkpoint covers what is known already
        # What is between the known end and the checkpoint's is in the checkpoint only.
        ([2, 3], 20, False, SIZE_UNKNOWN),
        ([3], 30, False, SIZE_UNKNOWN),
        ([], 40, False, SIZE_UNKNOWN),
    ],
)
def test_a_checkpoint_that_covers_what_was_missed_must_be_read(
    newest: list[int], checkpoint_end: int, complete: bool, heard: int
) -> None:
    partition = make(TOPIC, 0, record_with(segment(0)), 1)
    assert partition is not None
    partition.load(EMPTY_CHECKPOINT)
    listener = Listener()
    partition.listen(listener)
    record = replace(
        record_with(*map(segment, newest)),
        log_end_offset=max(checkpoint_end, 10 * (newest[-1] + 1) if newest else 0),
        checkpoint_key="checkpoint" if checkpoint_end else "",
        checkpoint_end_offset=checkpoint_end,
    )
    partition.follow(record, 2)
    assert (partition.references is not None) == complete
    if complete:
        assert ends(partition) == [10, 20, 30]
    assert listener.heard == [heard], "who waits is told all the same"


def test_segment_that_begins_below_the_known_end_wakes_waiters() -> None:
    """Its leader has merged the newest records with others before they were heard of here."""
    partition = follower_of(record_with(segment(0), segment(1)))
    listener = Listener()
    partition.listen(listener)
    merged = segment(1, 200)._replace(last_offset=29, record_count=20)
    partition.follow(record_with(segment(0), merged), 2)
    assert (partition.high_watermark, partition.references) == (30, None)
    assert listener.heard == [200]


def test_waiter_that_fails_keeps_nobody_else_waiting(caplog: pytest.LogCaptureFixture) -> None:
    """It is neither the flush's fault, nor that of who reads the leader's journal."""

    class Broken(Listener):
        def grown(self, size_bytes: int, stable_bytes: int) -> None:
            raise RuntimeError("a defect")

    partition = follower_of(record_with(segment(0)))
    sound = Listener()
    for listener in (Broken(), sound):
        partition.listen(listener)
    partition.follow(record_with(segment(0), segment(1)), 2)
    assert sound.heard == [100]
    assert "could not wake who waits" in caplog.text


def test_records_that_came_and_went_wake_waiters() -> None:
    """The retention was as quick: who waits must learn that its offset is out of range."""
    partition = follower_of(record_with(segment(0)))
    listener = StableListener()
    partition.listen(listener)
    partition.follow(PartitionRecord(leader_epoch=0, log_start_offset=20, log_end_offset=20), 2)
    assert ends(partition) == []
    assert listener.heard_stable == [(SIZE_UNKNOWN, SIZE_UNKNOWN)]


POSITION = JournalPosition(journal_id="j", sequence=0, topic_id=uuid.UUID(int=1))


def began(producer_id: int, offset: int) -> TransactionEvent:
    return TransactionEvent(BatchKind.TRANSACTIONAL, producer_id, 0, offset)


def aborted(producer_id: int, offset: int) -> TransactionEvent:
    return TransactionEvent(BatchKind.ABORT, producer_id, 0, offset)


def follower_of(record: PartitionRecord) -> Partition:
    partition = make(TOPIC, 0, record, 1)
    assert partition is not None
    partition.load(EMPTY_CHECKPOINT)
    return partition


def test_transactions_that_are_ahead_of_a_record_stay_known() -> None:
    """The leader stored it while its journal went on; the record's checkpoint has the first aborted one."""
    partition = follower_of(record_with(segment(0), journal=POSITION))
    assert partition.follow_slice(segment(1), 1, [began(1, 10), began(2, 12), aborted(1, 15)])
    in_the_record = partition.record
    assert partition.follow_slice(segment(2), 2, [aborted(2, 20), began(3, 24)])
    stored = replace(
        in_the_record,
        checkpoint_key="checkpoint",
        transactions=without_aborted_below(in_the_record.transactions, 20),
    )
    partition.follow(stored, 2)
    assert (partition.high_watermark, partition.last_stable_offset) == (30, 24)
    assert partition.record.transactions.aborted_from == 20
    assert [one.producer_id for one in partition.record.transactions.aborted] == [2]
    assert partition.aborted is not None
    assert [(one.producer_id, one.first_offset) for one in partition.aborted] == [(1, 10), (2, 12)]


@pytest.mark.parametrize(("known_end", "complete"), [(10, False), (20, True)])
def test_a_checkpoint_with_aborted_transactions_must_be_read(known_end: int, complete: bool) -> None:
    """It has no segments, as they are slices still; but the record does not name what was aborted any more."""
    events = [began(1, 10), aborted(1, 15)]
    transactions = without_aborted_below(after_events(NO_TRANSACTIONS, events), 20)
    partition = follower_of(record_with(segment(0), journal=POSITION))
    if known_end == 20:
        assert partition.follow_slice(segment(1), 1, events)
    record = record_with(
        segment(0), segment(1), journal=POSITION, checkpoint_key="checkpoint", transactions=transactions
    )
    partition.follow(record, 2)
    assert (partition.references is not None) == (partition.aborted is not None) == complete
    assert (partition.high_watermark, partition.last_stable_offset) == (20, 20)


def test_listeners_hear_what_is_newly_stable() -> None:
    partition = follower_of(record_with(segment(0), journal=POSITION))
    listener = StableListener()
    partition.listen(listener)
    slices: list[tuple[int, list[TransactionEvent]]] = [
        (100, []),
        (70, [began(1, 20)]),
        (50, [began(2, 30)]),
        (30, [aborted(1, 41)]),
        (20, [aborted(2, 59)]),
        (10, []),
    ]
    for number, (size_bytes, events) in enumerate(slices, 1):
        assert partition.follow_slice(segment(number, size_bytes), number, events) == size_bytes
        partition.notify_grown(size_bytes)
    assert listener.heard_stable == [(100, 100), (70, 0), (50, 0), (30, 70), (20, 50 + 30 + 20), (10, 10)]


def test_many_who_ask_at_once_cause_one_read_and_one_watch() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        await write(store, record_with(segment(0)))
        counting = CountingStore(store)
        followed._store = counting
        partitions = await asyncio.gather(*(followed.follow(TOPIC, 0) for _ in range(20)))
        assert len(set(map(id, partitions))) == 1
        await asyncio.sleep(0.1)
        assert await followed.follow(TOPIC, 0) is partitions[0]
        assert counting.calls == {"get": 1}
        assert store.watcher_count == 1
        assert list(followed) == [partitions[0]]

    played(scenario)


# --- what cannot be followed


def test_what_is_not_there_is_not_followed() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        assert await followed.follow(TOPIC, 0) is None
        await store.transact(
            [], [Put(keys.partition("unknown", 0), encode_partition_record(record_with(segment(0))))]
        )
        assert await followed.follow("unknown", 0) is None
        assert followed.get("unknown", 0) is None
        assert len(followed) == 0

    played(scenario)


def test_a_failed_follow_raises_and_the_next_starts_again() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        await store.transact([], [Put(KEY, b"not a record")])
        followed._store = FusedMetadataStore(store, Fuse(1, Fault.UNAVAILABLE))
        outcomes = await asyncio.gather(
            *(followed.follow(TOPIC, 0) for _ in range(3)), return_exceptions=True
        )
        assert [type(one) for one in outcomes] == [StoreUnavailableError] * 3
        with pytest.raises(CorruptDataError, match=KEY):
            await followed.follow(TOPIC, 0)
        await write(store, record_with(segment(0)))
        assert await followed.follow(TOPIC, 0) is not None

    played(scenario)


# --- the end


def test_a_partition_that_is_deleted_is_followed_no_longer() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        partition = await begin(store, followed, record_with(segment(0)))
        listener = Listener()
        partition.listen(listener)
        await store.transact([], [Delete(KEY)])
        await asyncio.sleep(0.1)
        assert listener.heard == ["closed"]
        assert followed.get(TOPIC, 0) is None
        assert store.watcher_count == 0

    played(scenario)


def test_a_partition_that_comes_back_is_another_one() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        before = await begin(store, followed, record_with(segment(0), segment(1)))
        await store.transact([], [Delete(KEY)])
        await write(store, record_with(segment(0)))
        await asyncio.sleep(0.1)
        after = await followed.follow(TOPIC, 0)
        assert after is not None
        assert after is not before
        assert after.high_watermark == 10

    played(scenario)


def test_a_partition_recreated_within_one_event_is_another_one() -> None:
    """The watcher was behind: the new log may end above the old one, and none of its segments is the old one's."""

    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        before = await begin(store, followed, record_with(segment(0)))
        listener = Listener()
        before.listen(listener)
        # Nothing lets the watcher run between these.
        delete = store.transact([], [Delete(KEY)])
        put = write(store, record_with(segment(0, 7), segment(1, 7)))
        await asyncio.gather(delete, put)
        await asyncio.sleep(0.1)
        assert listener.heard == ["closed"]
        after = await followed.follow(TOPIC, 0)
        assert after is not before

    played(scenario)


def test_a_log_that_is_shorter_than_it_was_is_another_one() -> None:
    """A watch that broke begins with a snapshot, which does not show that the record was deleted meanwhile."""

    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        before = await begin(store, followed, record_with(segment(0), segment(1)))
        listener = Listener()
        before.listen(listener)
        # Epochs go on under a name.
        await write(store, replace(record_with(segment(0, 7)), leader_epoch=1))
        await asyncio.sleep(0.1)
        assert listener.heard == ["closed"]
        after = await followed.follow(TOPIC, 0)
        assert after is not None and after is not before
        assert after.high_watermark == 10

    played(scenario)


def test_idle_partitions_are_removed_and_read_ones_stay() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        record = encode_partition_record(record_with(segment(0)))
        await store.transact([], [Put(keys.partition(TOPIC, index), record) for index in range(3)])
        idle, asked_for, waited_for = [await followed.follow(TOPIC, index) for index in range(3)]
        assert idle is not None
        assert waited_for is not None
        listener = Listener()
        idle.listen(listener)
        idle.forget(listener)
        waited_for.listen(listener)
        for _ in range(8):
            await asyncio.sleep(IDLE_SEC / 4)
            assert followed.get(TOPIC, 1) is asked_for
        assert list(followed) == [asked_for, waited_for]
        assert listener.heard == []
        assert store.watcher_count == 2
        waited_for.forget(listener)
        await asyncio.sleep(2 * IDLE_SEC)
        assert len(followed) == 0
        assert store.watcher_count == 0
        # And it begins again for the next reader.
        assert await followed.follow(TOPIC, 0) is not None
        await asyncio.sleep(2 * IDLE_SEC)
        assert len(followed) == 0

    played(scenario)


def test_the_partitions_of_one_topic_are_dropped_together() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        record = encode_partition_record(record_with(segment(0)))
        await store.transact([], [Put(keys.partition(TOPIC, index), record) for index in range(3)])
        listeners = []
        for index in range(3):
            partition = await followed.follow(TOPIC, index)
            assert partition is not None
            listeners.append(Listener())
            partition.listen(listeners[-1])
        followed.drop_topic("another")
        assert len(followed) == 3
        followed.drop_topic(TOPIC)
        assert len(followed) == 0
        assert [listener.heard for listener in listeners] == [["closed"]] * 3

    played(scenario)


def test_closing_ends_what_is_about_to_begin_as_well() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        record = encode_partition_record(record_with(segment(0)))
        await store.transact([], [Put(keys.partition(TOPIC, index), record) for index in range(5)])
        await followed.follow(TOPIC, 0)
        beginnings = []
        for index in range(1, 5):
            beginnings.append(asyncio.create_task(followed.follow(TOPIC, index)))
            await asyncio.sleep(0)
        await followed.close()
        await asyncio.gather(*beginnings, return_exceptions=True)
        await asyncio.sleep(1)
        assert len(followed) == 0
        assert store.watcher_count == 0

    played(scenario)


# --- watches that break


class BreakingStore(MemoryStore):
    """Its watches break while `broken` is set, and do not report the events that they miss."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = asyncio.Event()

    async def watch_key(self, key: str) -> AsyncGenerator[Snapshot | Changes, None]:
        events = super().watch_key(key)
        try:
            while True:
                following = asyncio.ensure_future(anext(events))
                breaking = asyncio.ensure_future(self.broken.wait())
                await asyncio.wait({following, breaking}, return_when=asyncio.FIRST_COMPLETED)
                breaking.cancel()
                if self.broken.is_set():
                    following.cancel()
                    await asyncio.gather(following, return_exceptions=True)
                    raise StoreUnavailableError("the watch broke")
                yield following.result()
        finally:
            await asyncio.gather(events.aclose(), return_exceptions=True)


def test_a_broken_watch_is_restarted_and_misses_nothing() -> None:
    async def play() -> None:
        store = BreakingStore()
        followed = FollowedPartitions(store, make, always, no_journals(), IDLE_SEC)
        partition = await begin(store, followed, record_with(segment(0)))
        listener = Listener()
        partition.listen(listener)
        store.broken.set()
        await asyncio.sleep(5)
        await write(store, record_with(segment(0), segment(1)))
        await write(store, record_with(segment(0), segment(1), segment(2)))
        await asyncio.sleep(5)
        assert partition.high_watermark == 10
        assert followed.get(TOPIC, 0) is partition, "what is known can be read meanwhile"
        store.broken.clear()
        await asyncio.sleep(2)
        assert partition.high_watermark == 30
        assert ends(partition) == [10, 20, 30]
        assert listener.heard == [200]
        store.broken.set()
        await store.transact([], [Delete(KEY)])
        store.broken.clear()
        await asyncio.sleep(2)
        assert listener.heard == [200, "closed"]
        await followed.close()
        await store.close()

    run_virtually(play())


def test_a_bad_record_ends_following_until_it_is_replaced() -> None:
    async def scenario(store: MemoryStore, followed: FollowedPartitions) -> None:
        partition = await begin(store, followed, record_with(segment(0)))
        listener = Listener()
        partition.listen(listener)
        await store.transact([], [Put(KEY, b"not a record")])
        await asyncio.sleep(0.1)
        assert listener.heard == ["closed"]
        with pytest.raises(CorruptDataError):
            await followed.follow(TOPIC, 0)
        await write(store, record_with(segment(0), segment(1)))
        again = await followed.follow(TOPIC, 0)
        assert again is not None
        assert again.high_watermark == 20

    played(scenario)


# --- beside brokers that lead


async def leader_and_reader(cluster: Cluster) -> tuple[BrokerParts, BrokerParts, int]:
    """Two brokers and a partition that the first one of them leads."""
    leader, reader = await cluster.start(1, 2)
    await cluster.create_topic(TOPIC, 2)
    ((_, index),) = leader.led()
    return leader, reader, index


async def followed_by(reader: BrokerParts, index: int) -> Partition:
    partition = await reader.logs.follow(TOPIC, index)
    assert partition is not None
    return partition


@cluster_scenario()
async def test_a_partition_that_is_led_is_not_followed(cluster: Cluster) -> None:
    leader, reader, index = await leader_and_reader(cluster)
    assert await leader.logs.follow(TOPIC, index) is leader.partition(TOPIC, index)
    assert reader.logs.readable(TOPIC, index) is None
    partition = await followed_by(reader, index)
    assert reader.logs.readable(TOPIC, index) is partition
    assert reader.logs.partition(TOPIC, index) is None
    assert (reader.logs.followed_count, leader.logs.followed_count) == (1, 0)
    assert await reader.logs.follow("unknown", 0) is None
    assert await reader.logs.follow(TOPIC, 7) is None
    assert await leader.produce(TOPIC, index, b"x") == 0
    await cluster.settle()
    assert partition.high_watermark == 1


@cluster_scenario()
async def test_a_reader_has_every_segment_however_late_or_far_behind(cluster: Cluster) -> None:
    leader, reader, index = await leader_and_reader(cluster)
    early = await followed_by(reader, index)
    await reader.logs.load(early)
    partition = leader.partition(TOPIC, index)
    checkpoints = set()
    for number in range(3 * partition_log.CHECKPOINT_SEGMENTS):
        assert await leader.produce_segment(TOPIC, index, b"%d" % number) == number
        checkpoints.add(partition.record.checkpoint_key)
        if number % 97 == 0:
            await reader.logs.load(early)
    assert len(checkpoints) > 2
    await cluster.settle()
    late = cluster.broker(3)
    feeding = asyncio.create_task(ClusterViewFeeder(cluster.metadata, late.view).run())
    await late.view.ready()
    for broker in (reader, late):
        followed = await followed_by(broker, index)
        await broker.logs.load(followed)
        assert followed.references is not None
        assert partition.references is not None
        # Slices that it knows serve it as well as what they were sealed into.
        assert ends(followed) == ends(partition)
        assert followed.record.log_end_offset == partition.record.log_end_offset
    feeding.cancel()
    await asyncio.gather(feeding, return_exceptions=True)


@cluster_scenario()
async def test_a_reader_of_a_deleted_checkpoint_reads_the_record_again(cluster: Cluster) -> None:
    leader, reader, index = await leader_and_reader(cluster)
    for number in range(partition_log.CHECKPOINT_SEGMENTS + 5):
        await leader.produce_segment(TOPIC, index, b"%d" % number)
    partition = leader.partition(TOPIC, index)
    old = partition.record
    assert old.checkpoint_key
    for number in range(partition_log.CHECKPOINT_SEGMENTS + 5):
        await leader.produce_segment(TOPIC, index, b"%d" % number)
    assert partition.record.checkpoint_key != old.checkpoint_key
    await cluster.objects.inner.delete([old.checkpoint_key])
    followed = await followed_by(reader, index)
    followed.record, followed.revision = old, followed.revision - 1  # its watch is behind
    await reader.logs.load(followed)
    assert followed.references is not None
    assert partition.references is not None
    assert list(followed.references) == list(partition.references)


@cluster_scenario()
async def test_an_elected_reader_notifies_waiters_and_keeps_its_cache(cluster: Cluster) -> None:
    leader, reader, index = await leader_and_reader(cluster)
    followed = await followed_by(reader, index)
    listener = Listener()
    followed.listen(listener)
    await leader.stop()
    await cluster.settle()
    led = reader.partition(TOPIC, index)
    assert reader.logs.readable(TOPIC, index) is led
    assert listener.heard == ["closed"]
    assert reader.logs.followed_count == 0
    assert led.number == followed.number
    # And the other way: who led follows.
    (back,) = await cluster.start(1)
    assert (TOPIC, index) in back.led()
    again = await followed_by(reader, index)
    assert not again.is_led
    assert again.number == led.number


@cluster_scenario()
async def test_topic_changes_apply_to_followed_partitions(cluster: Cluster) -> None:
    _, reader, index = await leader_and_reader(cluster)
    followed = await followed_by(reader, index)
    listener = Listener()
    followed.listen(listener)
    await reader.topics.alter_configs(
        TOPIC, lambda _: {"segment.bytes": str(1024 * 1024)}, timeout_ms=PATIENCE_MS
    )
    await cluster.settle()
    assert followed.rules.segment_bytes == 1024 * 1024
    await cluster.metadata.transact([], [Delete(keys.topic(TOPIC))])
    await cluster.settle()
    assert listener.heard == ["closed"]
    assert reader.logs.followed_count == 0


# --- offsets beyond the end


@cluster_scenario()
async def test_out_of_range_needs_the_agreement_of_the_store(cluster: Cluster) -> None:
    leader, reader, index = await leader_and_reader(cluster)
    followed = await followed_by(reader, index)
    await leader.produce(TOPIC, index, b"a", b"b")
    await cluster.settle()
    led = leader.partition(TOPIC, index)
    for broker, partition in ((leader, led), (reader, followed)):
        assert await broker.logs.stored.check_beyond_end(partition, 3) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await broker.logs.stored.check_beyond_end(partition, 10**9) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.high_watermark == 2


@cluster_scenario()
async def test_a_reader_catches_up_before_it_answers_out_of_range(cluster: Cluster) -> None:
    leader, reader, index = await leader_and_reader(cluster)
    followed = await followed_by(reader, index)
    # Its watches deliver nothing any more.
    reader.logs._followed._followed[TOPIC, index].task.cancel()
    reader.logs._followed._journals.detach(followed)
    await leader.produce(TOPIC, index, b"a", b"b")
    await cluster.settle()
    assert followed.high_watermark == 0
    assert await reader.logs.stored.check_beyond_end(followed, 2) is ErrorCode.NONE
    assert followed.high_watermark == 2


@cluster_scenario()
async def test_a_replaced_leader_sends_the_reader_elsewhere(cluster: Cluster) -> None:
    leader, _, index = await leader_and_reader(cluster)
    await leader.produce(TOPIC, index, b"a")
    partition = leader.partition(TOPIC, index)
    await lead_elsewhere(cluster.metadata, TOPIC, index)
    record = await cluster.record(TOPIC, index)
    await cluster.metadata.transact(
        [],
        [
            Put(
                keys.partition(TOPIC, index),
                encode_partition_record(replace(record, log_end_offset=50)),
            )
        ],
    )
    assert partition.is_led
    assert await leader.logs.stored.check_beyond_end(partition, 40) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # The next leader's journal may have more.
    assert await leader.logs.stored.check_beyond_end(partition, 51) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert partition.high_watermark == 1


@cluster_scenario(flush_interval_ms=AN_HOUR_MS)
async def test_a_missing_store_or_partition_is_not_out_of_range(cluster: Cluster) -> None:
    _, reader, index = await leader_and_reader(cluster)
    followed = await followed_by(reader, index)
    reader.logs._followed._store = FusedMetadataStore(cluster.metadata, Away())
    assert await reader.logs.stored.check_beyond_end(followed, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    reader.logs._followed._store = cluster.metadata
    await cluster.metadata.transact([], [Delete(keys.partition(TOPIC, index))])
    assert await reader.logs.stored.check_beyond_end(followed, 5) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
