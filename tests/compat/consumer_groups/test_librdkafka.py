"""confluent-kafka (librdkafka) with group.protocol=consumer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaException, TopicPartition

from tests.compat.conftest import Peer
from tests.support.consumer_group_members import RawConsumerGroup, grow_topic
from tests.support.consumer_protocol_members import ConsumerProtocolMember, Journal
from tests.support.group_work import RunningProducer, committed_offsets, partitions_of, send_to_all
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

Join = Callable[..., ConsumerProtocolMember]


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def join(peer: Peer, group: RawConsumerGroup, journal: Journal) -> Iterator[Join]:
    """Starts a member of `group`; those that still run leave at the end."""
    with ExitStack() as members:

        def start(*topics: str, **config: object) -> ConsumerProtocolMember:
            return members.enter_context(
                ConsumerProtocolMember(peer.bootstrap, group.name, topics, journal, **config)
            )

        yield start


def wait_shared(members: Sequence[ConsumerProtocolMember], topic: str, count: int) -> None:
    """Wait until these members have all partitions of the topic, evenly and each once."""

    def shared() -> bool:
        parts = [member.owned for member in members]
        sizes = [len(part) for part in parts]
        whole = sorted(one for part in parts for one in part)
        return max(sizes) - min(sizes) <= 1 and whole == partitions_of(topic, count)

    wait_until(shared, f"{len(members)} members share {count} partitions")


def test_records_are_handled_once_with_changing_members(
    peer: Peer, join: Join, group: RawConsumerGroup, journal: Journal
) -> None:
    topic, _ = group.new_topic(6)
    with RunningProducer(peer, topic, 6) as producer:
        first = join(topic)
        wait_shared([first], topic, 6)
        others = [join(topic) for _ in range(2)]
        wait_shared([first, *others], topic, 6)
        producer.wait_for_more()
        first.leave()
        wait_shared(others, topic, 6)
        late = join(topic)
        wait_shared([*others, late], topic, 6)
        producer.wait_for_more()
        for other in others:
            other.leave()
        wait_shared([late], topic, 6)
    counts = dict(zip(partitions_of(topic, 6), producer.counts, strict=True))
    journal.wait_handled(counts)
    late.leave()
    journal.check_owners()
    assert committed_offsets(peer, group.name) == counts
    assert not [change for change in journal.changes if change[1] == "lost"]


def test_member_goes_on_from_the_committed_offset(
    peer: Peer, join: Join, group: RawConsumerGroup, journal: Journal
) -> None:
    topic, _ = group.new_topic()
    send_to_all(peer, topic, 1, 10)
    journal_of_first = journal.records
    with ConsumerProtocolMember(peer.bootstrap, group.name, [topic], journal) as first:
        wait_until(lambda: len(journal_of_first.get((topic, 0), [])) == 10, "ten records")
        first.commit({(topic, 0): 10})
        (found,) = first.call(lambda consumer: consumer.committed([TopicPartition(topic, 0)], 10.0))
        assert found.offset == 10
        first.call(lambda consumer: consumer.seek(TopicPartition(topic, 0, 7)))
        wait_until(lambda: len(journal_of_first[topic, 0]) == 13, "three of them again")
    assert journal_of_first[topic, 0][10:] == [7, 8, 9]
    with RunningProducer(peer, topic, 1):
        join(topic)
        wait_until(lambda: len(journal.records[topic, 0]) > 13, "new records")
    assert journal.records[topic, 0][13] == 10


def test_static_member_returns_and_no_partition_moves(
    join: Join, group: RawConsumerGroup, journal: Journal
) -> None:
    topic, _ = group.new_topic(4)
    first, second = (join(topic, group_instance_id=f"instance-{number}") for number in range(2))
    wait_shared([first, second], topic, 4)
    had, epochs, others = first.owned, group.epochs(), len(journal.of(second.name, "revoked"))
    first.leave()
    again = join(topic, group_instance_id="instance-0")
    again.wait_owned(had)
    assert group.epochs() == epochs
    assert len(journal.of(second.name, "revoked")) == others
    thief = join(topic, group_instance_id="instance-0")
    wait_until(lambda: thief.failure is not None, "the second of one instance is refused")
    assert isinstance(thief.failure, KafkaException)
    assert "instance ID is still used" in str(thief.failure)
    assert again.owned == had


def test_regex_is_resolved_by_the_broker(join: Join, group: RawConsumerGroup) -> None:
    prefix = unique_name("regex")
    for name in ("a", "b", "other"):
        create_topic(group.broker, f"{prefix}-{name}")
    other, _ = group.new_topic()
    member = join(f"^{prefix}-[ab]", other)
    member.wait_owned([(f"{prefix}-a", 0), (f"{prefix}-b", 0), (other, 0)])
    (row,) = group.describe().members.values()
    assert row.regex == f"(^{prefix}-[ab])"
    assert row.names == (other,)


def test_assignor_is_chosen(join: Join, group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic(4)
    members = [join(topic, group_remote_assignor="range") for _ in range(2)]
    wait_shared(members, topic, 4)
    assert group.describe().assignor == "range"
    parts = sorted(sorted(index for _, index in member.owned) for member in members)
    assert parts == [[0, 1], [2, 3]]


def test_topic_that_grows_or_comes_later(join: Join, group: RawConsumerGroup) -> None:
    topic, later = group.new_topic(1)[0], unique_name("later")
    member = join(topic, later)
    member.wait_owned([(topic, 0)])
    grow_topic(group.wire, topic, 3)
    member.wait_owned(partitions_of(topic, 3))
    create_topic(group.broker, later, 2)
    member.wait_owned([*partitions_of(topic, 3), *partitions_of(later, 2)])


def test_subscription_changes(join: Join, group: RawConsumerGroup, journal: Journal) -> None:
    left, right = group.new_topic(2)[0], group.new_topic(2)[0]
    member = join(left)
    member.wait_owned(partitions_of(left, 2))
    member.call(
        lambda consumer: consumer.subscribe(
            [right], on_assign=member._on_assign, on_revoke=member._on_revoke, on_lost=member._on_lost
        )
    )
    member.wait_owned(partitions_of(right, 2))
    journal.check_owners()
