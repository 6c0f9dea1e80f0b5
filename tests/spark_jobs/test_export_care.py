"""End to end: many small partitions in few files, and write-audit-publish with the export command."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]


@pytest.mark.nightly
@pytest.mark.every_spark
def test_small_partitions_are_one_file_of_a_commit(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable, tmp_path: Path
) -> None:
    writer = TopicWriter(embedded(tmp_path), "many", partitions=20)
    for partition in range(20):
        writer.append(partition, sent(2))
    written = Exporter(spark, writer.settings, "many", local_catalog, new_table(local_catalog)).export()
    assert len(written.data_file_bytes) == 1, "twenty before, one for each partition"
    assert written.staged == ()
    assert in_order(written.rows) == writer.rows()


@pytest.mark.nightly
def test_write_audit_publish_with_the_command(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable, tmp_path: Path
) -> None:
    writer = TopicWriter(embedded(tmp_path), "audited")
    name = new_table(local_catalog)
    exporter = Exporter(spark, writer.settings, "audited", local_catalog, name, "--value-format", "json")
    writer.append(0, [Sent(value=b'{"id": 1}'), Sent(value=b"{broken")])
    exporter.export()
    spark.conf.set("spark.wap.branch", "audit")
    try:
        for number in (2, 3):
            writer.append(0, [Sent(value=b'{"id": %d, "new": true}' % number), Sent(value=b"{broken")])
            done = exporter.run()
            assert done.exit_code == 0, done.output
        assert exporter.run().exit_code == 0
    finally:
        spark.conf.unset("spark.wap.branch")
    assert [row["offset"] for row in exporter.read().rows] == [0]
    assert [row["offset"] for row in exporter.dead_letters().rows] == [1]
    catalog, _, rest = name.partition(".")
    for table in (rest, f"{rest}_dead_letters"):
        spark.sql(f"CALL {catalog}.system.fast_forward('{table}', 'main', 'audit')")
    assert [row["offset"] for row in in_order(exporter.export().rows)] == [0, 2, 4]
    assert sorted(row["offset"] for row in exporter.dead_letters().rows) == [1, 3, 5]
    writer.append(0, [Sent(value=b'{"id": 4}')])
    assert [row["offset"] for row in in_order(exporter.export().rows)] == [0, 2, 4, 6]
