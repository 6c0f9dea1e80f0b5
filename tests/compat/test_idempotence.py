"""Sequence numbers of idempotent producers: duplicates, gaps, epochs, wrap-around."""

from collections.abc import Iterator

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support import wire
from tests.support.wire import Wire

NOT_LEADER_OR_FOLLOWER = 6
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
INVALID_PRODUCER_EPOCH = 47
LAST_SEQUENCE = 2**31 - 1
REMEMBERED_BATCHES = 5


@pytest.fixture
def connection(broker: Peer) -> Iterator[Wire]:
    with wire.connect(broker) as opened:
        yield opened


class IdempotentProducer:
    """One producer id writing to partition 0 of a topic, one record per batch unless told otherwise."""

    def __init__(self, connection: Wire, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self.producer_id, self.epoch = wire.init_producer_id(connection)

    def send(self, sequence: int, *, count: int = 1, epoch: int = 0) -> tuple[int, int]:
        """Error code and base offset."""
        values: list[bytes | None] = [b"%d.%d" % (sequence, n) for n in range(count)]
        records = wire.batch(values, producer_id=self.producer_id, producer_epoch=epoch, sequence=sequence)
        answer = wire.produce(self._connection, self._topic, 0, records)
        return answer.error_code, answer.base_offset


@pytest.fixture
def producer(connection: Wire, new_topic: NewTopic) -> IdempotentProducer:
    return IdempotentProducer(connection, new_topic())


def test_every_producer_gets_an_id_of_its_own(connection: Wire) -> None:
    given = [wire.init_producer_id(connection) for _ in range(5)]
    assert len({producer_id for producer_id, _ in given}) == 5
    assert {epoch for _, epoch in given} == {0}


def test_repeated_batch_gets_first_answer_and_is_stored_once(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer = IdempotentProducer(connection, topic)
    assert producer.send(0, count=3) == (0, 0)
    assert producer.send(3, count=2) == (0, 3)
    assert producer.send(0, count=3) == (0, 0)
    assert producer.send(3, count=2) == (0, 3)
    assert producer.send(5) == (0, 5)
    expected = [b"0.0", b"0.1", b"0.2", b"3.0", b"3.1", b"5.0"]
    assert wire.read_all(connection, topic, 0) == list(enumerate(expected))


def test_the_last_five_batches_are_remembered(producer: IdempotentProducer) -> None:
    for sequence in range(8):
        assert producer.send(sequence) == (0, sequence)
    for sequence in range(8 - REMEMBERED_BATCHES, 8):
        assert producer.send(sequence) == (0, sequence)
    # Kafka's answer would have its Java client ask until its time is over; Kafscale knows that it is stored.
    older = producer.send(8 - REMEMBERED_BATCHES - 1)
    assert older in ((OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (DUPLICATE_SEQUENCE_NUMBER, -1))
    assert producer.send(8) == (0, 8)


def test_a_gap_is_out_of_order(producer: IdempotentProducer) -> None:
    assert producer.send(0, count=3) == (0, 0)
    assert producer.send(4) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(2, count=2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)  # overlaps what is stored
    assert producer.send(3) == (0, 3)


def test_a_higher_epoch_starts_again_at_0_and_fences_the_lower(producer: IdempotentProducer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(1, epoch=1) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, epoch=1) == (0, 1)
    assert producer.send(1) == (INVALID_PRODUCER_EPOCH, -1)
    assert producer.send(0) == (INVALID_PRODUCER_EPOCH, -1)  # even what was once accepted
    assert producer.send(1, epoch=1) == (0, 2)


def begin(producer: IdempotentProducer, sequence: int, count: int = 1) -> tuple[int, int]:
    """The answer to an unknown producer that does not begin at 0, which Kafscale refuses once (decision 0036)."""
    answer = producer.send(sequence, count=count)
    return producer.send(sequence, count=count) if answer == (NOT_LEADER_OR_FOLLOWER, -1) else answer


def test_unknown_producer_may_start_at_any_sequence(
    producer: IdempotentProducer,
) -> None:
    """As in Kafka: its earlier batches may have been removed by retention."""
    assert begin(producer, 5) == (0, 0)
    assert producer.send(6) == (0, 1)
    assert producer.send(9) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_sequence_numbers_wrap_around(producer: IdempotentProducer) -> None:
    assert begin(producer, LAST_SEQUENCE - 1, count=4) == (0, 0)  # …646, …647, 0, 1
    assert producer.send(2) == (0, 4)
    assert producer.send(LAST_SEQUENCE - 1, count=4) == (0, 0)
    assert producer.send(4) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_each_partition_counts_for_itself(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    producer_id, _ = wire.init_producer_id(connection)
    for partition in (0, 1):
        records = wire.batch([b"x"], producer_id=producer_id, producer_epoch=0, sequence=0)
        answer = wire.produce(connection, topic, partition, records)
        assert (answer.error_code, answer.base_offset) == (0, 0)


def test_pipelined_batches_of_one_producer_are_stored_in_order(connection: Wire, new_topic: NewTopic) -> None:
    topic = new_topic()
    producer_id, _ = wire.init_producer_id(connection)
    for sequence in range(5):  # as many as Kafka's clients keep in flight
        records = wire.batch([b"%d" % sequence], producer_id=producer_id, producer_epoch=0, sequence=sequence)
        connection.send(wire.produce_request(topic, {0: records}), wire.PRODUCE_VERSION)
    answers = [wire.receive_produce(connection)[1] for _ in range(5)]
    assert [(one.error_code, one.base_offset) for one in answers] == [(0, n) for n in range(5)]
    assert wire.read_all(connection, topic, 0) == [(n, b"%d" % n) for n in range(5)]
