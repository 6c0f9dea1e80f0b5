"""Where consumers of a rack read a partition: one broker in every answer, and all of a rack take part."""

import uuid
from collections import Counter

import pytest

from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, BrokerRecord, BrokerState, TopicRecord
from kafscale.metadata.read_replicas import read_replica, read_replicas
from kafscale.metadata.store import Changes, KeyValue, Snapshot
from kafscale.metadata.topic_record import encode_broker_record, encode_topic_record
from kafscale.metadata.view import ClusterView

TOPIC = TopicRecord(name="t", topic_id=uuid.UUID(int=1), partition_count=12)
RACKS = {1: "a", 2: "b", 3: "c", 4: "b", 5: None}


def registered(broker_id: int, state: BrokerState = BrokerState.RUNNING) -> KeyValue:
    record = BrokerRecord(broker_id=broker_id, host="host", port=9092, rack=RACKS[broker_id], state=state)
    return KeyValue(key=keys.broker(broker_id), value=encode_broker_record(record), mod_revision=1)


@pytest.fixture
def view() -> ClusterView:
    view = ClusterView("cluster")
    view.apply(keys.BROKERS, Snapshot(items=tuple(map(registered, RACKS)), revision=1))
    topic = KeyValue(key=keys.topic("t"), value=encode_topic_record(TOPIC), mod_revision=1)
    view.apply(keys.TOPICS, Snapshot(items=(topic,), revision=1))
    return view


def test_one_broker_of_each_rack(view: ClusterView) -> None:
    replicas = read_replicas(view, TOPIC)
    assert replicas.keys() == {"a", "b", "c"}
    assert (set(replicas["a"]), set(replicas["c"])) == ({1}, {3})
    assert Counter(replicas["b"]) == {2: 6, 4: 6}


def test_both_ways_to_ask_have_the_same_answer(view: ClusterView) -> None:
    for rack, brokers in read_replicas(view, TOPIC).items():
        assert [read_replica(view, "t", index, rack) for index in range(12)] == list(brokers)


def test_there_is_none_in_a_rack_without_brokers_nor_for_what_is_not_there(view: ClusterView) -> None:
    assert read_replica(view, "t", 0, "d") == NO_BROKER
    assert read_replica(view, "t", 12, "a") == NO_BROKER
    assert read_replica(view, "gone", 0, "a") == NO_BROKER


@pytest.mark.parametrize("state", [BrokerState.STARTING, BrokerState.STOPPING])
def test_only_brokers_that_run_are_chosen(view: ClusterView, state: BrokerState) -> None:
    view.apply(
        keys.BROKERS, Changes(puts_and_deletes=(registered(2, state), registered(3, state)), revision=2)
    )
    replicas = read_replicas(view, TOPIC)
    assert replicas.keys() == {"a", "b"}
    assert set(replicas["b"]) == {4}
    assert read_replica(view, "t", 0, "c") == NO_BROKER
