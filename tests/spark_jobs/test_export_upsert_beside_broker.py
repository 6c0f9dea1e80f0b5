"""End to end beside a broker that compacts: the table is the dictionary of a consumer that reads all there is."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from kafscale.settings.broker import Settings
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.compacted_topics import SOON_ON_KAFSCALE
from tests.support.librdkafka import producer
from tests.support.metrics_page import scrape
from tests.support.waiting import PATIENCE_SEC, wait_until

PARTITIONS = 2
TOPIC = "prices"


def dictionary(broker: KafscaleBroker) -> dict[bytes, bytes]:
    """The newest value of each key, by a consumer that reads from the start."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.partition.eof": True}
    )
    found: dict[bytes, bytes] = {}
    ended: set[int] = set()

    def at_end() -> bool:
        for message in consumer.consume(1000, timeout=0.2):
            error, partition, key, value = (
                message.error(),
                message.partition(),
                message.key(),
                message.value(),
            )
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                assert partition is not None
                ended.add(partition)
                continue
            assert key is not None
            found[key] = value or b""
            if value is None:
                del found[key]
        return len(ended) == PARTITIONS

    try:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        wait_until(at_end, "the consumer has read all")
    finally:
        consumer.close()
    return found


def write(client: Producer, chosen: random.Random, count: int) -> None:
    for number in range(count):
        value = None if chosen.random() < 0.3 else b"%d" % number
        client.produce(TOPIC, value, key=b"key-%d" % chosen.randrange(30))
    assert client.flush(PATIENCE_SEC) == 0


def compactions(broker: KafscaleBroker) -> float:
    return scrape(broker).value("kafscale_compactions_total", outcome="done")


@pytest.mark.nightly
def test_a_table_beside_a_broker_that_compacts(
    spark: SparkSession,
    tmp_path: Path,
    local_catalog: IcebergCatalog,
    new_table: Callable[[IcebergCatalog], str],
) -> None:
    chosen = random.Random(1)
    with running_broker(tmp_path, **SOON_ON_KAFSCALE) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, config=configs)])[TOPIC].result(PATIENCE_SEC)
        table = new_table(local_catalog)
        exporter = Exporter(
            spark, Settings(data_dir=broker.data_folder), TOPIC, local_catalog, table, "--mode", "upsert"
        )
        client = producer(broker)
        for _ in range(4):
            write(client, chosen, 300)
            done = exporter.run()
            assert done.exit_code == 0, done.output
            before = compactions(broker)

            def compacts(more: float = before) -> bool:
                # The newest segment is not compacted.
                write(client, chosen, 1)
                return compactions(broker) > more

            wait_until(compacts, "the broker compacts")
        done = exporter.run()
        assert done.exit_code == 0, done.output
        spark.catalog.refreshTable(table)
        rows = spark.table(table).collect()
        assert sorted((bytes(row.key), bytes(row.value)) for row in rows) == sorted(
            dictionary(broker).items()
        )
        # A table that begins with what is left has the same rows.
        late = new_table(local_catalog)
        done = Exporter(spark, exporter.settings, TOPIC, local_catalog, late, "--mode", "upsert").run()
        assert done.exit_code == 0, done.output
        assert sorted(spark.table(late).collect()) == sorted(spark.table(table).collect())
