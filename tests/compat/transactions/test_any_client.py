"""Transactions as every client has them: what is read, offsets, fencing, timeouts."""

import contextlib
from collections.abc import Iterator

import pytest

from tests.compat.conftest import Peer
from tests.support.left_sockets import IGNORED_WHILE_THEY_RUN, left_sockets_are_collected
from tests.support.librdkafka import producer as plain_producer
from tests.support.librdkafka import send_all
from tests.support.nightly import nightly_but
from tests.support.topics import unique_name
from tests.support.transactions.client import (
    READ_UNCOMMITTED,
    Read,
    TransactionalClient,
    TransactionalProducer,
    TransactionError,
)
from tests.support.transactions.observing import (
    committed_offset,
    high_watermark,
    last_stable_offset,
    stable_offset,
    transaction_state,
)
from tests.support.waiting import wait_until

CLIENTS = ("java", "librdkafka", "franz-go", "kafka-python", "aiokafka", "kafkajs")
SHORT_TIMEOUT_MS = 1_000
__all__ = ["left_sockets_are_collected"]


def each(*by_day: str, without: tuple[str, ...] = ()) -> pytest.MarkDecorator:
    """A test for every client: those named in `make test` too."""
    names = [name for name in CLIENTS if name not in without]
    return pytest.mark.parametrize("client", nightly_but(names, *by_day), indirect=True)


pytestmark = IGNORED_WHILE_THEY_RUN


@contextlib.contextmanager
def producing(
    client: TransactionalClient, peer: Peer, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[TransactionalProducer]:
    producer = client.producer(peer.bootstrap, transactional_id, timeout_ms)
    with contextlib.closing(producer):
        yield producer


@pytest.fixture
def transactional_id() -> str:
    return unique_name("id")


@each("java", "librdkafka", "franz-go", "kafka-python")
def test_committed_records_are_read_and_aborted_ones_are_not(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(client, peer, transactional_id) as producer:
        for values, is_committed in (
            (b"ab", True),
            (b"cd", False),
            (b"ef", True),
            (b"gh", False),
            (b"yz", True),
        ):
            producer.begin()
            for partition in range(2):
                producer.send(topic, partition, [b"%c" % value for value in values])
            if is_committed:
                producer.commit()
            else:
                producer.abort()
        # A marker has an offset of its own after each transaction.
        wait_until(lambda: last_stable_offset(peer, topic) == 15, "the last marker is written")
        committed = [
            Read(0, b"a"),
            Read(1, b"b"),
            Read(6, b"e"),
            Read(7, b"f"),
            Read(12, b"y"),
            Read(13, b"z"),
        ]
        aborted = [Read(3, b"c"), Read(4, b"d"), Read(9, b"g"), Read(10, b"h")]
        assert client.read(peer.bootstrap, topic, b"z") == committed
        assert client.read(peer.bootstrap, topic, b"z", READ_UNCOMMITTED) == sorted(committed + aborted)
        wait_until(lambda: last_stable_offset(peer, topic, 1) == 15, "the other partition's, too")


@each("java", "librdkafka")
def test_open_transaction_holds_back_what_is_after_it(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    send_all(plain_producer(peer), topic, [b"before"])
    with producing(client, peer, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 0, [b"within"])
        send_all(plain_producer(peer), topic, [b"after"])
        assert (last_stable_offset(peer, topic), high_watermark(peer, topic)) == (1, 3)
        assert transaction_state(peer, transactional_id).state == "Ongoing"
        assert transaction_state(peer, transactional_id).partitions == [(topic, 0)]
        assert client.read(peer.bootstrap, topic, b"before") == [Read(0, b"before")]
        producer.commit()
        wait_until(lambda: last_stable_offset(peer, topic) == 4, "the marker is written")
        assert [one.value for one in client.read(peer.bootstrap, topic, b"after")] == [
            b"before",
            b"within",
            b"after",
        ]


@each("java", "librdkafka", "kafka-python", without=("franz-go",))
def test_offsets_are_committed_with_their_transaction(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    group = unique_name("group")
    with producing(client, peer, transactional_id) as producer:
        producer.begin()
        producer.send(topic, 1, [b"copy"])
        producer.send_offsets(group, {(topic, 0): 7})
        assert stable_offset(peer, group, topic) is None
        assert committed_offset(peer, group, topic) == -1
        producer.commit()
        wait_until(lambda: stable_offset(peer, group, topic) == 7, "the offset is committed")
        # KafkaJS (2.2.4) gives up when it is told that the transaction before is not complete.
        wait_until(
            lambda: transaction_state(peer, transactional_id).state == "CompleteCommit", "it is complete"
        )
        producer.begin()
        producer.send_offsets(group, {(topic, 0): 9})
        assert stable_offset(peer, group, topic) is None
        assert committed_offset(peer, group, topic) == 7
        producer.abort()
        wait_until(lambda: stable_offset(peer, group, topic) == 7, "the pending offset is dropped")


@each("java", "librdkafka", "franz-go", "kafka-python")
def test_second_producer_fences_the_first(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(client, peer, transactional_id) as first:
        first.begin()
        first.send(topic, 0, [b"of the first"])
        with producing(client, peer, transactional_id) as second:
            # The new one has its id only when the old one's transaction is aborted.
            wait_until(lambda: last_stable_offset(peer, topic) == 2, "the first one's transaction is aborted")
            second.begin()
            second.send(topic, 0, [b"of the second"])
            with pytest.raises(TransactionError) as raised:
                # Not a send: kafka-python 3.0.12 would try a new epoch, and fence the second one.
                first.commit()
            assert raised.value.is_fenced, raised.value
            second.commit()
    assert client.read(peer.bootstrap, topic, b"of the second") == [Read(2, b"of the second")]


@each("java", "kafka-python")
def test_transaction_is_aborted_after_its_timeout(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(client, peer, transactional_id, SHORT_TIMEOUT_MS) as producer:
        producer.begin()
        producer.send(topic, 0, [b"too slow"])
        wait_until(lambda: last_stable_offset(peer, topic) == 2, "the transaction is aborted")
        wait_until(
            lambda: transaction_state(peer, transactional_id).state == "CompleteAbort",
            "the abort is complete",
        )
        with pytest.raises(TransactionError):
            producer.commit()
    assert high_watermark(peer, topic) == 2


@each("java", "librdkafka")
def test_transactions_without_records_end(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(client, peer, transactional_id) as producer:
        producer.begin()
        producer.commit()
        producer.begin()
        producer.abort()
        producer.begin()
        producer.send(topic, 0, [b"a"])
        producer.commit()
    assert client.read(peer.bootstrap, topic, b"a") == [Read(0, b"a")]


@each("java", "librdkafka", "franz-go")
def test_epoch_grows_with_each_transaction_of_the_new_protocol(
    client: TransactionalClient, peer: Peer, topic: str, transactional_id: str
) -> None:
    with producing(client, peer, transactional_id) as producer:
        epochs = []
        for number in range(3):
            producer.begin()
            producer.send(topic, 0, [b"%d" % number])
            epochs.append(transaction_state(peer, transactional_id).producer_epoch)
            producer.commit()
    grows = 1 if client.knows_new_protocol else 0
    assert epochs == [epochs[0] + grows * number for number in range(3)]
