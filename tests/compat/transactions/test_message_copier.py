"""Kafka's TransactionalMessageCopier, itself or its broker stopped and killed: each record is copied once, in order.

As tests/core/transactions_test.py of Kafka's system tests, with one broker.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat.conftest import Peer
from tests.compat.transactions.conftest import transactional_peer
from tests.support.topics import create_topic, unique_name
from tests.support.transactions.copier import MessageCopier
from tests.support.transactions.observing import last_stable_offset
from tests.support.waiting import PATIENCE_SEC, wait_until

RECORDS = 100_000
TRANSACTION_SIZE = 750
# A copier asks for its group's offsets before it aborts what it left open, and so waits for that timeout.
SHORT_TIMEOUT_MS = 3_000
# More than the 30 s after which a producer sends again what a broker has not answered before it was killed.
TIMEOUT_MS = 40_000


@dataclass
class CommittedReader:
    """A read_committed consumer of all partitions that reads beside what is written: `values` of each."""

    consumer: Consumer
    values: list[list[int]] = field(default_factory=list)

    def poll(self) -> int:
        """Take what is there; returns how many it has read."""
        message: Any
        for message in self.consumer.consume(5_000, timeout=0.05):
            assert message.error() is None, str(message.error())
            self.values[message.partition()].append(int(message.value()))
        return sum(map(len, self.values))


@contextlib.contextmanager
def reading(peer: Peer, topic: str, partitions: int) -> Iterator[CommittedReader]:
    consumer = Consumer(
        {
            "bootstrap.servers": peer.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "log_level": 0,  # the broker comes and goes
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    try:
        yield CommittedReader(consumer, [[] for _ in range(partitions)])
    finally:
        consumer.close()


def seed(peer: Peer, topic: str, partitions: int, count: int) -> list[list[int]]:
    """Write so many records; returns the values of each partition."""
    producer = Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 5, "enable.idempotence": True})
    for number in range(count):
        while True:
            try:
                producer.produce(topic, str(number), partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(PATIENCE_SEC) == 0
    return [list(range(partition, count, partitions)) for partition in range(partitions)]


@dataclass
class Copy:
    """Copiers at work, one for each partition."""

    peer: Peer
    copiers: list[MessageCopier]
    reader: CommittedReader

    def wait_for_more(self, copier: MessageCopier, records: int) -> None:
        """Wait until it has committed so many since its last start, or has ended."""

        def is_further() -> bool:
            self.reader.poll()
            return copier.is_done or copier.committed >= records

        wait_until(is_further, f"{copier.name} has committed {records} records")

    def wait_for_the_end(self, count: int) -> None:
        def have_ended() -> bool:
            self.reader.poll()
            return all(copier.is_done for copier in self.copiers)

        wait_until(have_ended, "the copiers have ended", 3 * PATIENCE_SEC)
        for copier in self.copiers:
            # It ends with 0 after errors, too.
            assert "unexpected error" not in copier.log_text(), copier.log_tail()
        wait_until(lambda: self.reader.poll() >= count, "all is read")


@contextlib.contextmanager
def copying(
    peer: Peer, folder: Path, partitions: int, count: int, transaction_size: int, timeout_ms: int
) -> Iterator[Copy]:
    """Copiers for the time of the block; then all must be copied, each record once and in order."""
    source, target = unique_name("source"), unique_name("target")
    create_topic(peer, source, partitions)
    create_topic(peer, target, partitions)
    expected = seed(peer, source, partitions, count)
    copiers = [
        MessageCopier(
            folder,
            peer.bootstrap,
            source,
            partition,
            target,
            transaction_size=transaction_size,
            timeout_ms=timeout_ms,
        )
        for partition in range(partitions)
    ]
    try:
        with reading(peer, target, partitions) as beside:
            for copier in copiers:
                copier.start()
            work = Copy(peer, copiers, beside)
            yield work
            work.wait_for_the_end(count)
        assert beside.values == expected
        with reading(peer, target, partitions) as after:
            wait_until(lambda: after.poll() >= count, "all is read")
        assert after.values == expected
        written = sum(last_stable_offset(peer, target, partition) for partition in range(partitions))
        print(f"{count} records copied, {written - count} offsets of markers and of aborted records")
    finally:
        for copier in copiers:
            copier.close()


@pytest.mark.usefixtures("java_processes")
@pytest.mark.nightly
def test_killed_copier_goes_on_where_it_was(peer: Peer, tmp_path: Path) -> None:
    with copying(peer, tmp_path, 1, 2_000, 50, SHORT_TIMEOUT_MS) as work:
        copier = work.copiers[0]
        work.wait_for_more(copier, 50)
        copier.kill9()
        copier.start()


@pytest.mark.nightly
@pytest.mark.usefixtures("java_processes")
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_each_record_is_copied_once_by_bounced_copiers(peer: Peer, tmp_path: Path, is_killed: bool) -> None:
    with copying(peer, tmp_path, 2, RECORDS, TRANSACTION_SIZE, SHORT_TIMEOUT_MS) as work:
        for _ in range(3):
            for copier in work.copiers:
                work.wait_for_more(copier, RECORDS // 10)
                if copier.is_done:
                    continue
                if is_killed:
                    copier.kill9()
                else:
                    copier.stop()
                copier.start()


@pytest.mark.nightly
@pytest.mark.usefixtures("java_processes")
@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_each_record_is_copied_once_over_bounces_of_the_broker(
    peer_kind: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, is_killed: bool
) -> None:
    peer = transactional_peer(peer_kind, tmp_path_factory)
    try:
        peer.start()
        with copying(peer, tmp_path, 2, RECORDS, TRANSACTION_SIZE, SHORT_TIMEOUT_MS) as work:
            for bounce in range(1, 4):
                work.wait_for_more(work.copiers[0], bounce * RECORDS // 10)
                if is_killed:
                    peer.kill9()
                else:
                    peer.stop()
                peer.start()
        peer.stop()
    finally:
        peer.close()
