"""End to end on etcd and a bucket: an export beside merging, retention, crashes and other exporters."""

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kafscale.lake.export_lease import hold_export
from kafscale.protocol.compression import Codec
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_process import export_process, spark_home
from tests.spark_jobs.support.export_runs import Exporter, in_order, state_in, store_environment
from tests.spark_jobs.support.gated_export import Point
from tests.spark_jobs.support.held_reads import while_segments_are_read
from tests.spark_jobs.support.lake_stores import LakeStores, lake_stores
from tests.spark_jobs.support.processes import children_of, command_of, descendants_of
from tests.spark_jobs.support.sent_records import batches_of, sent
from tests.spark_jobs.support.topic_writer import TopicWriter

NewTable = Callable[[IcebergCatalog], str]
LEASE_SEC = 5
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LakeStores]:
    with lake_stores(tmp_path_factory.mktemp("cluster")) as opened:
        yield opened


@pytest.fixture
def writer(stores: LakeStores) -> TopicWriter:
    """A topic of a namespace of its own: two partitions of three segments each."""
    settings = replace(stores.direct, s3_namespace=f"cluster-{next(_numbers)}")
    writer = TopicWriter(settings, "events", partitions=2)
    for start in range(0, 30, 10):
        writer.append(0, sent(10, "of 0", first=start), Codec.ZSTD, batch_records=5)
        writer.append(1, sent(10, "of 1", first=start), Codec.LZ4)
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession,
    stores: LakeStores,
    writer: TopicWriter,
    bucket_catalog: IcebergCatalog,
    new_table: NewTable,
) -> Exporter:
    """It reads through the proxy."""
    settings = replace(writer.settings, s3_endpoint=stores.proxy.url)
    return Exporter(spark, settings, "events", bucket_catalog, new_table(bucket_catalog))


@pytest.mark.nightly
@pytest.mark.every_spark
def test_segments_that_are_merged_while_they_are_read(
    stores: LakeStores, writer: TopicWriter, exporter: Exporter
) -> None:
    def merge() -> None:
        writer.merge(0)
        writer.merge(1)

    with while_segments_are_read(stores.proxy, merge):
        written = exporter.export()
    assert in_order(written.rows) == writer.rows()
    assert stores.proxy.count("GET", ".kfs", "404") > 0, "the sources were there all the time"
    assert exporter.export().history == written.history


@pytest.mark.nightly
@pytest.mark.every_spark
def test_segments_that_expire_during_a_read_are_named(
    stores: LakeStores, writer: TopicWriter, exporter: Exporter
) -> None:
    expected = writer.rows()
    with while_segments_are_read(stores.proxy, lambda: writer.move_log_start(0, 15)):
        refused = exporter.run()
    assert refused.exit_code == 1
    assert "expired before it was exported: events-0 offsets 0 to 14" in refused.output, refused.output
    assert "run again with --on-expired record" in refused.output
    assert exporter.read().rows == []
    written = exporter.export("--on-expired", "record")
    there = [row for row in expected if row["partition"] == 1 or row["offset"] >= 15]
    assert in_order(written.rows) == there


SLICES = r"0000[0-3]\.entry$"
"""Of what `in_a_journal` writes; a plan asks for the entry behind them."""


@pytest.fixture
def in_a_journal(writer: TopicWriter) -> TopicWriter:
    """With four entries that the records name."""
    writer.lead()
    for number in range(4):
        writer.append_entry({one: batches_of(sent(5, f"{number} of {one}")) for one in range(2)})
    writer.consolidate()
    return writer


@pytest.mark.nightly
def test_slices_that_are_sealed_and_gathered_while_they_are_read(
    stores: LakeStores, in_a_journal: TopicWriter, exporter: Exporter
) -> None:
    def seal() -> None:
        in_a_journal.seal(0)
        in_a_journal.gather(1)

    with while_segments_are_read(stores.proxy, seal, pattern=SLICES):
        written = exporter.export()
    assert in_order(written.rows) == in_a_journal.rows()
    assert stores.proxy.count("GET", ".entry", "404") > 0, "the entries were there all the time"
    in_a_journal.append(0, sent(2, "behind its record"))
    assert in_order(exporter.export().rows) == in_a_journal.rows()


@pytest.mark.nightly
def test_slices_that_expire_during_a_read_are_named(
    stores: LakeStores, in_a_journal: TopicWriter, exporter: Exporter
) -> None:
    expected = in_a_journal.rows()

    def expire() -> None:
        in_a_journal.move_log_start(0, 40)
        in_a_journal.gather(1)

    with while_segments_are_read(stores.proxy, expire, pattern=SLICES):
        refused = exporter.run()
    assert refused.exit_code == 1
    assert "expired before it was exported: events-0 offsets 0 to 39" in refused.output, refused.output
    assert exporter.read().rows == []
    written = exporter.export("--on-expired", "record")
    there = [row for row in expected if row["partition"] == 1 or row["offset"] >= 40]
    assert in_order(written.rows) == there


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_python_worker_that_is_killed_costs_nothing_but_time(
    stores: LakeStores, writer: TopicWriter, exporter: Exporter
) -> None:
    gateway = SparkContext._gateway
    assert gateway is not None
    killed: list[int] = []

    def kill() -> None:
        for daemon in children_of(gateway.proc.pid):
            for worker in children_of(daemon):
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

    with while_segments_are_read(stores.proxy, kill):
        done = exporter.run()
    assert killed
    # A Spark of one machine repeats no task.
    assert done.exit_code == 1
    assert exporter.read().rows == []
    assert in_order(exporter.export().rows) == writer.rows()


@pytest.mark.nightly
def test_killed_executors_are_replaced_within_the_run(
    stores: LakeStores,
    writer: TopicWriter,
    exporter: Exporter,
    local_catalog: IcebergCatalog,
    new_table: NewTable,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    target = Exporter(spark, exporter.settings, "events", local_catalog, new_table(local_catalog))
    arguments = target.arguments("--warehouse", local_catalog.warehouse, "--master", "local-cluster[1,1,512]")
    environment = target.environment() | {"SPARK_HOME": str(spark_home(tmp_path / "spark"))}
    killed: list[int] = []
    with export_process(
        tmp_path, arguments, environment=environment, spark={"spark.executor.memory": "512m"}
    ) as driver:

        def kill() -> None:
            killed.extend(one for one in descendants_of(driver.pid) if EXECUTOR in command_of(one))
            for executor in killed:
                os.kill(executor, signal.SIGKILL)

        with while_segments_are_read(stores.proxy, kill):
            assert driver.finish() == 0, driver.log_tail()
    assert killed
    assert in_order(target.read().rows) == writer.rows()
    assert len(target.read().history) == 1


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_topic_that_another_exporter_has_is_refused(writer: TopicWriter, exporter: Exporter) -> None:
    with hold_export(writer.settings, "events", "the other", LEASE_SEC):
        refused = exporter.run("--lease-ttl", str(LEASE_SEC))
    assert refused.exit_code == 1
    assert "the other" in refused.output, refused.output
    assert in_order(exporter.export("--wait", "60", "--lease-ttl", str(LEASE_SEC)).rows) == writer.rows()


@pytest.mark.nightly
def test_one_exporter_at_a_time_and_a_late_one_cannot_commit(
    stores: LakeStores,
    writer: TopicWriter,
    exporter: Exporter,
    local_catalog: IcebergCatalog,
    new_table: NewTable,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    second = Exporter(spark, writer.settings, "events", local_catalog, new_table(local_catalog))
    arguments = second.arguments(
        "--warehouse", local_catalog.warehouse, "--master", "local[1]", "--lease-ttl", str(LEASE_SEC)
    )
    environment = store_environment(writer.settings)
    with export_process(tmp_path, arguments, points=[Point.COMMITTING], environment=environment) as first:
        first.wait_at(Point.COMMITTING)
        refused = second.run("--lease-ttl", str(LEASE_SEC))
        assert refused.exit_code == 1
        assert str(first.pid) in refused.output, refused.output

        first.pause()
        written = second.export("--wait", "60", "--lease-ttl", str(LEASE_SEC))
        assert in_order(written.rows) == writer.rows()
        first.go_on(Point.COMMITTING)
        first.resume()
        assert first.finish() == 1
        assert "another exporter" in first.log_text(), first.log_tail()
    after = second.read()
    assert after.history == written.history
    assert state_in(after.properties, "events").exported == {0: ((0, 30),), 1: ((0, 30),)}
    writer.append(0, sent(1, first=30))
    assert in_order(second.export().rows) == writer.rows()
