"""End to end: one topic in several tables, by a header or a field, and dead letters that find their way later."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.read_back import read_table
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
FRAME = b"\0\0\0\0\7"


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=1)
    writer.lead()
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    table = new_table(local_catalog)
    return Exporter(spark, writer.settings, "orders", local_catalog, table, "--value-format", "json")


def values_in(exporter: Exporter, suffix: str) -> list[object]:
    return [row["value"] for row in in_order(read_table(exporter.catalog, exporter.table + suffix).rows)]


@pytest.mark.nightly
@pytest.mark.every_spark
def test_tables_by_header_and_dead_letters_that_come_back(writer: TopicWriter, exporter: Exporter) -> None:
    writer.append(
        0,
        [
            Sent(value=FRAME + b'{"id": 0}', headers=(("kind", b"x"), ("kind", b"a"))),
            Sent(value=b'{"id": 1}', headers=(("kind", b"a"),)),
            Sent(value=FRAME + b'{"id": 2}', headers=(("kind", b"\xff"),)),
            Sent(value=b'{"id": 3}'),
        ],
    )
    options = ["--route-by", "header:kind", "--route", f"a={exporter.table}_a", "--schema", "id INT"]
    options += ["--unknown-route", "table"]
    own = exporter.export(*options, "--framing", "confluent")
    assert [row["value"] for row in own.rows] == [{"id": 2}]
    assert values_in(exporter, "_a") == [{"id": 0}]
    assert [row["offset"] for row in in_order(exporter.dead_letters().rows)] == [1, 3]

    done = exporter.run(*options, "--replay-dead-letters")
    assert done.exit_code == 0, done.output
    assert values_in(exporter, "") == [{"id": 2}, {"id": 3}]
    assert values_in(exporter, "_a") == [{"id": 0}, {"id": 1}]
    assert exporter.dead_letters().rows == []
    assert exporter.state().exported == {0: ((0, 4),)}


@pytest.mark.nightly
def test_tables_by_a_field(writer: TopicWriter, exporter: Exporter) -> None:
    values = [
        b'{"k": {"n": "a"}, "x": 1}',
        FRAME + b'{"k": {"n": "b.c"}}',
        b'{"k": {"n": 7}}',
        b'{"k": 1}',
        b"{",
        None,
    ]
    writer.append(0, [*(Sent(value=value) for value in values), Sent(key=b"\xff", value=None)])
    pattern = f"*={exporter.table}_{{route}}"
    routes = ("--route-by", "field:k.n", "--route", pattern, "--max-route-tables", "2")
    own = exporter.export(*routes, "--key-format", "string")
    assert [row["offset"] for row in own.rows] == [5], "a tombstone"
    letters = {row["offset"]: row["error"] for row in exporter.dead_letters().rows}
    assert letters == {
        1: "route b.c names no table",
        3: "value.k.n: is not there, or null",
        4: "value.k.n: is not there, or null",
        6: "key: is not UTF-8",
    }
    assert values_in(exporter, "_a") == [{"k": {"n": "a"}, "x": 1}]
    assert values_in(exporter, "_7") == [{"k": {"n": 7}}]
