"""Consumer groups over a restart of their coordinator."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.compat.consumer_groups.conftest import consumer_group_peer, running
from tests.support.consumer_group_members import (
    COMES_BACK,
    FENCED_MEMBER_EPOCH,
    ConsumerMember,
    RawConsumerGroup,
    accepted,
    outcome,
    raw_consumer_group,
    refused,
)
from tests.support.consumer_protocol_members import ConsumerProtocolMember, Journal
from tests.support.group_apis import commit, committed
from tests.support.group_wire import UNKNOWN_MEMBER_ID, unique_instance
from tests.support.group_work import RunningProducer, committed_offsets, partitions_of
from tests.support.waiting import wait_until
from tests.support.wire import LATEST, connect, list_offset


@pytest.fixture(scope="module")
def restartable(peer_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    """A broker that only these tests use."""
    yield from running(consumer_group_peer(peer_kind, tmp_path_factory))


@pytest.fixture
def group(restartable: Peer) -> Iterator[RawConsumerGroup]:
    """A group without members on that broker."""
    with raw_consumer_group(restartable) as made:
        yield made


@contextlib.contextmanager
def restarted(group: RawConsumerGroup, *members: ConsumerMember) -> Iterator[RawConsumerGroup]:
    """Stop the broker and start it again; the group over a new connection, which its members use too."""
    group.broker.stop()
    group.broker.start()
    with raw_consumer_group(group.broker, group.name) as again:
        for member in members:
            member.group = again
        yield again


def test_members_go_on_as_if_nothing_had_been(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    first, second = group.joined("A", topic, rack_id="rack-1"), group.joined("B", topic, assignor="uniform")
    group.settle(first, second)
    commit(group.wire, group.name, {(topic, 0): 3}, generation=2, member_id=first.id, version=9)
    group.set_config("consumer.heartbeat.interval.ms", 300)
    before = group.describe()
    with restarted(group, first, second) as again:
        assert again.describe() == before
        for member in (first, second):
            assert outcome(member.heartbeat()) == accepted(member, 2)
            assert outcome(member.acknowledge()) == accepted(member, 2)
        assert again.describe() == before
        assert first.heartbeat().heartbeat_interval_ms == 300
        assert committed(again.wire, again.name, [(topic, 0)])[topic, 0].offset == 3
        second.leave()
        assert first.heartbeat().member_epoch == 3


def test_revocation_goes_on(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(4)
    first, second = group.joined("A", topic), group.joined("B", topic)
    first.heartbeat()
    kept = first.assignment[topic_id]
    with restarted(group, first, second) as again:
        assert second.heartbeat().assignment in (None, {})  # not before the first has revoked
        assert outcome(first.acknowledge())[0] == 0
        again.settle(first, second)
        assert first.assignment == {topic_id: kept}
        assert second.assignment == {topic_id: frozenset(range(4)) - kept}


def test_static_member_that_is_away_keeps_its_place(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    away = group.joined("A", topic, instance_id=unique_instance())
    away.leave(COMES_BACK)
    with restarted(group, away):
        assert outcome(away.heartbeat(epoch=1)) == refused(FENCED_MEMBER_EPOCH)
        # Kafka has stored who is to have what; here that is computed again, for an epoch of its own.
        epoch = away.join(topic).member_epoch
        assert epoch in (1, 2)
        assert outcome(away.heartbeat()) == accepted(away, epoch)
        assert away.assignment == {topic_id: frozenset(range(2))}


def test_member_that_does_not_return_is_removed(group: RawConsumerGroup) -> None:
    group.set_config("consumer.session.timeout.ms", 500)
    topic, _ = group.new_topic(2)
    member = group.joined("A", topic)
    with restarted(group, member) as again:
        again.await_members(0)
        assert outcome(member.heartbeat(epoch=1)) == refused(UNKNOWN_MEMBER_ID)
        assert again.epochs()[:2] == ("Empty", 2)


def test_empty_group_keeps_its_epoch(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(2)
    group.joined("A", topic).leave()
    before = group.epochs()
    with restarted(group) as again:
        assert again.epochs()[:2] == before[:2] == ("Empty", 2)
        assert again.joined("B", topic).epoch == 3


@pytest.mark.nightly
@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_clients_go_on_over_restarts(group: RawConsumerGroup, end: str) -> None:
    topic, _ = group.new_topic(6)
    journal, peer = Journal(), group.broker
    partitions = partitions_of(topic, 6)

    def member() -> ConsumerProtocolMember:
        return ConsumerProtocolMember(peer.bootstrap, group.name, [topic], journal)

    with member() as first, member() as second:

        def shared() -> bool:
            return sorted([*first.owned, *second.owned]) == partitions and bool(first.owned and second.owned)

        wait_until(shared, "two members share the partitions")
        with RunningProducer(peer, topic, 6) as producer:
            for _ in range(2):
                producer.wait_for_more()
                getattr(peer, end)()
                peer.start()
                wait_until(shared, "two members share the partitions")
                producer.wait_for_more()
        with connect(peer) as wire:  # what the producer repeated, too
            counts = {one: list_offset(wire, *one, LATEST).offset for one in partitions}
        wait_until(
            lambda: all(set(journal.records.get(one, [])) == set(range(counts[one])) for one in partitions),
            "every record is handled",
        )
    journal.check_owners()
    assert committed_offsets(peer, group.name) == counts
