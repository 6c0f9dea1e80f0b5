"""Flat tables: the fields of values are columns, what Kafka knows is in `_kafka`, and both evolve and reconcile."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from pyspark.sql import types as st

from kafscale.errors import SettingError
from kafscale.lake.commit_errors import TableRefusedError
from spark_jobs.job import batch_write
from spark_jobs.reconcile import main as reconcile
from spark_jobs.tables import publish as publishing
from spark_jobs.tables.flat_rows import check_shape, flattened, is_flat, value_type_of, without_reserved
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]


def values(*contents: object) -> list[Sent]:
    return [
        Sent(
            key=b"k%d" % number,
            value=one if one is None or isinstance(one, bytes) else json.dumps(one).encode(),
            headers=(("number", b"%d" % number),),
        )
        for number, one in enumerate(contents)
    ]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path), "orders")


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(
        spark, writer.settings, "orders", local_catalog, new_table(local_catalog), "--value-format", "json"
    )


def reconciled(exporter: Exporter) -> int:
    done = CliRunner().invoke(reconcile, exporter.arguments("--quiet"), env=exporter.environment())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code


@pytest.mark.nightly
@pytest.mark.every_spark
def test_flat_tables_evolve_and_reconcile(
    spark: SparkSession, writer: TopicWriter, exporter: Exporter
) -> None:
    layout = ("--partition-by", "country, days(_kafka.timestamp)", "--sort-by", "id desc")
    writer.append(0, values({"id": 1, "country": "de"}, None, {"id": 2, "country": "fr", "user.name": "x"}))
    done = exporter.run("--flatten", *layout)
    assert done.exit_code == 0, done.output
    table = spark.table(exporter.table)
    assert table.columns == ["country", "id", "user.name", "_kafka"]
    assert table.select("_kafka.*").columns == [
        "key",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
        "tombstone",
    ]

    # A new field; `{}`, which is no tombstone; and names that the table has for other things.
    writer.append(0, values({"id": 3, "vip": True}, {}, {"id": 4, "_kafka": 1}, {"_POS": 1}, b"["))
    done = exporter.run("--flatten", *layout)
    assert done.exit_code == 0, done.output
    spark.catalog.refreshTable(exporter.table)
    rows = spark.table(exporter.table).orderBy("_kafka.offset")
    assert rows.columns == ["country", "id", "user.name", "_kafka", "vip"]
    assert [
        (row.id, row.country, row["user.name"], row.vip, row.tombstone)
        for row in rows.select("*", "_kafka.tombstone").collect()
    ] == [
        (1, "de", None, None, False),
        (None, None, None, None, True),
        (2, "fr", "x", None, False),
        (3, None, None, True, False),
        (None, None, None, None, False),
    ]
    assert [row["offset"] for row in exporter.dead_letters().rows] == [5, 6, 7]
    assert reconciled(exporter) == 0
    spark.sql(f"DELETE FROM {exporter.table} WHERE id = 2")
    assert reconciled(exporter) == 3

    refused = exporter.run()
    assert refused.exit_code == 0, "there is nothing to export"
    writer.append(0, values({"id": 9}))
    refused = exporter.run()
    assert refused.exit_code == 1
    assert f"table {exporter.table} is flat: export with --flatten" in refused.output


def test_values_without_fields_cannot_be_flat(exporter: Exporter) -> None:
    for value_format in ("bytes", "string", "json-variant"):
        refused = exporter.run("--value-format", value_format, "--flatten")
        assert refused.exit_code == 2
        assert f"--flatten is of no use with --value-format {value_format}" in refused.output


def test_fields_that_cannot_be_columns_are_named(spark: SparkSession) -> None:
    coordinates = st.StructType().add("topic", "string").add("partition", "integer").add("offset", "long")
    for field in ("_kafka", "_Kafka", "_file", "_row_id"):
        value = st.StructType().add("id", "long").add(field, "string")
        rows = spark.createDataFrame([], st.StructType([*coordinates, st.StructField("value", value)]))
        with pytest.raises(
            SettingError, match=f"values with a field '{field}': the table has a column of that"
        ):
            flattened(rows)
        assert without_reserved(value) == st.StructType().add("id", "long")
    rows = spark.createDataFrame(
        [], st.StructType([*coordinates]).add("value", st.ArrayType(st.IntegerType()))
    )
    with pytest.raises(SettingError, match="--flatten is not legal for values of type array<int>"):
        flattened(rows)


def test_shapes_are_told_apart() -> None:
    kafka = st.StructType().add("topic", "string").add("partition", "integer").add("offset", "long")
    flat = st.StructType().add("id", "long").add("_kafka", kafka)
    plain = st.StructType().add("value", "string").add("offset", "long")
    assert (is_flat(flat), is_flat(plain)) == (True, False)
    assert value_type_of(flat) == st.StructType().add("id", "long")
    assert value_type_of(plain) == st.StringType()
    check_shape("t", flat, flattens=True)
    check_shape("t", plain, flattens=False)
    check_shape("t", None, flattens=True)
    with pytest.raises(TableRefusedError, match="table t is not flat: it has no column '_kafka'"):
        check_shape("t", plain, flattens=True)


@pytest.mark.nightly
def test_flat_tables_of_routes_and_dead_letters_that_come_back(
    spark: SparkSession, writer: TopicWriter, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = exporter.table
    routes = ("--flatten", "--route-by", "field:kind", "--route", f"*={table}_{{route}}")

    def read(suffix: str = "") -> list[dict[str, object]]:
        spark.catalog.refreshTable(table + suffix)
        rows = spark.table(table + suffix).orderBy("_kafka.offset").select("_kafka.offset", "*").collect()
        return [{name: value for name, value in row.asDict().items() if name != "_kafka"} for row in rows]

    # Killed between the commits to the tables of routes: what a flat table has is not written again.
    writer.lead()
    writer.append(0, values({"kind": "a", "id": 1}, {"kind": "b", "name": "x"}, None, {"kind": "a", "id": 2}))
    published: list[str] = []
    original = publishing.publish

    def once(session: SparkSession, name: str, *more: Any) -> None:
        if published:
            raise RuntimeError("killed")
        published.append(name)
        original(session, name, *more)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError, match="killed"):
        patched.setattr(batch_write, "publish", once)
        exporter.run(*routes)
    assert published == [f"{table}_a"]
    done = exporter.run(*routes)
    assert done.exit_code == 0, done.output
    assert read() == [{"offset": 2}]
    assert read("_a") == [{"offset": 0, "id": 1, "kind": "a"}, {"offset": 3, "id": 2, "kind": "a"}]
    assert read("_b") == [{"offset": 1, "kind": "b", "name": "x"}]

    # Dead letters for as long as the table has no such field.
    writer.append(0, values({"kind": "a", "id": 3, "new": 1}, {"kind": "a", "id": 4}))
    done = exporter.run(*routes, "--max-fields", "2")
    assert done.exit_code == 0, done.output
    assert [row["offset"] for row in exporter.dead_letters().rows] == [4]
    done = exporter.run(*routes, "--replay-dead-letters")
    assert done.exit_code == 0, done.output
    assert exporter.dead_letters().rows == []
    assert read("_a")[2:] == [
        {"offset": 4, "id": 3, "kind": "a", "new": 1},
        {"offset": 5, "id": 4, "kind": "a", "new": None},
    ]
