"""A behaviour of librdkafka that the group tests avoid (tests/support/group_beginning.py), shown with one partition.

KAFSCALE_TEST_PEER=kafka runs the same on Apache Kafka. It is known of librdkafka up to 2.16 only. Should it fail
there with a newer one, whose version is then to be entered below, that one does not forget its position any more,
and the groups of test_group_chaos.py may all begin with nothing committed.
"""

import contextlib
import logging
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition, libversion

from tests.support import librdkafka
from tests.support.group_peer import Peer, group_peer
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until

RECORDS, BEGIN_AT = 30, 20
KNOWN_OF = 0x0210_00FF  # librdkafka 2.16.0


class Heard(logging.Handler):
    """Keeps what a client says."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextlib.contextmanager
def stopped(broker: Peer) -> Iterator[None]:
    """It answers nothing in the block."""
    broker.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        broker.send_signal(signal.SIGCONT)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Peer]:
    with group_peer(tmp_path / "broker") as peer:
        yield peer


@pytest.fixture
def topic(broker: Peer) -> str:
    name = unique_name()
    create_topic(broker, name, 1)
    librdkafka.send_all(librdkafka.producer(broker), name, [b"%d" % n for n in range(RECORDS)])
    return name


if libversion()[1] <= KNOWN_OF:  # not a skip: nothing that is to be tested is left out

    def test_late_answer_rewinds_librdkafka_after_reassignment(broker: Peer, topic: str) -> None:
        heard = Heard()
        log = logging.Logger(topic, logging.DEBUG)
        log.addHandler(heard)
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "unused",
                "debug": "topic,fetch",
                "log_level": 7,
            },
            logger=log,
        )

        def says(text: str) -> bool:
            assert consumer.poll(0) is None
            return any(text in line for line in heard.lines)

        with contextlib.closing(consumer):
            # Now it is connected to the leader, and has not fetched: a fetch would tell where the log begins.
            assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_SEC) == (
                0,
                RECORDS,
            )
            heard.lines.clear()
            with stopped(broker):
                consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
                wait_until(lambda: says("ListOffsetsRequest"), "it asks where the log begins")
                consumer.unassign()
                consumer.assign([TopicPartition(topic, 0, BEGIN_AT)])
                wait_until(lambda: says(f"Fetch topic {topic} [0] at offset {BEGIN_AT} "), "it fetches")
            read = [one.offset() for one in librdkafka.take(consumer, 2 * RECORDS - BEGIN_AT)]
        assert read == [*range(BEGIN_AT, RECORDS), *range(RECORDS)]
