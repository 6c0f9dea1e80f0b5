"""Transactions of Kafka's Java clients beyond what all clients have: members of groups, limits, deleted topics."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.conftest import Peer
from tests.support.librdkafka import producer as plain_producer
from tests.support.librdkafka import send_all
from tests.support.topics import create_topic, delete_topic, unique_name
from tests.support.transactions.client import Read, TransactionError
from tests.support.transactions.observing import (
    high_watermark,
    last_stable_offset,
    stable_offset,
    transaction_state,
)
from tests.support.transactions.programs import ProgramClient, ProgramProducer
from tests.support.waiting import PATIENCE_MS, wait_until

MANY_PARTITIONS = 100
TOO_LONG_MS = 901_000  # transaction.max.timeout.ms is a quarter of an hour


@contextlib.contextmanager
def producing(java: ProgramClient, peer: Peer, transactional_id: str) -> Iterator[ProgramProducer]:
    producer = java.producer(peer.bootstrap, transactional_id)
    with contextlib.closing(producer):
        yield producer


def ask(java: ProgramClient, peer: Peer, what: str, **arguments: Any) -> dict[str, Any]:
    return java.ask(what, bootstrap=peer.bootstrap, timeout_ms=PATIENCE_MS, **arguments)


@contextlib.contextmanager
def joined(java: ProgramClient, peer: Peer, group: str, topic: str, name: str) -> Iterator[str]:
    """A member of a group, by its name; it does not poll after it has joined."""
    ask(java, peer, "join", member=name, group=group, topic=topic)
    try:
        yield name
    finally:
        ask(java, peer, "leave", member=name)


@pytest.fixture
def transactional_id() -> str:
    return unique_name("id")


def test_offsets_of_a_member_are_committed(
    java_program: ProgramClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    group, offsets = unique_name("group"), [[topic, 0, 5]]
    with (
        producing(java_program, peer, transactional_id) as producer,
        joined(java_program, peer, group, topic, "member") as member,
    ):
        producer.begin()
        producer.ask("offsets", member=member, offsets=offsets)
        producer.commit()
        # Waits as long as the offset is pending.
        assert ask(java_program, peer, "committed", group=group, topic=topic)["offsets"] == [5]


def test_offsets_of_a_member_that_was_removed_are_refused(
    java_program: ProgramClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    group = unique_name("group")
    with producing(java_program, peer, transactional_id) as producer:
        with joined(java_program, peer, group, topic, "removed") as member:
            producer.begin()
            producer.send(topic, 0, [b"a"])
            ask(java_program, peer, "remove_members", group=group)
            with pytest.raises(TransactionError) as raised:
                producer.ask("offsets", member=member, offsets=[[topic, 0, 5]])
            assert raised.value.kind == "CommitFailedException"
            producer.abort()
        assert stable_offset(peer, group, topic) == -1
        producer.begin()
        producer.send(topic, 0, [b"b"])
        producer.commit()
    assert java_program.read(peer.bootstrap, topic, b"b")[-1].value == b"b"


def test_end_offset_is_the_last_stable_one(
    java_program: ProgramClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(java_program, peer, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, [b"a", b"b"])
        for isolation, end in (("read_committed", 0), ("read_uncommitted", 2)):
            found = ask(java_program, peer, "end_offset", topic=topic, isolation=isolation)
            assert found["offset"] == end
        producer.abort()
        wait_until(lambda: last_stable_offset(peer, topic) == 3, "the marker is written")


def test_admin_fences_a_producer(
    java_program: ProgramClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(java_program, peer, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, [b"a"])
        ask(java_program, peer, "fence", id=transactional_id)
        wait_until(lambda: last_stable_offset(peer, topic) == 2, "the transaction is aborted")
        with pytest.raises(TransactionError) as raised:
            producer.commit()
        assert raised.value.is_fenced


def test_timeout_above_the_maximum_is_refused(
    java_program: ProgramClient, peer: Peer, transactional_id: str
) -> None:
    with pytest.raises(TransactionError) as raised:
        java_program.producer(peer.bootstrap, transactional_id, TOO_LONG_MS)
    assert "The transaction timeout is larger than the maximum value allowed by the broker" in str(
        raised.value
    )


def test_transaction_over_many_partitions_ends_in_all(
    java_program: ProgramClient, peer: Peer, transactional_id: str
) -> None:
    wide = unique_name("wide")
    create_topic(peer, wide, MANY_PARTITIONS)
    with producing(java_program, peer, transactional_id) as producer:
        producer.begin()
        producer.ask("send_all", topic=wide, partitions=MANY_PARTITIONS, value="a")
        assert len(transaction_state(peer, transactional_id).partitions) == MANY_PARTITIONS
        producer.commit()
    wait_until(
        lambda: all(last_stable_offset(peer, wide, one) == 2 for one in range(MANY_PARTITIONS)),
        "the markers are written",
    )


def test_deleted_topic_does_not_hold_up_a_transaction(
    java_program: ProgramClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    doomed = unique_name("doomed")
    create_topic(peer, doomed, 1)
    with producing(java_program, peer, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, [b"a"])
        producer.send(doomed, 0, [b"b"])
        delete_topic(peer, doomed)
        producer.commit()
        wait_until(
            lambda: transaction_state(peer, transactional_id).state == "CompleteCommit", "it is complete"
        )
        producer.begin()
        producer.send(topic, 0, [b"c"])
        producer.commit()
    assert java_program.read(peer.bootstrap, topic, b"c") == [Read(0, b"a"), Read(2, b"c")]


def test_records_without_transaction_are_read_between(
    java_program: ProgramClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(java_program, peer, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, [b"aborted"])
        send_all(plain_producer(peer), topic, [b"plain"])
        producer.abort()
        producer.begin()
        producer.send(topic, 0, [b"committed"])
        producer.commit()
    read = java_program.read(peer.bootstrap, topic, b"committed")
    assert read == [Read(1, b"plain"), Read(3, b"committed")]
    wait_until(lambda: high_watermark(peer, topic) == 5, "the marker is written")
