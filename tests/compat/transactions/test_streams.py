"""Kafka Streams with `exactly_once_v2` while its instances are killed and stopped: every count comes once."""

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.compat import tools
from tests.compat.compaction.java_programs import java_with_more
from tests.compat.conftest import Peer
from tests.support.process import ServerProcess, clean_environment
from tests.support.topics import create_topic, unique_name
from tests.support.transactions.programs import JAVA_SOURCES
from tests.support.waiting import PATIENCE_SEC, wait_until

PARTITIONS = 3
WORDS = 50
RECORDS = 20_000
_SIGTERM_EXIT_CODE = 143


class Instance(ServerProcess):
    """An instance of StreamsCounter.java."""

    def __init__(self, number: int, folder: Path, *arguments: str) -> None:
        super().__init__(f"streams-{number}", folder)
        state = str(folder / f"state-{number}")
        self._command = java_with_more(str(JAVA_SOURCES / "StreamsCounter.java"), *arguments, state)

    def start(self) -> None:
        self.launch(self._command, clean_environment())

    def clean_exit_code(self) -> int:
        return _SIGTERM_EXIT_CODE


class Words:
    """The application's input, of which each word must be counted once: `counts`."""

    def __init__(self, peer: Peer, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 5})
        self._topic = topic
        self._chance = random.Random(topic)
        self.counts: Counter[str] = Counter()

    def write(self, count: int) -> None:
        for number in range(count):
            word = f"word-{self._chance.randrange(WORDS)}"
            self._producer.produce(self._topic, word, partition=number % PARTITIONS)
            self.counts[word] += 1
            if not number % 1000:
                self._producer.poll(0)
        assert self._producer.flush(PATIENCE_SEC) == 0


class Counts:
    """The application's output, read committed: the counts of each word in the order in which they came."""

    def __init__(self, peer: Peer, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": peer.bootstrap,
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
        )
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.found: dict[str, list[int]] = defaultdict(list)

    def poll(self) -> int:
        """Read what is there; returns how many counts there are by now."""
        message: Any
        for message in self._consumer.consume(1_000, timeout=0.05):
            assert message.error() is None, str(message.error())
            word, count = message.value().decode().split()
            self.found[word].append(int(count))
        return sum(map(len, self.found.values()))

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_each_record_is_counted_once_by_killed_instances(peer: Peer, tmp_path: Path) -> None:
    reason = tools.compaction_jars_missing()
    if reason:
        pytest.skip(reason)
    source, target, application = unique_name("words"), unique_name("counts"), unique_name("application")
    create_topic(peer, source, PARTITIONS)
    create_topic(peer, target, PARTITIONS)
    arguments = (peer.bootstrap, application, source, target)
    instances = [Instance(number, tmp_path, *arguments) for number in range(2)]
    words, counts = Words(peer, source), Counts(peer, target)
    try:
        for one in instances:
            one.start()
        for bounce in range(6):
            words.write(RECORDS // 7)
            before = counts.poll()
            wait_until(lambda least=before + 200: counts.poll() > least, "counts come")  # type: ignore[misc]
            victim = instances[bounce % 2]
            if bounce < 4:
                victim.kill9()
            else:
                victim.stop()
            victim.start()
        words.write(RECORDS // 7)
        total = words.counts.total()
        wait_until(lambda: counts.poll() >= total, "all is counted", 3 * PATIENCE_SEC)
        for one in instances:
            one.stop()
        counts.poll()
    finally:
        counts.close()
        for one in instances:
            one.close()
    assert counts.found == {word: list(range(1, count + 1)) for word, count in words.counts.items()}
