"""Where consumers of a rack read a partition: one broker in every answer, and all of a rack take part."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafscale.cluster.preferred import preferred_brokers
from kafscale.cluster.rankings import Rankings
from kafscale.cluster.view import ClusterView
from kafscale.formats.topic_record import encode_broker_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.model import NO_BROKER, BrokerRecord, BrokerState, TopicRecord
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.serving.read_replicas import CHOICES_AT_ONCE, READ_REPLICAS_BYTES, ReadReplicas

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


def placed(broker_id: int, rack: str | None) -> KeyValue:
    record = BrokerRecord(broker_id=broker_id, host="host", port=9092, rack=rack, state=BrokerState.RUNNING)
    return KeyValue(key=keys.broker(broker_id), value=encode_broker_record(record), mod_revision=1)


def put_topic(view: ClusterView, name: str, partition_count: int) -> None:
    topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, name)
    record = TopicRecord(name=name, topic_id=topic_id, partition_count=partition_count)
    item = KeyValue(key=keys.topic(name), value=encode_topic_record(record), mod_revision=1)
    view.apply(keys.TOPICS, Changes(puts_and_deletes=(item,), revision=2))


def lists(replicas: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {rack: list(brokers) for rack, brokers in replicas.items()}


def whole(view: ClusterView, topic: TopicRecord) -> dict[str, list[int]]:
    """As brokers of all versions compute it."""
    racks: dict[str, list[int]] = {}
    for live in view.brokers_to_read_from():
        if live.rack:
            racks.setdefault(live.rack, []).append(live.broker_id)
    return {
        rack: list(preferred_brokers(topic.name, topic.partition_count, nearby))
        for rack, nearby in racks.items()
    }


def test_one_broker_of_each_rack(view: ClusterView) -> None:
    replicas = ReadReplicas(view).all(TOPIC)
    assert replicas.keys() == {"a", "b", "c"}
    assert (set(replicas["a"]), set(replicas["c"])) == ({1}, {3})
    assert Counter(replicas["b"]) == {2: 6, 4: 6}


def test_both_ways_to_ask_have_the_same_answer(view: ClusterView) -> None:
    replicas = ReadReplicas(view)
    for rack, brokers in replicas.all(TOPIC).items():
        assert [replicas.one("t", index, rack) for index in range(12)] == list(brokers)


def test_no_replica_for_an_empty_rack_or_unknown_partition(view: ClusterView) -> None:
    assert ReadReplicas(view).one("t", 0, "d") == NO_BROKER
    assert ReadReplicas(view).one("t", 12, "a") == NO_BROKER
    assert ReadReplicas(view).one("gone", 0, "a") == NO_BROKER


@pytest.mark.parametrize("state", [BrokerState.STARTING, BrokerState.STOPPING])
def test_only_brokers_that_run_are_chosen(view: ClusterView, state: BrokerState) -> None:
    view.apply(
        keys.BROKERS, Changes(puts_and_deletes=(registered(2, state), registered(3, state)), revision=2)
    )
    replicas = ReadReplicas(view).all(TOPIC)
    assert replicas.keys() == {"a", "b"}
    assert set(replicas["b"]) == {4}
    assert ReadReplicas(view).one("t", 0, "c") == NO_BROKER


@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from([None, "a", "b"]), st.booleans()), max_size=20),
    st.sampled_from([3_000, READ_REPLICAS_BYTES]),
)
def test_whatever_comes_and_goes_it_is_what_is_chosen_afresh(
    events: list[tuple[int, str | None, bool]], limit_bytes: int
) -> None:
    view = ClusterView("cluster")
    everybody = [placed(broker_id, "a") for broker_id in range(100, 112)]
    view.apply(keys.BROKERS, Snapshot(items=tuple(everybody), revision=1))
    for name, count in (("t", 12), ("u", 40), ("v", 1)):
        put_topic(view, name, count)
    kept = ReadReplicas(view, limit_bytes)
    for broker_id, rack, comes in events:
        change = placed(broker_id, rack) if comes else Delete(keys.broker(broker_id))
        view.apply(keys.BROKERS, Changes(puts_and_deletes=(change,), revision=2))
        put_topic(view, "v", broker_id)
        for topic in view.topics():
            assert lists(kept.all(topic)) == lists(ReadReplicas(view).all(topic)) == whole(view, topic)
        assert kept.used_bytes <= limit_bytes


def test_racks_and_many_topics_do_not_drive_one_another_out(monkeypatch: pytest.MonkeyPatch) -> None:
    view = ClusterView("cluster")
    brokers = tuple(placed(broker_id, "abc"[broker_id % 3]) for broker_id in range(9))
    view.apply(keys.BROKERS, Snapshot(items=brokers, revision=1))
    for number in range(2_000):
        put_topic(view, f"t{number}", 2)
    replicas, chosen = ReadReplicas(view), 0

    def counted(self: Rankings, name: str, count: int, broker_ids: tuple[int, ...]) -> tuple[int, ...]:
        nonlocal chosen
        chosen += 1
        return preferred_brokers(name, count, broker_ids)

    monkeypatch.setattr(Rankings, "preferred", counted)
    for _ in range(3):
        for number in range(2_000):
            for rack in "abc":
                assert replicas.one(f"t{number}", 1, rack) != NO_BROKER
    assert chosen == 2_000 * 3
    # Of a broker that goes, its own rack is chosen for anew.
    view.apply(keys.BROKERS, Changes(puts_and_deletes=(Delete(keys.broker(1)),), revision=2))
    for topic in view.topics():
        replicas.all(topic)
    assert chosen == 2_000 * 4
    assert replicas.used_bytes < READ_REPLICAS_BYTES / 8


async def test_all_topics_are_prepared_while_others_run_in_between(view: ClusterView) -> None:
    for name in "uvw":
        put_topic(view, name, CHOICES_AT_ONCE)
    replicas, turns = ReadReplicas(view), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            if turns == 2:
                view.apply(keys.BROKERS, Changes(puts_and_deletes=(Delete(keys.broker(2)),), revision=2))
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await replicas.prepare()
    assert turns >= 3
    task.cancel()
    for topic in view.topics():
        assert lists(replicas.all(topic)) == whole(view, topic)
    await replicas.prepare()  # Again, as brokers changed meanwhile.
    used_bytes, done = replicas.used_bytes, asyncio.ensure_future(replicas.prepare())
    await asyncio.sleep(0)
    assert done.done()
    assert replicas.used_bytes == used_bytes
    await asyncio.gather(task, return_exceptions=True)
