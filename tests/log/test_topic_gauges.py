"""A broker's metrics of each topic that it leads."""

import pytest

from kafscale.log import led_partitions
from kafscale.ops.metrics import OTHER_TOPICS, Metrics
from tests.support import wire
from tests.support.in_process_broker import InProcessBroker, in_process_broker
from tests.support.log_transactions import writer


def read(metrics: Metrics, name: str) -> dict[str, float]:
    """The series of a gauge, by topic."""
    return {labels[0]: value for labels, value in metrics.series_readings[name]()}


async def write(broker: InProcessBroker, topic: str, count: int) -> None:
    async with broker.connect() as client:
        for number in range(count):
            part = await client.produce(topic, 0, wire.batch([b"value %d" % number]))
            assert part.error_code == 0


async def test_flushes_and_stored_bytes_are_those_of_the_topic() -> None:
    async with in_process_broker() as broker:
        await broker.create_topic("orders", partitions=3)
        await broker.create_topic("bills")
        await write(broker, "orders", 3)
        await write(broker, "bills", 1)
        assert {name: topic.flushes for name, topic in broker.metrics.topics.items()} == {
            "orders": 3,
            "bills": 1,
        }
        assert read(broker.metrics, "kafscale_topic_partitions_led") == {"orders": 3, "bills": 1}
        stored = {topic: broker.partition(topic).references for topic in ("orders", "bills")}
        assert read(broker.metrics, "kafscale_topic_stored_bytes") == {
            topic: references.size_bytes for topic, references in stored.items() if references is not None
        }
        assert broker.metrics.readings["kafscale_partitions_led"][()]() == 4


async def test_the_lag_of_open_transactions_is_the_largest_of_a_topic() -> None:
    name = "kafscale_topic_last_stable_offset_lag"
    async with in_process_broker() as broker:
        for topic in ("orders", "bills", "idle"):
            await broker.create_topic(topic, partitions=3)
        first, second, third = (writer(broker, *one) for one in (("orders", 0), ("orders", 2), ("bills", 1)))
        await first.append(1, [b"a"])
        await second.append(1, [b"b", b"c", b"d"])
        await third.append(1, [b"e"])
        assert read(broker.metrics, name) == {"orders": 3, "bills": 1}
        await second.abort(1)
        await third.commit(1)
        assert read(broker.metrics, name) == {"orders": 1}


async def test_topics_beyond_the_bound_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(led_partitions, "MAX_TOPICS", 2)
    async with in_process_broker() as broker:
        for number in range(4):
            await broker.create_topic(f"topic-{number}", partitions=number + 1)
        assert read(broker.metrics, "kafscale_topic_partitions_led") == {
            "topic-0": 1,
            "topic-1": 2,
            OTHER_TOPICS: 7,
        }


async def test_a_topic_without_a_partition_here_is_not_exported() -> None:
    async with in_process_broker() as broker:
        assert read(broker.metrics, "kafscale_topic_partitions_led") == {}
        assert read(broker.metrics, "kafscale_topic_stored_bytes") == {}
