"""The view: what it reads as, whom it tells, and who waits for it."""

import asyncio
import uuid

import pytest

from kafscale.cluster.view import PREFIXES, ClusterView
from kafscale.errors import UnknownFormatVersionError
from kafscale.formats.features import SEGMENT_FORMAT, encode_level
from kafscale.formats.topic_record import (
    encode_broker_record,
    encode_coordinator_record,
    encode_leader_record,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import (
    BrokerRecord,
    BrokerState,
    CoordinatorRecord,
    LeaderRecord,
    TopicRecord,
    TopicState,
)
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot


def topic(name: str, number: int = 1, **fields: object) -> TopicRecord:
    fields.setdefault("partition_count", 1)
    return TopicRecord(name=name, topic_id=uuid.UUID(int=number), **fields)  # type: ignore[arg-type]


def deleting(record: TopicRecord) -> TopicRecord:
    return TopicRecord(
        name=record.name,
        topic_id=record.topic_id,
        partition_count=record.partition_count,
        state=TopicState.DELETING,
        deleting_broker_id=0,
    )


def stored(record: TopicRecord | BrokerRecord) -> KeyValue:
    if isinstance(record, TopicRecord):
        return KeyValue(key=keys.topic(record.name), value=encode_topic_record(record), mod_revision=1)
    return KeyValue(key=keys.broker(record.broker_id), value=encode_broker_record(record), mod_revision=1)


def led(name: str, index: int, broker_id: int = 0, epoch: int = 0) -> KeyValue:
    leader = LeaderRecord(broker_id=broker_id, leader_epoch=epoch)
    return KeyValue(key=keys.leader(name, index), value=encode_leader_record(leader), mod_revision=1)


def snapshot(*items: KeyValue, revision: int = 1) -> Snapshot:
    return Snapshot(items=items, revision=revision)


def changes(*items: KeyValue | Delete, revision: int = 1) -> Changes:
    return Changes(puts_and_deletes=items, revision=revision)


def live(broker_id: int, host: str = "host", state: BrokerState = BrokerState.RUNNING) -> BrokerRecord:
    return BrokerRecord(broker_id=broker_id, host=host, port=9092, state=state)


@pytest.fixture
def view() -> ClusterView:
    return ClusterView("cluster")


def test_brokers_are_those_that_live(view: ClusterView) -> None:
    view.apply(keys.BROKERS, snapshot(stored(live(10)), stored(live(2))))
    assert [broker.broker_id for broker in view.brokers()] == [2, 10]
    view.apply(keys.BROKERS, changes(Delete(keys.broker(2))))
    assert view.broker(2) is None
    assert view.broker(10) == live(10)


def test_the_state_of_a_broker_decides_who_sees_it(view: ClusterView) -> None:
    starting, running, stopping = BrokerState
    view.apply(
        keys.BROKERS,
        snapshot(
            stored(live(1, state=starting)), stored(live(4, state=running)), stored(live(2, state=stopping))
        ),
    )
    assert [view.broker_state(broker_id) for broker_id in range(5)] == [
        None,
        starting,
        stopping,
        None,
        running,
    ]
    # Clients connect to those that run, and to those that stop, which may lead something yet.
    assert [broker.broker_id for broker in view.brokers()] == [2, 4]
    assert (view.broker(1), view.broker(2), view.broker(4)) == (
        None,
        live(2, state=stopping),
        live(4, state=running),
    )
    # Nothing new is given to one that stops, nor to one that starts; that one takes what nobody holds.
    assert [broker.broker_id for broker in view.brokers_to_read_from()] == [4]
    assert view.brokers_to_prefer(4) == view.brokers_to_prefer(2) == view.brokers_to_prefer(9) == (4,)
    assert view.brokers_to_prefer(1) == (1, 4)


def test_listeners_receive_the_state_of_a_broker(view: ClusterView) -> None:
    heard: list[tuple[int, ...]] = []
    view.subscribe_brokers(lambda: heard.append(view.brokers_to_prefer(0)))
    for state in BrokerState:
        for _ in range(2):
            view.apply(keys.BROKERS, changes(stored(live(3, state=state))))
    view.apply(keys.BROKERS, changes(Delete(keys.broker(3)), Delete(keys.broker(4))))
    assert heard == [(), (3,), (), ()]


def test_topics_by_name_by_id_and_in_order(view: ClusterView) -> None:
    first, second = topic("b", 1), topic("a", 2)
    view.apply(keys.TOPICS, snapshot(stored(first)))
    assert list(view.topics()) == [first]
    view.apply(keys.TOPICS, changes(stored(second)))
    assert list(view.topics()) == [second, first]
    assert view.topic("b") == first
    assert view.topic_by_id(second.topic_id) == second
    assert view.topic("c") is None
    assert view.topic_by_id(uuid.UUID(int=9)) is None


def test_names_that_collide_are_found_without_a_walk(view: ClusterView) -> None:
    first, second, third = topic("a.b_c", 1), deleting(topic("a_b.c", 2)), topic("a.b-c", 3)
    view.apply(keys.TOPICS, snapshot(stored(first), stored(second), stored(third)))
    assert sorted(view.names_like("a_b_c")) == ["a.b_c", "a_b.c"]
    assert list(view.names_like("a_b-c")) == ["a.b-c"]
    view.apply(keys.TOPICS, changes(Delete(keys.topic("a_b.c"))))
    assert list(view.names_like("a.b.c")) == ["a.b_c"]
    view.apply(keys.TOPICS, changes(Delete(keys.topic("a.b_c"))))
    assert list(view.names_like("a.b.c")) == []


def test_topic_being_deleted_is_shown_only_on_request(view: ClusterView) -> None:
    record = deleting(topic("t"))
    view.apply(keys.TOPICS, snapshot(stored(record)))
    assert view.topic("t") is None
    assert view.topic_by_id(record.topic_id) is None
    assert list(view.topics()) == []
    assert view.topic("t", include_deleting=True) == record
    assert list(view.topics(include_deleting=True)) == [record]


def test_leaders(view: ClusterView) -> None:
    view.apply(keys.LEADERS, snapshot(led("t", 0), led("t", 11, broker_id=3, epoch=5), led("u", 0)))
    assert view.leader("t", 11) == LeaderRecord(broker_id=3, leader_epoch=5)
    assert view.leader("t", 1) is None
    assert view.leader("v", 0) is None
    assert sorted(view.leaders("t")) == [0, 11]
    view.apply(keys.LEADERS, changes(Delete(keys.leader("t", 0)), Delete(keys.leader("t", 11))))
    assert view.leaders("t") == {}


def test_listeners_hear_of_topics(view: ClusterView) -> None:
    heard: list[tuple[TopicRecord | None, TopicRecord | None]] = []
    unsubscribe = view.subscribe(lambda before, after: heard.append((before, after)))
    first, grown, other = topic("t"), topic("t", partition_count=2), topic("t", 2)
    view.apply(keys.TOPICS, snapshot(stored(first)))
    view.apply(keys.TOPICS, changes(stored(first)))
    view.apply(keys.TOPICS, changes(stored(grown), Delete(keys.topic("unknown"))))
    assert heard == [(None, first), (first, grown)]
    heard.clear()
    view.apply(keys.TOPICS, changes(stored(other)))
    assert heard == [(grown, None), (None, other)]
    heard.clear()
    unsubscribe()
    view.apply(keys.TOPICS, changes(Delete(keys.topic("t"))))
    assert heard == []


def test_listeners_see_the_change_they_hear_of(view: ClusterView) -> None:
    seen: list[TopicRecord | None] = []
    view.subscribe(lambda before, after: seen.append(view.topic("t")))
    view.apply(keys.TOPICS, changes(stored(topic("t"))))
    view.apply(keys.TOPICS, changes(Delete(keys.topic("t"))))
    assert seen == [topic("t"), None]


def test_a_second_snapshot_notifies_of_differences_only(view: ClusterView) -> None:
    kept, gone, new = topic("kept", 1), topic("gone", 2), topic("new", 3)
    view.apply(keys.TOPICS, snapshot(stored(gone), stored(kept)))
    view.apply(keys.BROKERS, snapshot(stored(live(1)), stored(live(2))))
    view.apply(keys.LEADERS, snapshot(led("kept", 0), led("gone", 0)))
    topics: list[tuple[TopicRecord | None, TopicRecord | None]] = []
    leaders: list[tuple[str, int, LeaderRecord | None]] = []
    brokers: list[int] = []
    view.subscribe(lambda before, after: topics.append((before, after)))
    view.subscribe_leaders(lambda name, index, leader: leaders.append((name, index, leader)))
    view.subscribe_brokers(lambda: brokers.append(len(view.brokers())))
    view.apply(keys.TOPICS, snapshot(stored(kept), stored(new)))
    view.apply(keys.LEADERS, snapshot(led("kept", 0), led("new", 0)))
    view.apply(keys.BROKERS, snapshot(stored(live(1)), stored(live(2))))
    assert topics == [(gone, None), (None, new)]
    assert leaders == [("gone", 0, None), ("new", 0, LeaderRecord(broker_id=0, leader_epoch=0))]
    assert brokers == []
    view.apply(keys.BROKERS, snapshot(stored(live(2, "elsewhere"))))
    assert brokers == [1]


def coordinates(shard: int, broker_id: int) -> KeyValue:
    record = CoordinatorRecord(broker_id=broker_id, coordinator_epoch=0)
    value = encode_coordinator_record(record)
    return KeyValue(key=keys.coordinator(shard), value=value, mod_revision=1)


def test_a_shards_coordinator_comes_changes_and_goes(view: ClusterView) -> None:
    assert view.coordinator(7) is None
    view.apply(keys.COORDINATORS, snapshot(coordinates(7, 1), coordinates(63, 2)))
    assert (view.coordinator(7), view.coordinator(63), view.coordinator(0)) == (1, 2, None)
    view.apply(keys.COORDINATORS, changes(coordinates(7, 3), Delete(keys.coordinator(63))))
    assert (view.coordinator(7), view.coordinator(63)) == (3, None)
    view.apply(keys.COORDINATORS, snapshot(coordinates(63, 1)))
    assert (view.coordinator(7), view.coordinator(63)) == (None, 1)


def test_listeners_hear_of_coordinators(view: ClusterView) -> None:
    heard: list[tuple[int, int | None]] = []
    view.subscribe_coordinators(lambda shard: heard.append((shard, view.coordinator(shard))))
    view.apply(keys.COORDINATORS, snapshot(coordinates(7, 1), coordinates(63, 2)))
    view.apply(keys.COORDINATORS, changes(coordinates(7, 1), Delete(keys.coordinator(8))))
    view.apply(keys.COORDINATORS, changes(coordinates(7, 3)))
    view.apply(keys.COORDINATORS, snapshot(coordinates(7, 3)))
    assert heard == [(7, 1), (63, 2), (7, 3), (63, None)]


def test_partitions_without_a_leader_are_counted(view: ClusterView) -> None:
    view.apply(keys.BROKERS, snapshot(stored(live(1, state=BrokerState.STARTING)), stored(live(2))))
    view.apply(
        keys.TOPICS,
        snapshot(
            stored(topic("t", 1, partition_count=4)), stored(deleting(topic("gone", 2, partition_count=7)))
        ),
    )
    view.apply(keys.LEADERS, snapshot(led("t", 0), led("t", 3), led("not yet known", 0)))
    assert (view.offline_partition_count(), view.broker_count) == (2, 2)


def finalized(level: int, revision: int = 1) -> KeyValue:
    return KeyValue(key=keys.feature(SEGMENT_FORMAT), value=encode_level(level), mod_revision=revision)


def test_a_feature_is_at_level_1_until_another_one_is_finalized(view: ClusterView) -> None:
    assert view.feature_level(SEGMENT_FORMAT) == 1
    view.apply(keys.FEATURES, snapshot(revision=4))
    assert (view.feature_level(SEGMENT_FORMAT), dict(view.finalized_features())) == (1, {})
    view.apply(keys.FEATURES, changes(finalized(2, revision=9), revision=9))
    assert view.feature_level(SEGMENT_FORMAT) == 2
    # A snapshot is of a later revision than the level in it, which is what every broker is to tell alike.
    view.apply(keys.FEATURES, snapshot(finalized(2, revision=9), revision=50))
    assert view.finalized_features() == {SEGMENT_FORMAT: (2, 9)}
    view.apply(keys.FEATURES, snapshot(revision=60))
    assert view.feature_level(SEGMENT_FORMAT) == 1


@pytest.mark.parametrize(
    "feature", [finalized(3), KeyValue(key="features/a", value=encode_level(1), mod_revision=1)]
)
def test_unsupported_feature_level_ends_the_broker(view: ClusterView, feature: KeyValue) -> None:
    with pytest.raises(UnknownFormatVersionError, match=feature.key):
        view.apply(keys.FEATURES, snapshot(feature))


async def test_ready_once_everything_was_read(view: ClusterView) -> None:
    waiting = asyncio.create_task(view.ready())
    for prefix in PREFIXES:
        if prefix == keys.TOPICS:
            continue
        view.apply(prefix, snapshot())
        await asyncio.sleep(0)
        assert not waiting.done()
    view.apply(keys.TOPICS, snapshot())
    await waiting


async def test_a_writer_waits_for_its_own_write(view: ClusterView) -> None:
    view.apply(keys.TOPICS, snapshot(revision=3))
    await view.wait_for(3)
    waiting = asyncio.create_task(view.wait_for(5))
    await asyncio.sleep(0)
    view.apply(keys.LEADERS, snapshot(revision=9))
    view.apply(keys.TOPICS, changes(stored(topic("t")), revision=4))
    await asyncio.sleep(0)
    assert not waiting.done()
    view.apply(keys.TOPICS, changes(stored(topic("u", 2)), revision=6))
    await waiting


async def test_who_stops_waiting_leaves_nothing_behind(view: ClusterView) -> None:
    waiting = asyncio.create_task(view.wait_for(1))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert not view._waiters
