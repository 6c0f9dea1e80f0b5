"""An export reads each record of a batch once, whatever it finds in it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.job import decoded_batch
from spark_jobs.job.spark_progress import _rows_of
from spark_jobs.spark_lines import NEWEST, installed_line
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
pytestmark = pytest.mark.skipif(installed_line() != NEWEST, reason="older ones read dead letters again")


class ReadRows:
    """The rows that the source has delivered to Spark's queries since it was last asked, reads again included."""

    def __init__(self, spark: SparkSession) -> None:
        self._store: Any = spark._jsparkSession.sharedState().statusStore()
        self._seen = self._store.executionsCount()

    def __call__(self) -> int:
        seen, self._seen = self._seen, self._store.executionsCount()
        if seen == self._seen:
            return 0
        executions = self._store.executionsList(seen, self._seen - seen)
        return sum(
            _rows_of(self._store, executions.apply(index).executionId()) for index in range(executions.size())
        )


def numbered(*numbers: int, **more: object) -> list[Sent]:
    return [
        Sent(key=b"%d" % number, value=json.dumps({"number": number, **more}).encode()) for number in numbers
    ]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path), "orders", partitions=2)


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(
        spark, writer.settings, "orders", local_catalog, new_table(local_catalog), "--value-format", "json"
    )


def test_every_batch_is_read_once(spark: SparkSession, writer: TopicWriter, exporter: Exporter) -> None:
    """Sorted, with dead letters, inferred, and from the middle of a merged segment with gaps on."""
    read = ReadRows(spark)
    writer.append(0, [*numbered(*range(10)), Sent(value=b"{"), *numbered(11)])
    writer.append(1, numbered(*range(20, 30)))
    exporter.export("--sort-by", "value.number desc", "--partition-by", "partition")
    assert read() == 22
    assert len(exporter.dead_letters().rows) == 1

    read()
    writer.append(0, [*numbered(12, 13), Sent(value=b"no JSON", gap=3), *numbered(15)])
    writer.append(0, numbered(*range(16, 20)))
    writer.merge(0)
    assert len(writer.keys(0)) == 1
    table = exporter.export()
    assert read() == 8
    found = [row["value"]["number"] for row in in_order(table.rows) if row["partition"] == 0]
    assert found == [*range(10), *range(11, 14), *range(15, 20)]
    assert [letter["value"] for letter in in_order(exporter.dead_letters().rows)] == [b"{", b"no JSON"]


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_batch_that_makes_the_type_grow_is_read_again(
    spark: SparkSession, writer: TopicWriter, exporter: Exporter
) -> None:
    writer.append(0, numbered(*range(10)))
    exporter.export()
    read = ReadRows(spark)
    writer.append(0, [*numbered(10), *numbered(11, name="eleven"), Sent(value=b"[]")])
    table = exporter.export()
    assert read() == 6
    assert [row["value"].get("name") for row in in_order(table.rows)] == [*[None] * 11, "eleven"]
    assert [letter["offset"] for letter in exporter.dead_letters().rows] == [12]


def test_dead_letters_that_are_too_many_are_read_again(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, writer: TopicWriter, exporter: Exporter
) -> None:
    """The letters that come back with the rows are bounded."""
    monkeypatch.setattr(decoded_batch, "_KEPT_BYTES", 3_000)
    values = [b"{" + bytes([number]) * 700 for number in range(1, 6)]
    writer.append(0, [*numbered(0), *[Sent(value=value) for value in values], *numbered(6)])
    read = ReadRows(spark)
    exporter.export("--schema", "number INT")
    assert read() == 2 * 7
    assert [letter["value"] for letter in in_order(exporter.dead_letters().rows)] == values


@pytest.mark.nightly
def test_a_sorted_table_of_earlier_versions_is_read_once(
    spark: SparkSession, writer: TopicWriter, exporter: Exporter
) -> None:
    """They left it distributed by ranges, for which Spark samples the rows first."""
    writer.append(0, numbered(3, 1, 2))
    options = ("--schema", "number INT", "--sort-by", "value.number")
    exporter.export(*options)
    spark.sql(f"ALTER TABLE {exporter.table} SET TBLPROPERTIES ('write.distribution-mode' = 'range')")
    writer.append(0, numbered(6, 5, 4))
    read = ReadRows(spark)
    table = exporter.export(*options)
    assert read() == 3
    assert table.properties["write.distribution-mode"] == "range"
    writer.append(0, numbered(9, 8, 7))
    exporter.export(*options, "--table-property", "write.distribution-mode=range")
    assert read() > 3, "who asks for it gets it"
