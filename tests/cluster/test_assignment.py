"""A pass over the partitions names everything that changed, and of a large topic no more than that."""

import uuid
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafscale.cluster import assignment
from kafscale.cluster.assignment import PartitionAssignment
from kafscale.cluster.leadership import TopicPartition
from kafscale.cluster.preferred import preferred_brokers
from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_broker_record, encode_leader_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord, BrokerState, LeaderRecord, TopicRecord
from kafscale.metadata.store import Changes, Delete, KeyValue
from kafscale.ops.item_failures import BackgroundWork, ItemFailures

MYSELF: Final = 0
Told = dict[TopicPartition, tuple[int | None, int | None]]


class Picture:
    """A view that receives changes, and the assignment as `PartitionService` wires them."""

    def __init__(self) -> None:
        self.view = ClusterView("test")
        self.assignment = PartitionAssignment(self.view, MYSELF, ItemFailures(BackgroundWork.KEEPING))
        self.view.subscribe(self.assignment.topic_changed)
        self.view.subscribe_leaders(lambda topic, index, _: self.assignment.reconsider([(topic, index)]))
        self.view.subscribe_brokers(self.assignment.reconsider_all)
        self._revision = 0

    def tell(self, prefix: str, key: str, value: bytes | None) -> None:
        self._revision += 1
        change = Delete(key) if value is None else KeyValue(key=key, value=value, mod_revision=self._revision)
        self.view.apply(prefix, Changes(puts_and_deletes=(change,), revision=self._revision))

    def set_topic(self, name: str, partition_count: int, generation: int = 0) -> None:
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}/{generation}")
        record = TopicRecord(name=name, topic_id=topic_id, partition_count=partition_count)
        value = encode_topic_record(record) if partition_count else None
        self.tell(keys.TOPICS, keys.topic(name), value)

    def set_leader(self, name: str, index: int, broker_id: int | None) -> None:
        value = None
        if broker_id is not None:
            value = encode_leader_record(LeaderRecord(broker_id=broker_id, leader_epoch=1))
        self.tell(keys.LEADERS, keys.leader(name, index), value)

    def set_broker(self, broker_id: int, state: BrokerState | None) -> None:
        value = None
        if state is not None:
            record = BrokerRecord(broker_id=broker_id, host="h", port=1, state=state)
            value = encode_broker_record(record)
        self.tell(keys.BROKERS, keys.broker(broker_id), value)

    def one_pass(self) -> Told:
        return {wanted.item: (wanted.preferred, wanted.owner) for wanted in self.assignment.changed()}

    def changed(self) -> Told:
        told = self.one_pass()
        while self.assignment.has_more():
            told.update(self.one_pass())
        return told

    def everything(self) -> Told:
        self.assignment.reconsider_all()
        return self.changed()


def test_a_leader_change_names_only_its_own_partition() -> None:
    picture = Picture()
    picture.set_broker(MYSELF, BrokerState.RUNNING)
    picture.set_topic("t", 1000)
    assert len(picture.changed()) == 1000
    picture.set_leader("t", 7, MYSELF)
    picture.set_leader("t", 9, 4)
    assert picture.changed() == {("t", 7): (MYSELF, MYSELF), ("t", 9): (MYSELF, 4)}
    assert picture.changed() == {}


def test_a_leader_of_no_partition_names_nothing() -> None:
    picture = Picture()
    picture.set_broker(MYSELF, BrokerState.RUNNING)
    picture.set_topic("t", 2)
    picture.changed()
    picture.set_leader("t", 2, MYSELF)
    picture.set_leader("unknown", 0, MYSELF)
    assert picture.changed() == {}


def test_a_long_pass_is_split_and_its_rest_is_named_up_to_date() -> None:
    picture = Picture()
    picture.set_broker(MYSELF, BrokerState.RUNNING)
    half = assignment.PARTITIONS_OF_A_PASS // 2
    for name in "abcde":
        picture.set_topic(name, half + 1)
    told = picture.one_pass()
    assert {name for name, _ in told} == {"a", "b"}
    assert len(told) == 2 * (half + 1)
    picture.set_leader("a", 7, MYSELF)
    picture.set_leader("c", 9, MYSELF)
    picture.set_topic("d", 0)
    assert picture.assignment.has_more()
    told = picture.one_pass()
    assert told.pop(("a", 7)) == (MYSELF, MYSELF)
    assert {name for name, _ in told} == {"c", "e"}
    assert told["c", 9] == (MYSELF, MYSELF)
    assert not picture.assignment.has_more()


def test_partitions_that_wait_for_a_pass_come_before_new_changes() -> None:
    picture = Picture()
    picture.set_broker(MYSELF, BrokerState.RUNNING)
    for name in "abc":
        picture.set_topic(name, assignment.PARTITIONS_OF_A_PASS)
    passes = []
    for broker_id in (1, 2, 3):
        passes.append({name for name, _ in picture.one_pass()})
        picture.set_broker(broker_id, BrokerState.RUNNING)
    assert passes == [{"a"}, {"b"}, {"c"}]
    assert {preferred for preferred, _ in picture.changed().values()} == {0, 1, 2, 3}


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 14), st.booleans()), max_size=20))
def test_passes_name_preferred_brokers_as_brokers_come_and_go(events: list[tuple[int, bool]]) -> None:
    picture, named, brokers = Picture(), Told(), {MYSELF, *range(5, 16)}
    for broker_id in brokers:
        picture.set_broker(broker_id, BrokerState.RUNNING)
    for name, count in (("a", 40), ("b", 3)):
        picture.set_topic(name, count)
    for broker_id, comes in events:
        picture.set_broker(broker_id, BrokerState.RUNNING if comes else None)
        (brokers.add if comes else brokers.discard)(broker_id)
        named.update(picture.changed())
    named.update(picture.changed())
    for name, count in (("a", 40), ("b", 3)):
        expected = preferred_brokers(name, count, sorted(brokers))
        got = tuple(named[name, index][0] for index in range(count) if (name, index) in named)
        assert got == expected


NAMES = st.sampled_from(["a", "b"])
BROKERS = st.sampled_from([0, 1, 2])
EVENTS = st.one_of(
    st.tuples(st.just("topic"), NAMES, st.integers(0, 5), st.integers(0, 1)),
    st.tuples(st.just("leader"), NAMES, st.integers(0, 6), st.none() | BROKERS),
    st.tuples(st.just("broker"), BROKERS, st.none() | st.sampled_from(BrokerState)),
    st.tuples(st.just("look")),
)


@given(st.lists(EVENTS, max_size=40), st.sampled_from([1, 4, assignment.PARTITIONS_OF_A_PASS]))
def test_passes_name_the_current_state_of_every_partition(
    events: list[tuple[object, ...]], of_a_pass: int
) -> None:
    picture, named = Picture(), Told()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assignment, "PARTITIONS_OF_A_PASS", of_a_pass)
        for kind, *arguments in events:
            if kind == "look":
                named.update(picture.one_pass())
            else:
                getattr(picture, f"set_{kind}")(*arguments)
        named.update(picture.changed())
    now = picture.everything()
    assert {item: named.get(item) for item in now} == now
