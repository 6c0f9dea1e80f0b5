"""Topics of the benchmark: created, and deleted with their data."""

import os
from itertools import count

from bench.brokers import Broker
from bench.process import machine_cpu

# Kafka's controller accepts at most 10,000 records for one request, the topic's own included.
PARTITIONS_OF_A_TOPIC = 1_000

_numbers = count(1)


def new_topic(broker: Broker, partitions: int, replicas: int = 1) -> str:
    """A topic of its own, once all its partitions have leaders."""
    topic = f"bench-{next(_numbers):04d}"
    with broker.client() as client:
        client.create_topic(topic, partitions, replicas)
    return topic


def new_topics(broker: Broker, partitions: int) -> list[str]:
    """Topics with so many partitions together: `PARTITIONS_OF_A_TOPIC` each, or fewer if there is one."""
    whole, rest = divmod(partitions, PARTITIONS_OF_A_TOPIC)
    return [new_topic(broker, size) for size in [PARTITIONS_OF_A_TOPIC] * whole + [rest] * (rest > 0)]


def drop_topic(broker: Broker, topic: str) -> None:
    """Delete it, and allow time to delete its files."""
    with broker.client() as client:
        client.delete_topic(topic)
    os.sync()


def writeback_seconds() -> float:
    """CPU of the machine while dirty pages are written: kernel threads do it, no process pays."""
    before = machine_cpu()
    os.sync()
    return (machine_cpu() - before).total
