"""confluent-kafka (librdkafka) in consumer groups: assignors, cooperative rebalances, static members, commits."""

import contextlib
import queue
from functools import partial
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tests.compat.conftest import NewTopic, Peer
from tests.support.group_members import LibrdkafkaMember, Partitions
from tests.support.group_work import (
    CommitWatch,
    RunningProducer,
    assert_handled_once_in_order,
    assert_none_skipped,
    committed_offsets,
    partitions_of,
    send_to_all,
    wait_for_shares,
    wait_until_all_work,
    wait_until_handled,
)
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

METADATA_LIMIT = (
    4096  # Kafka's default of offset.metadata.max.bytes; confluent-kafka sends a NUL at the end too
)


@pytest.fixture
def group() -> str:
    return unique_name("group")


def joining(broker: Peer, group: str, *topics: str, **settings: Any) -> LibrdkafkaMember:
    return LibrdkafkaMember(broker.bootstrap, group, *topics, **settings)


def numbers(partitions: Partitions, topic: str) -> list[int]:
    return sorted(partition for name, partition in partitions if name == topic)


# --- assignors


def test_range_gives_a_member_the_same_partitions_of_every_topic(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    left, right = new_topic(3), new_topic(3)
    every = partitions_of(left, 3) + partitions_of(right, 3)
    with (
        joining(broker, group, left, right, assignors=["range"]) as one,
        joining(broker, group, left, right, assignors=["range"]) as two,
    ):
        owned = wait_for_shares([one, two], every)
    assert sorted(numbers(share, left) for share in owned) == [[0, 1], [2]]
    assert all(numbers(share, left) == numbers(share, right) for share in owned)


def test_roundrobin_spreads_partitions_of_all_topics_evenly(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    left, right = new_topic(3), new_topic(3)
    every = partitions_of(left, 3) + partitions_of(right, 3)
    with (
        joining(broker, group, left, right, assignors=["roundrobin"]) as one,
        joining(broker, group, left, right, assignors=["roundrobin"]) as two,
    ):
        owned = wait_for_shares([one, two], every)
    first, second = sorted([left, right])
    assert sorted((numbers(share, first), numbers(share, second)) for share in owned) == [
        ([0, 2], [1]),
        ([1], [0, 2]),
    ]


def test_members_agree_on_the_assignor_that_all_of_them_know(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    left, right = new_topic(3), new_topic(3)
    every = partitions_of(left, 3) + partitions_of(right, 3)
    with (
        joining(broker, group, left, right, assignors=["range", "roundrobin"]) as one,
        joining(broker, group, left, right, assignors=["roundrobin"]) as two,
    ):
        owned = wait_for_shares([one, two], every)
    assert {len(share) for share in owned} == {3}


def test_a_member_without_a_common_assignor_is_refused(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(2)
    with joining(broker, group, topic, assignors=["range"]) as one:
        wait_for_shares([one], partitions_of(topic, 2))
        with joining(broker, group, topic, assignors=["roundrobin"]) as other:
            wait_until(lambda: other.errors, "the refusal")
            assert other.errors[0].code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL
        assert numbers(one.assignment, topic) == [0, 1]
        assert one.changes_of("revoked") == []


def test_a_session_timeout_below_the_brokers_least_is_refused(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    with joining(broker, group, new_topic(), session_timeout_ms=400) as member:
        wait_until(lambda: member.errors, "the refusal")
        assert member.errors[0].code() == KafkaError.INVALID_SESSION_TIMEOUT


# --- cooperative rebalances


def test_cooperative_member_keeps_consuming_kept_partitions(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    every = partitions_of(topic, 4)
    with (
        joining(broker, group, topic, assignors=["cooperative-sticky"]) as first,
        RunningProducer(broker, topic, 4) as producer,
    ):
        wait_for_shares([first], every)
        with joining(broker, group, topic, assignors=["cooperative-sticky"]) as second:
            wait_for_shares([first, second], every, fewest=2)
            given = second.assignment
            producer.wait_for_more()
        wait_for_shares([first], every)
        producer.stop()
        wait_until_handled([first, second], topic, producer.counts)
    assert first.changes_of("assigned") == [frozenset(every), given]
    assert first.changes_of("revoked")[0] == given
    assert second.changes_of("assigned") == [given]
    assert_handled_once_in_order([first, second], topic, producer.counts)


def test_a_cooperative_group_survives_several_quick_generations(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(8)
    every = partitions_of(topic, 8)
    watch = CommitWatch(broker, group)
    members = [joining(broker, group, topic, assignors=["cooperative-sticky"]) for _ in range(4)]
    with contextlib.ExitStack() as opened, RunningProducer(broker, topic, 8) as producer:
        for member in members:  # each joins while the others still rebalance for the one before
            opened.enter_context(member)
            wait_until(partial(member.changes_of, "assigned"), "its first partitions")
            watch.look()
        wait_for_shares(members, every, fewest=2)
        wait_until_all_work(members)
        for member in members[:3]:
            member.leave()
            watch.look()
        wait_for_shares(members[3:], every)
        producer.stop()
        wait_until_handled(members, topic, producer.counts)
        watch.wait_for(topic, producer.counts)
    assert [member.changes_of("lost") for member in members] == [[]] * 4
    # A commit that comes between a join and its end is refused, so some records are handled twice.
    assert_none_skipped(members, topic, producer.counts)


# --- static members


def test_older_member_of_one_instance_id_is_fenced_fatally(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    every = partitions_of(topic, 2)
    with joining(broker, group, topic, group_instance_id="same") as older:
        wait_for_shares([older], every)
        with joining(broker, group, topic, group_instance_id="same") as newer:
            wait_until(lambda: older.errors, "it is fenced")
            assert older.errors[0].code() == KafkaError._FATAL
            assert "fenced" in older.errors[0].str()
            wait_for_shares([newer], every)
            send_to_all(broker, topic, 2, 3)
            wait_until_handled([newer], topic, [3, 3])


# --- commits


def test_a_commits_metadata_comes_back(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic(3)
    with joining(broker, group, partitions=[(topic, 0)], enable_auto_commit=False) as member:
        member.commit({(topic, 0): 7}, metadata="von Hand — 🎈")
        member.commit({(topic, 1): 8}, metadata="x" * (METADATA_LIMIT - 1))
        asked = [TopicPartition(topic, partition) for partition in range(3)]
        answers = member.call(lambda consumer: consumer.committed(asked, timeout=PATIENCE_SEC))
        assert [(one.offset, one.metadata) for one in answers] == [
            (7, "von Hand — 🎈"),
            (8, "x" * (METADATA_LIMIT - 1)),
            (OFFSET_INVALID, None),
        ]


def test_metadata_that_is_too_long_is_refused(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    with joining(broker, group, partitions=[(topic, 0)], enable_auto_commit=False) as member:
        with pytest.raises(KafkaException) as raised:
            member.commit({(topic, 0): 7}, metadata="x" * METADATA_LIMIT)
        assert raised.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
        assert member.committed((topic, 0)) == [None]


def test_async_commit_of_message_calls_back(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic = new_topic()
    send_to_all(broker, topic, 1, 5)
    answers: queue.SimpleQueue[tuple[KafkaError | None, list[TopicPartition]]] = queue.SimpleQueue()
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "on_commit": lambda error, partitions: answers.put((error, partitions)),
        }
    )
    try:
        consumer.subscribe([topic])
        message = wait_until(lambda: consumer.poll(0.1), "a record")
        consumer.pause(consumer.assignment())
        assert message is not None
        consumer.commit(message=message, asynchronous=True)
        assert wait_until(lambda: consumer.poll(0.05) or not answers.empty(), "the answer") is True
        error, partitions = answers.get()
        assert error is None
        assert [(one.topic, one.partition, one.offset) for one in partitions] == [(topic, 0, 1)]
    finally:
        consumer.close()
    assert committed_offsets(broker, group) == {(topic, 0): 1}


def test_commit_to_unknown_partition_is_refused_alone(broker: Peer, new_topic: NewTopic, group: str) -> None:
    topic, absent = new_topic(1), unique_name("absent")
    with joining(broker, group, partitions=[(topic, 0)], enable_auto_commit=False) as member:
        rows = [TopicPartition(topic, 0, 5), TopicPartition(topic, 9, 5), TopicPartition(absent, 0, 5)]
        with pytest.raises(KafkaException) as raised:  # the first error of any row
            member.call(lambda consumer: consumer.commit(offsets=rows, asynchronous=False))
        assert raised.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert committed_offsets(broker, group) == {(topic, 0): 5}


def test_assigned_consumer_cannot_commit_in_active_group(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(1)
    with joining(broker, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        with joining(broker, group, partitions=[(topic, 0)], enable_auto_commit=False) as outsider:
            with pytest.raises(KafkaException) as raised:
                outsider.commit({(topic, 0): 3})
            assert raised.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    assert committed_offsets(broker, group) == {}
