"""Brokers' answers about their cluster: members, leaders, coordinators; and refusals of what is another's."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsResponse, DeleteTopicsRequest, DeleteTopicsResponse

from kafscale.metadata.keys import GROUP_SHARD_COUNT, shard_of
from tests.support import wire
from tests.support.cluster_wire import (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
    configs_of,
    delete_records,
    epoch_end,
    fetch_with_epoch,
    grow_topic,
    list_with_epoch,
    set_configs,
)
from tests.support.consumer_groups_tool import ConsumerGroupsTool, commit_offsets
from tests.support.group_apis import (
    commit,
    committed,
    delete_groups,
    delete_offsets,
    describe,
    find_coordinator,
    list_groups,
)
from tests.support.group_wire import NOT_COORDINATOR, Member
from tests.support.java import ToolServer
from tests.support.topics import (
    CREATE_TOPICS_VERSION,
    DELETE_TOPICS_VERSION,
    create_topics_request,
    describe_topic,
    unique_name,
)
from tests.support.waiting import wait_until
from tests.support.zoned_cluster import RACKS, Led, ZonedCluster

MANY = 1000
COMES_AND_GOES = 3
NO_TOPIC = 3


@pytest.fixture
def at(cluster: ZonedCluster) -> Iterator[dict[int, wire.Wire]]:
    """A connection to each broker."""
    with ExitStack() as stack:
        yield {
            broker_id: stack.enter_context(wire.connect(broker))
            for broker_id, broker in cluster.brokers.items()
        }


def told_by_all(at: dict[int, wire.Wire], ask: Callable[[wire.Wire], Any], wanted: Any, what: str) -> None:
    """Wait until every broker says that."""
    wait_until(lambda: all(ask(connection) == wanted for connection in at.values()), what)


def one_group_of_each_shard() -> list[str]:
    """Names of groups that have all coordinators there are."""
    names: dict[int, str] = {}
    for number in itertools.count():
        names.setdefault(shard_of(f"spread-{number}"), f"spread-{number}")
        if len(names) == GROUP_SHARD_COUNT:
            return list(names.values())
    raise AssertionError("unreachable")


def coordinated(connection: wire.Wire) -> Counter[int]:
    """How many shards of groups each broker coordinates, -1 for none."""
    found = find_coordinator(connection, one_group_of_each_shard())
    return Counter(one.node_id for one in found.values())


# --- who is there


def test_every_broker_names_all_brokers_with_their_racks(cluster: ZonedCluster) -> None:
    expected = [(one, cluster.brokers[one].host, cluster.brokers[one].port, RACKS[one]) for one in (1, 2, 3)]
    for broker_id in cluster.brokers:
        told = cluster.metadata(broker_id)
        assert [(one.node_id, one.host, one.port, one.rack) for one in told.brokers] == expected
        assert told.controller_id == 1
        assert told.cluster_id == cluster.metadata(1).cluster_id


def test_replicas_are_leader_and_readers_of_other_racks(cluster: ZonedCluster) -> None:
    topic = cluster.topic(6)
    with wire.connect(cluster.brokers[1]) as connection:
        for one in describe_topic(connection, topic).partitions:
            assert one.replica_nodes[0] == one.leader_id
            assert sorted(one.replica_nodes) == sorted(one.isr_nodes) == [1, 2, 3]
            assert one.offline_replicas == []


# --- who leads and coordinates, when a broker goes and comes back


@pytest.mark.nightly
def test_shares_stay_even_when_a_broker_goes_and_comes_back(cluster: ZonedCluster) -> None:
    topics = {cluster.topic(count): count for count in (6, MANY)}
    single = cluster.topic(1)
    few, many = topics
    history: list[tuple[Led, int]] = []  # leader and epoch, and the end of what was written under it

    def write_under_this_leader(count: int) -> None:
        led = cluster.led(single, cluster.cluster.live[0])[0]
        with wire.connect(cluster.brokers[led.leader]) as connection:
            answer = wire.produce(connection, single, 0, wire.batch([b"x"] * count))
        assert answer.error_code == 0
        history.append((led, answer.base_offset + count))

    def shares() -> list[list[int]]:
        return [sorted(cluster.shares(topic).values()) for topic in topics]

    assert shares() == [[2, 2, 2], [333, 333, 334]]
    write_under_this_leader(2)
    goes = history[0][0].leader
    stay = sorted({1, 2, 3} - {goes})
    assert sorted(coordinated_by(cluster, stay[0]).values()) == [21, 21, 22]

    cluster.cluster.stop(goes)
    print(f"without broker {goes}: even after {cluster.wait_spread(few, many, single):.2f} s")
    assert shares() == [[3, 3], [500, 500]]
    for broker_id in stay:
        assert [one.node_id for one in cluster.metadata(broker_id).brokers] == stay
        wait_until(lambda: coordinated_by(cluster, broker_id) == dict.fromkeys(stay, 32), "all coordinators")  # noqa: B023
    write_under_this_leader(3)

    cluster.cluster.start(goes)
    print(f"with broker {goes} again: even after {cluster.wait_spread(few, many, single):.2f} s")
    assert shares() == [[2, 2, 2], [333, 333, 334]]
    wait_until(lambda: sorted(coordinated_by(cluster, goes).values()) == [21, 21, 22], "all coordinators")
    wait_until(lambda: cluster.led(single, goes)[0].leader == goes, "the single partition is back")
    write_under_this_leader(1)
    check_epochs(cluster, single, history)
    delete_topic_at(cluster, 1, many)


def coordinated_by(cluster: ZonedCluster, asked: int) -> Counter[int]:
    with wire.connect(cluster.brokers[asked]) as connection:
        return coordinated(connection)


def check_epochs(cluster: ZonedCluster, topic: str, history: list[tuple[Led, int]]) -> None:
    """Epochs rose with every change; where each ended is known at once; wrong ones are refused (KIP-320)."""
    epochs = [led.epoch for led, _ in history]
    assert epochs == sorted(set(epochs)), f"epochs {epochs} do not rise"
    newest = epochs[-1]
    with wire.connect(cluster.leader(topic)) as connection:
        for epoch, (_, end) in zip(epochs, history, strict=True):
            answer = epoch_end(connection, topic, epoch, current=newest)
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, epoch, end)
        undefined = epoch_end(connection, topic, newest + 1)
        assert (undefined.error_code, undefined.leader_epoch, undefined.end_offset) == (0, -1, -1)
        for wrong, code in ((epochs[0], FENCED_LEADER_EPOCH), (newest + 1, UNKNOWN_LEADER_EPOCH)):
            assert epoch_end(connection, topic, epochs[0], current=wrong).error_code == code
            assert fetch_with_epoch(connection, topic, wrong).error_code == code
            assert list_with_epoch(connection, topic, wrong).error_code == code
        assert list_with_epoch(connection, topic, newest).leader_epoch == newest
        stored = fetch_with_epoch(connection, topic, newest).records
    assert batch_epochs(stored) == epochs


def batch_epochs(records: Any) -> list[int]:
    """The leader epoch in each batch's header (bytes 12 to 16)."""
    data, found, position = bytes(records), [], 0
    while position < len(data):
        found.append(int.from_bytes(data[position + 12 : position + 16], "big"))
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    return found


# --- topics through any broker


def delete_topic_at(cluster: ZonedCluster, broker_id: int, topic: str) -> None:
    with wire.connect(cluster.brokers[broker_id]) as connection:
        request = DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
        reply = connection.call(request, DeleteTopicsResponse, DELETE_TOPICS_VERSION)
    assert reply.responses[0].error_code == 0


@pytest.mark.parametrize("first", [1, 2, 3])
def test_topics_are_made_changed_and_deleted_through_any_broker(
    cluster: ZonedCluster, at: dict[int, wire.Wire], first: int
) -> None:
    second, third = first % 3 + 1, (first + 1) % 3 + 1
    topic = unique_name()
    request = create_topics_request(topic, 2, {"retention.ms": 1234})
    created = at[first].call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION).topics[0]
    assert created.error_code == 0
    told_by_all(at, lambda one: len(describe_topic(one, topic).partitions), 2, "two partitions")
    told_by_all(at, lambda one: describe_topic(one, topic).topic_id, created.topic_id, "one topic id")

    grow_topic(at[second], topic, 6)
    told_by_all(at, lambda one: len(describe_topic(one, topic).partitions), 6, "six partitions")
    cluster.wait_spread(topic)

    set_configs(at[third], topic, {"max.message.bytes": 2000})
    wanted = {"max.message.bytes": "2000", "retention.ms": "1234"}
    told_by_all(at, lambda one: configs_of(one, topic, *wanted), wanted, "the new config")
    too_large = wire.batch([b"x" * 3000])
    for partition, leader in cluster.cluster.leaders(topic).items():
        wait_until(
            lambda: wire.produce(at[leader], topic, partition, too_large).error_code == 10,  # noqa: B023
            f"the leader of {partition} refuses what is too large",
        )

    delete_topic_at(cluster, second, topic)
    told_by_all(at, lambda one: describe_topic(one, topic).error_code, NO_TOPIC, "no topic")


# --- groups over all brokers


def test_groups_are_listed_and_described_over_all_brokers(cluster: ZonedCluster, java: ToolServer) -> None:
    topic = cluster.topic(3)
    offsets = {(topic, 0): 1, (topic, 1): 2, (topic, 2): 3}
    groups = {cluster.group_at(broker_id): broker_id for broker_id in cluster.brokers}
    for group in groups:
        commit_offsets(cluster, group, offsets)
    for broker_id, broker in cluster.brokers.items():
        with wire.connect(broker) as connection:
            own = list_groups(connection).keys() & groups.keys()
            assert own == {group for group, coordinator in groups.items() if coordinator == broker_id}
    tool = ConsumerGroupsTool(server=java, bootstrap=cluster.bootstrap)
    assert groups.keys() <= set(tool("--list").ok().split())
    rows = tool.rows("--describe", "--all-groups", "--offsets")
    shown = Counter(row["GROUP"] for row in rows if row["TOPIC"] == topic)
    assert shown == dict.fromkeys(groups, 3)
    for group, broker_id in groups.items():
        coordinator = cluster.brokers[broker_id].bootstrap
        assert tool.state(group)["COORDINATOR (ID)"].split() == [coordinator, f"({broker_id})"]
        assert tool.offsets(group) == offsets


def test_only_the_coordinator_serves_a_group(cluster: ZonedCluster, at: dict[int, wire.Wire]) -> None:
    topic = cluster.topic(1)
    group = cluster.group_at(1)
    place = (topic, 0)
    assert commit(at[1], group, {place: 7}) == {place: 0}
    for connection in (at[2], at[3]):
        member = Member(wire=connection, group=group, id="somebody", generation=1)
        assert member.join().error_code == NOT_COORDINATOR
        assert member.sync(protocol_name="range").error_code == NOT_COORDINATOR
        assert member.heartbeat() == NOT_COORDINATOR
        assert member.leave() == NOT_COORDINATOR
        assert commit(connection, group, {place: 9}) == {place: NOT_COORDINATOR}
        assert describe(connection, [group])[0].error_code == NOT_COORDINATOR
        assert delete_groups(connection, [group]) == {group: NOT_COORDINATOR}
        assert delete_offsets(connection, group, [place])[0] == NOT_COORDINATOR
    for connection in at.values():  # but every broker tells what was committed (decision 0037)
        assert {key: one.offset for key, one in committed(connection, group).items()} == {place: 7}


# --- what only a leader does


def test_only_the_leader_takes_records_and_knows_offsets(
    cluster: ZonedCluster, at: dict[int, wire.Wire]
) -> None:
    topic = cluster.topic(1)
    leader = cluster.cluster.leaders(topic)[0]
    assert wire.produce(at[leader], topic, 0, wire.batch([b"a", b"b"])).error_code == 0
    for broker_id in {1, 2, 3} - {leader}:
        refused = wire.produce(at[broker_id], topic, 0, wire.batch([b"c"]))
        assert (refused.error_code, refused.base_offset) == (NOT_LEADER_OR_FOLLOWER, -1)
        for timestamp in (wire.LATEST, wire.EARLIEST, 0):
            assert wire.list_offset(at[broker_id], topic, 0, timestamp).error_code == NOT_LEADER_OR_FOLLOWER
        assert delete_records(at[broker_id], topic, 0, 1).error_code == NOT_LEADER_OR_FOLLOWER
        assert epoch_end(at[broker_id], topic, 0).error_code == NOT_LEADER_OR_FOLLOWER
    assert wire.read_all(at[leader], topic, 0) == [(0, b"a"), (1, b"b")]


def test_acks_0_record_for_other_leader_closes_connection(cluster: ZonedCluster) -> None:
    """acks=0: as in Kafka, that is how the client learns that it must look for the leader."""
    topic = cluster.topic(1)
    with wire.connect(cluster.others(topic)[0]) as connection:
        connection.send(wire.produce_request(topic, {0: wire.batch([b"x"])}, acks=0), wire.PRODUCE_VERSION)
        connection.assert_closed_by_peer()
