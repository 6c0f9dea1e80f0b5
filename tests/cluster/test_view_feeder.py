"""The feeder: the view follows the store, over broken watches and to the end on what it cannot read."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.cluster.view import PREFIXES, ClusterView
from kafscale.cluster.view_feeder import ClusterViewFeeder
from kafscale.errors import StoreUnavailableError, UnknownFormatVersionError
from kafscale.formats.features import (
    LARGE_SEGMENTS_LEVEL,
    LEGACY_LEVEL,
    SEGMENT_FORMAT,
    decode_level,
    encode_level,
)
from kafscale.formats.topic_record import (
    decode_broker_record,
    decode_leader_record,
    decode_topic_record,
    encode_broker_record,
    encode_leader_record,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.model import BrokerRecord, LeaderRecord, TopicRecord, TopicState
from kafscale.metadata.store import Changes, Delete, Operation, Put, Snapshot

NAMES = ("a", "b", "c")

operations = st.one_of(
    st.builds(
        lambda name, number, count, state: Put(
            keys.topic(name),
            encode_topic_record(
                TopicRecord(
                    name=name,
                    # Ids are never shared by two names.
                    topic_id=uuid.UUID(int=10 * NAMES.index(name) + number),
                    partition_count=count,
                    state=state,
                    deleting_broker_id=0 if state is TopicState.DELETING else -1,
                )
            ),
        ),
        st.sampled_from(NAMES),
        st.integers(1, 3),
        st.integers(1, 3),
        st.sampled_from(TopicState),
    ),
    st.builds(lambda name: Delete(keys.topic(name)), st.sampled_from(NAMES)),
    st.builds(
        lambda name, index, broker, epoch: Put(
            keys.leader(name, index),
            encode_leader_record(LeaderRecord(broker_id=broker, leader_epoch=epoch)),
        ),
        st.sampled_from(NAMES),
        st.integers(0, 2),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    st.builds(
        lambda name, index: Delete(keys.leader(name, index)), st.sampled_from(NAMES), st.integers(0, 2)
    ),
    st.builds(
        lambda broker, host: Put(
            keys.broker(broker), encode_broker_record(BrokerRecord(broker_id=broker, host=host, port=1))
        ),
        st.integers(0, 2),
        st.sampled_from(("x", "y")),
    ),
    st.builds(lambda broker: Delete(keys.broker(broker)), st.integers(0, 2)),
    st.builds(
        lambda level: Put(keys.feature(SEGMENT_FORMAT), encode_level(level)),
        st.integers(LEGACY_LEVEL, LARGE_SEGMENTS_LEVEL),
    ),
    st.builds(lambda: Delete(keys.feature(SEGMENT_FORMAT))),
)
TOGGLE = "break or mend the watches"


class BreakingStore(MemoryStore):
    """A store whose watches can be broken and mended."""

    def __init__(self) -> None:
        super().__init__()
        self._broken = asyncio.Event()
        self._ended: dict[str, asyncio.Event] = {}

    async def toggle(self) -> None:
        """Break the watches, and return when each has failed; or let them work again."""
        if self._broken.is_set():
            self._broken.clear()
            return
        self._ended = {prefix: asyncio.Event() for prefix in PREFIXES}
        self._broken.set()
        for ended in self._ended.values():
            await ended.wait()

    async def mend(self) -> None:
        self._broken.clear()

    async def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        async with aclosing(super().watch(prefix)) as events:
            try:
                while True:
                    following = asyncio.ensure_future(anext(events))
                    breaking = asyncio.ensure_future(self._broken.wait())
                    try:
                        await asyncio.wait({following, breaking}, return_when=asyncio.FIRST_COMPLETED)
                        if breaking.done():
                            raise StoreUnavailableError("the watch broke")
                        yield following.result()
                    finally:
                        following.cancel()
                        breaking.cancel()
                        await asyncio.gather(following, breaking, return_exceptions=True)
            finally:
                if prefix in self._ended:
                    self._ended[prefix].set()


class Mirror:
    """The view that listeners can rebuild from what they receive."""

    def __init__(self, view: ClusterView) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.leaders: dict[tuple[str, int], LeaderRecord] = {}
        self.brokers: tuple[BrokerRecord, ...] = ()
        self._view = view
        view.subscribe(self._topic)
        view.subscribe_leaders(self._leader)
        view.subscribe_brokers(self._brokers)

    def _topic(self, before: TopicRecord | None, after: TopicRecord | None) -> None:
        if before is None:
            assert after is not None
            assert after.name not in self.topics
        else:
            assert self.topics.pop(before.name) == before
            assert after is None or after.topic_id == before.topic_id
        if after is not None:
            self.topics[after.name] = after

    def _leader(self, name: str, index: int, leader: LeaderRecord | None) -> None:
        if leader is None:
            del self.leaders[name, index]
        else:
            assert self.leaders.get((name, index)) != leader
            self.leaders[name, index] = leader

    def _brokers(self) -> None:
        assert self.brokers != self._view.brokers()
        self.brokers = self._view.brokers()


async def check_equal(store: MemoryStore, view: ClusterView, mirror: Mirror) -> None:
    """View, listeners and store agree."""
    topics = {
        item.key.removeprefix(keys.TOPICS): decode_topic_record(item.key, item.value)
        for item in (await store.range(keys.TOPICS)).items
    }
    assert {record.name: record for record in view.topics(include_deleting=True)} == topics
    assert [record.name for record in view.topics(include_deleting=True)] == sorted(topics)
    for record in topics.values():
        active = record if record.state is TopicState.ACTIVE else None
        assert view.topic(record.name) == view.topic_by_id(record.topic_id) == active
    leaders = {
        keys.topic_and_partition(item.key): decode_leader_record(item.key, item.value)
        for item in (await store.range(keys.LEADERS)).items
    }
    assert {
        (name, index): leader for name in NAMES for index, leader in view.leaders(name).items()
    } == leaders
    brokers = tuple(
        decode_broker_record(item.key, item.value) for item in (await store.range(keys.BROKERS)).items
    )
    assert view.brokers() == brokers
    features = {
        keys.feature_name(item.key): (decode_level(item.key, item.value), item.mod_revision)
        for item in (await store.range(keys.FEATURES)).items
    }
    assert view.finalized_features() == features
    assert (mirror.topics, mirror.leaders, mirror.brokers) == (topics, leaders, brokers)


@settings(max_examples=60)
@given(st.lists(st.one_of(operations, operations, operations, st.just(TOGGLE)), max_size=30))
async def test_the_view_equals_the_store(steps: list[Operation | str]) -> None:
    store = BreakingStore()
    view = ClusterView("cluster")
    mirror = Mirror(view)
    feeder = asyncio.create_task(ClusterViewFeeder(store, view, retry_delay_sec=0).run())
    await view.ready()
    for step in steps:
        if isinstance(step, str):
            await store.toggle()
        else:
            await store.transact([], [step])
    await store.mend()
    # One write under each prefix, which the view waits for, so that it has seen all before.
    for prefix, last in (
        (
            keys.TOPICS,
            Put(
                keys.topic("a"),
                encode_topic_record(TopicRecord(name="a", topic_id=uuid.UUID(int=9), partition_count=1)),
            ),
        ),
        (
            keys.LEADERS,
            Put(keys.leader("a", 0), encode_leader_record(LeaderRecord(broker_id=9, leader_epoch=9))),
        ),
        (
            keys.BROKERS,
            Put(keys.broker(1), encode_broker_record(BrokerRecord(broker_id=1, host="z", port=9))),
        ),
        (keys.FEATURES, Put(keys.feature(SEGMENT_FORMAT), encode_level(LARGE_SEGMENTS_LEVEL))),
    ):
        result = await store.transact([], [last])
        await view.wait_for(result.revision, prefix)
    await check_equal(store, view, mirror)
    feeder.cancel()
    await asyncio.gather(feeder, return_exceptions=True)
    await store.close()


async def test_what_changed_while_a_watch_was_broken_is_seen() -> None:
    store = BreakingStore()
    view = ClusterView("cluster")
    feeder = asyncio.create_task(ClusterViewFeeder(store, view, retry_delay_sec=0.001).run())
    record = TopicRecord(name="a", topic_id=uuid.UUID(int=1), partition_count=1)
    await store.transact([], [Put(keys.topic("a"), encode_topic_record(record))])
    await view.wait_until(lambda: view.topic("a") == record)
    await store.toggle()
    await store.transact([], [Delete(keys.topic("a"))])
    assert view.topic("a") == record
    await store.mend()
    await view.wait_until(lambda: view.topic("a") is None)
    feeder.cancel()
    await asyncio.gather(feeder, return_exceptions=True)


async def test_a_feature_level_of_a_newer_version_ends_the_feeder() -> None:
    store = MemoryStore()
    await store.transact([], [Put(keys.feature(SEGMENT_FORMAT), encode_level(99))])
    with pytest.raises(ExceptionGroup) as problems:
        await ClusterViewFeeder(store, ClusterView("cluster")).run()
    assert problems.group_contains(UnknownFormatVersionError, match="features/")
    assert store.watcher_count == 0
