"""Records that cannot be read: the picture goes without them, tells of them, and has everything else."""

import logging
import uuid

import pytest

from kafscale.cluster.view import ClusterView
from kafscale.formats.features import LARGE_SEGMENTS_LEVEL, SEGMENT_FORMAT, encode_level
from kafscale.formats.topic_record import (
    encode_broker_record,
    encode_coordinator_record,
    encode_leader_record,
    encode_topic_record,
)
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, CoordinatorRecord, LeaderRecord, TopicRecord
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot

GOOD = TopicRecord(name="good", topic_id=uuid.UUID(int=1), partition_count=2)
OTHER = TopicRecord(name="other", topic_id=uuid.UUID(int=2), partition_count=2)
HUGE = TopicRecord(name="bad", topic_id=uuid.UUID(int=2), partition_count=10**12)
BROKER = BrokerRecord(broker_id=1, host="h", port=1)
LEADER = encode_leader_record(LeaderRecord(broker_id=1, leader_epoch=1))
COORDINATOR = encode_coordinator_record(CoordinatorRecord(broker_id=1, coordinator_epoch=1))


def item(key: str, value: bytes, revision: int = 1) -> KeyValue:
    return KeyValue(key=key, value=value, mod_revision=revision)


def snapshot(*items: KeyValue, revision: int = 1) -> Snapshot:
    return Snapshot(items=items, revision=revision)


def changes(*changed: KeyValue | Delete, revision: int = 1) -> Changes:
    return Changes(puts_and_deletes=changed, revision=revision)


@pytest.fixture
def view() -> ClusterView:
    return ClusterView("cluster")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xff\xfe", id="not text"),
        pytest.param(b"[]", id="not an object"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(b'{"version":2}', id="of a newer release"),
        pytest.param(encode_topic_record(OTHER), id="of another name"),
        pytest.param(encode_topic_record(HUGE), id="with too many partitions"),
        pytest.param(encode_topic_record(HUGE).replace(b"1000000000000", b"-1"), id="with fewer than none"),
    ],
)
def test_one_bad_topic_record_leaves_the_others_served(
    view: ClusterView, value: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    bad = item(keys.topic("bad"), value)
    view.apply(keys.TOPICS, snapshot(bad, item(keys.topic("good"), encode_topic_record(GOOD))))
    assert list(view.topics(include_deleting=True)) == [GOOD]
    assert view.unreadable.count(keys.TOPICS) == 1
    view.apply(keys.TOPICS, snapshot(bad))
    assert [line.__dict__["key"] for line in caplog.records if line.levelno == logging.ERROR] == [
        "topics/bad"
    ]
    view.apply(keys.TOPICS, snapshot())
    assert view.unreadable.count(keys.TOPICS) == 0


def test_known_topic_stays_while_its_record_cannot_be_read(view: ClusterView) -> None:
    """Groups and garbage would take a topic that went for one that was deleted."""
    told: list[tuple[TopicRecord | None, TopicRecord | None]] = []
    good = item(keys.topic("good"), encode_topic_record(GOOD))
    view.apply(keys.TOPICS, snapshot(good))
    view.subscribe(lambda before, after: told.append((before, after)))
    view.apply(keys.TOPICS, changes(item(keys.topic("good"), b"?", 2), revision=2))
    view.apply(keys.TOPICS, snapshot(item(keys.topic("good"), b"?", 2), revision=3))
    assert (view.topic("good"), told) == (GOOD, [])
    assert view.unreadable.count(keys.TOPICS) == 1
    view.apply(keys.TOPICS, changes(good, revision=4))
    assert view.unreadable.count(keys.TOPICS) == 0
    view.apply(keys.TOPICS, changes(Delete(keys.topic("good")), revision=5))
    assert told == [(GOOD, None)]


def test_deleted_topic_with_a_bad_record_is_gone(view: ClusterView) -> None:
    view.apply(keys.TOPICS, snapshot(item(keys.topic("good"), encode_topic_record(GOOD))))
    view.apply(keys.TOPICS, changes(item(keys.topic("good"), b"?", 2), revision=2))
    view.apply(keys.TOPICS, changes(Delete(keys.topic("good")), revision=3))
    assert view.topic("good") is None
    assert view.unreadable.count(keys.TOPICS) == 0


@pytest.mark.parametrize("key", ["brokers/2", "brokers/x", "brokers/"])
def test_bad_broker_record_leaves_the_others(view: ClusterView, key: str) -> None:
    view.apply(keys.BROKERS, snapshot(item(key, b"?"), item(keys.broker(1), encode_broker_record(BROKER))))
    assert view.broker_count == 1
    assert view.unreadable.count(keys.BROKERS) == 1
    view.apply(keys.BROKERS, changes(Delete(key), revision=2))
    assert view.unreadable.count(keys.BROKERS) == 0


def test_bad_leader_and_coordinator_are_not_known(view: ClusterView) -> None:
    view.apply(keys.LEADERS, snapshot(item(keys.leader("t", 0), LEADER), item(keys.leader("t", 1), LEADER)))
    bad = (item(keys.leader("t", 0), b"?", 2), item("leaders/t/x", LEADER, 2), item("leaders/t", LEADER, 2))
    view.apply(keys.LEADERS, changes(*bad, revision=2))
    assert list(view.leaders("t")) == [1]
    assert view.unreadable.count(keys.LEADERS) == 3
    coordinators = (item(keys.coordinator(3), COORDINATOR), item(keys.coordinator(4), b"?"))
    view.apply(keys.COORDINATORS, snapshot(*coordinators, item("coordinators/x", COORDINATOR)))
    assert (view.coordinator(3), view.coordinator(4)) == (1, None)


def test_bad_feature_record_leaves_the_level_as_it_was(view: ClusterView) -> None:
    key = keys.feature(SEGMENT_FORMAT)
    view.apply(keys.FEATURES, snapshot(item(key, encode_level(LARGE_SEGMENTS_LEVEL))))
    view.apply(keys.FEATURES, changes(item(key, b"?", 2), revision=2))
    assert view.feature_level(SEGMENT_FORMAT) == LARGE_SEGMENTS_LEVEL
    assert view.unreadable.count(keys.FEATURES) == 1


def test_listener_that_raises_keeps_nothing_from_the_others(view: ClusterView) -> None:
    told: list[TopicRecord | None] = []

    def bad(before: TopicRecord | None, after: TopicRecord | None) -> None:
        raise KeyError("a defect")

    view.subscribe(bad)
    view.subscribe(lambda before, after: told.append(after))
    other = item(keys.topic("other"), encode_topic_record(OTHER))
    view.apply(keys.TOPICS, snapshot(item(keys.topic("good"), encode_topic_record(GOOD)), other))
    assert told == [GOOD, OTHER]
