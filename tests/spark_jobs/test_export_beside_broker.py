"""End to end beside a broker that clients write to: exports go on while it seals and merges, and after its death."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Message
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import SparkSession

from kafscale.settings.broker import Settings
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.librdkafka import producer, send_all
from tests.support.metrics_page import scrape
from tests.support.waiting import PATIENCE_SEC, wait_until

PARTITIONS = 3
ROUND_SEC = 0.05
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
Delivered = dict[tuple[int, int], bytes]


class Writer:
    """Produces, in a thread, until it is stopped. `delivered`: the acknowledged records, and their positions."""

    def __init__(self, broker: KafscaleBroker) -> None:
        self.delivered: Delivered = {}
        self._broker = broker
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer")

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()

    def wait_for(self, count: int) -> None:
        """Until so many more records were acknowledged."""
        wanted = len(self.delivered) + count
        wait_until(lambda: len(self.delivered) >= wanted, f"{wanted} records are written")

    def _report(self, error: object, message: Message) -> None:
        assert error is None, error
        place = message.partition(), message.offset()
        assert None not in place
        self.delivered[place] = message.value()  # type: ignore[index,assignment]

    def _write(self) -> None:
        clients = [producer(self._broker, compression_type=codec, linger_ms=5) for codec in CODECS]
        number = 0
        # As a steady producer: without a pause it takes a core for as long as the exports take.
        while not self._stopping.wait(ROUND_SEC):
            for client in clients:
                for partition in range(PARTITIONS):
                    value = f"record {number}, again and again, as compression likes it".encode() * 3
                    client.produce(
                        "events", value, key=b"%d" % number, partition=partition, on_delivery=self._report
                    )
                    number += 1
            for client in clients:
                assert client.flush(PATIENCE_SEC) == 0


def merges(broker: KafscaleBroker) -> float:
    return scrape(broker).value("kafscale_merges_total", outcome="published")


@pytest.mark.nightly
@pytest.mark.every_spark
def test_exports_while_clients_write_and_the_broker_merges(
    spark: SparkSession,
    tmp_path: Path,
    local_catalog: IcebergCatalog,
    new_table: Callable[[IcebergCatalog], str],
) -> None:
    with running_broker(
        tmp_path,
        flush_interval_ms=20,
        seal_interval_ms=100,
        seal_max_age_ms=1000,
        merge_check_interval_ms=100,
        merge_min_segments=3,
    ) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("events", PARTITIONS)])["events"].result(PATIENCE_SEC)
        settings = Settings(data_dir=broker.data_folder)
        exporter = Exporter(spark, settings, "events", local_catalog, new_table(local_catalog))
        with Writer(broker) as writer:
            sizes = []
            for _ in range(3):
                writer.wait_for(100)
                acknowledged = set(writer.delivered)
                written = exporter.export()
                places = {(row["partition"], row["offset"]) for row in written.rows}
                assert acknowledged <= places, "an export leaves out what was acknowledged before it began"
                sizes.append(len(written.rows))
            wait_until(lambda: merges(broker) > 0, "the broker merges")
        assert sizes == sorted(set(sizes)), "each export brings something"
        rows = in_order(exporter.export().rows)
        assert {(row["partition"], row["offset"]): row["value"] for row in rows} == writer.delivered
        assert len(rows) == len(writer.delivered)
        assert exporter.export().history == exporter.read().history


@pytest.mark.nightly
def test_a_broker_that_was_killed_leaves_all_it_acknowledged(
    spark: SparkSession,
    tmp_path: Path,
    local_catalog: IcebergCatalog,
    new_table: Callable[[IcebergCatalog], str],
) -> None:
    sent: Delivered = {}

    def send(count: int) -> None:
        for number in range(count):
            for partition in range(PARTITIONS):
                (message,) = send_all(client, "events", [b"%d of %d" % (number, count)], partition)
                assert isinstance(message, Message)
                offset = message.offset()
                assert offset is not None
                sent[partition, offset] = b"%d of %d" % (number, count)

    def exported() -> Delivered:
        rows = exporter.export().rows
        found = {(row["partition"], row["offset"]): row["value"] for row in rows}
        assert len(found) == len(rows)
        return found

    with running_broker(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("events", PARTITIONS)])["events"].result(PATIENCE_SEC)
        exporter = Exporter(
            spark, Settings(data_dir=broker.data_folder), "events", local_catalog, new_table(local_catalog)
        )
        client = producer(broker)
        send(5)
        assert exported() == sent
        send(7)
        broker.kill9()
        assert exported() == sent
        assert not list(broker.data_folder.rglob("*.kfs")), "all of it is in entries"
        broker.start()
        send(3)
        assert exported() == sent
