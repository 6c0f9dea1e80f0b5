"""Brokers are killed, restarted and fenced at random while a client produces: nothing acknowledged is lost."""

import random
import threading
import time

from confluent_kafka import Producer

from kafscale.testing import KafkaBroker, KafkaCluster
from tests.support.nightly import by_day
from tests.support.waiting import PATIENCE_SEC

PARTITIONS = 4


class _Producing:
    """A thread with an idempotent producer, until `end`."""

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: set[int] = set()
        self.failures: list[object] = []
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 5,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _delivered(self, problem: object, message: object) -> None:
        if problem is not None:
            self.failures.append(problem)
        else:
            self.acknowledged.add(int(message.value()))  # type: ignore[attr-defined]

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.002):
            self._producer.produce(
                "orders", str(number), partition=number % PARTITIONS, on_delivery=self._delivered
            )
            self._producer.poll(0)
            number += 1
        self.left = self._producer.flush(PATIENCE_SEC)

    def end(self) -> None:
        self._ended.set()
        self._thread.join()


def _trouble(broker: KafkaBroker, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0:
            broker.kill()
            time.sleep(rng.random() / 10)  # other brokers take over meanwhile
            broker.restart()
        case 1:
            broker.kill(lease_ends=False)
            broker.restart()
        case 2:
            broker.restart()
        case _:
            broker.fence()


def test_no_acknowledged_record_is_lost_or_doubled() -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    with KafkaCluster(2) as cluster:
        cluster.create_topic("orders", partitions=PARTITIONS)
        producing = _Producing(cluster.bootstrap)
        try:
            for _ in range(by_day(8, by_night=200)):
                time.sleep(rng.random() / 10)
                _trouble(cluster.brokers[rng.randrange(2)], rng)
        finally:
            producing.end()
        stored = [
            [int(record.value or b"") for record in cluster.records("orders", partition)]
            for partition in range(PARTITIONS)
        ]
    assert not producing.failures
    assert producing.left == 0
    assert all(numbers == sorted(set(numbers)) for numbers in stored)
    assert {number for numbers in stored for number in numbers} == producing.acknowledged
