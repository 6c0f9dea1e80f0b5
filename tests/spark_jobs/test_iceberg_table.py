"""Tables are made when they are missing, taken as they are when they are there, and grow with what is brought."""

from collections.abc import Callable

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

from kafscale.lake.commit_errors import TableRefusedError
from spark_jobs.tables.iceberg_table import (
    ensure_table,
    fitted,
    schema_of_table,
)
from spark_jobs.tables.table_options import TableOptions
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.read_back import read_table


@pytest.fixture
def name(local_catalog: IcebergCatalog, new_table: Callable[[IcebergCatalog], str]) -> str:
    return new_table(local_catalog)


def columns(ddl: str) -> StructType:
    parsed = _parse_datatype_string(ddl)
    assert isinstance(parsed, StructType)
    return parsed


def append(spark: SparkSession, name: str, rows: list[tuple[object, ...]], ddl: str) -> None:
    schema = schema_of_table(spark, name)
    assert schema is not None
    fitted(spark.createDataFrame(rows, ddl), schema).writeTo(name).append()


def rows_of(spark: SparkSession, name: str) -> list[Row]:
    return sorted(spark.table(name).collect(), key=str)


def test_a_table_that_is_missing_is_made_as_it_was_asked_for(
    spark: SparkSession, local_catalog: IcebergCatalog, name: str
) -> None:
    assert schema_of_table(spark, name) is None
    wanted = columns(
        "key BINARY, timestamp TIMESTAMP, value STRUCT<`a-b`: BIGINT, list: ARRAY<STRUCT<x: INT>>>"
    )
    options = TableOptions(
        partition_by=["days(timestamp)", "bucket(4, key)"],
        sort_by=["timestamp desc"],
        properties={"owner-team": "it's ours"},
    )
    ensure_table(spark, name, wanted, options)
    assert schema_of_table(spark, name) == wanted
    written = read_table(local_catalog, name)
    assert written.partition_fields == ("day(timestamp)", "bucket[4](key)")
    assert written.properties["owner-team"] == "it's ours"
    assert written.properties["write.wap.enabled"] == "true"
    assert len(written.sort_fields) == 1
    ensure_table(spark, name, wanted, options)


def test_a_name_with_a_dash(spark: SparkSession, local_catalog: IcebergCatalog, name: str) -> None:
    dashed = name.replace(".db.", ".my-db.") + "-x"
    ensure_table(spark, dashed, columns("a INT"), TableOptions())
    assert schema_of_table(spark, dashed) == columns("a INT")


def test_columns_are_added_and_widened_and_rows_fit_by_name(spark: SparkSession, name: str) -> None:
    ensure_table(spark, name, columns("value STRUCT<b: INT, a: STRING>"), TableOptions())
    append(spark, name, [((1, "x"),)], "value STRUCT<b: INT, a: STRING>")
    wider = "value STRUCT<a: STRING, c: ARRAY<STRUCT<y: INT, x: INT>>, b: BIGINT>, offset BIGINT"
    ensure_table(spark, name, columns(wider), TableOptions())
    append(spark, name, [(("y", [(2, 1)], 2**40), 7), (None, 8)], wider)
    # An exporter that knows less of the values than the table has.
    append(spark, name, [((3, "z"), 9)], "value STRUCT<b: INT, a: STRING>, offset BIGINT")
    found = {row.offset: row.value for row in spark.table(name).collect()}
    assert found[None].asDict(True) == {"b": 1, "a": "x", "c": None}
    assert found[7].asDict(True) == {"b": 2**40, "a": "y", "c": [{"y": 2, "x": 1}]}
    assert found[8] is None
    assert found[9].asDict(True) == {"b": 3, "a": "z", "c": None}


def test_maps_and_lists_of_structs_keep_their_fields(spark: SparkSession, name: str) -> None:
    ensure_table(
        spark,
        name,
        columns("m MAP<STRING, STRUCT<p: INT, q: INT>>, l ARRAY<STRUCT<p: INT, q: INT>>"),
        TableOptions(),
    )
    append(
        spark,
        name,
        [({"k": (2, 1)}, [(2, 1), None])],
        "m MAP<STRING, STRUCT<q: INT, p: INT>>, l ARRAY<STRUCT<q: INT, p: INT>>",
    )
    (row,) = rows_of(spark, name)
    assert row.m["k"].asDict() == {"p": 1, "q": 2}
    assert [one and one.asDict() for one in row.l] == [{"p": 1, "q": 2}, None]


def test_a_table_of_another_program_keeps_its_columns(spark: SparkSession, name: str) -> None:
    namespace = name.rpartition(".")[0]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(f"CREATE TABLE {name} (loaded DATE, value STRING) USING iceberg")
    brought = columns("value STRING, offset BIGINT")
    ensure_table(spark, name, brought, TableOptions(adds_columns=False))
    append(spark, name, [("a", 1)], "value STRING, offset BIGINT")
    ensure_table(spark, name, brought, TableOptions())
    append(spark, name, [("b", 2)], "value STRING, offset BIGINT")
    assert [tuple(row) for row in rows_of(spark, name)] == [(None, "a", None), (None, "b", 2)]


def test_a_column_that_the_table_requires_is_named(spark: SparkSession, name: str) -> None:
    namespace = name.rpartition(".")[0]
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    spark.sql(f"CREATE TABLE {name} (tenant STRING NOT NULL, value STRING) USING iceberg")
    with pytest.raises(TableRefusedError, match=r"requires column 'tenant'.*DROP NOT NULL"):
        ensure_table(spark, name, columns("value STRING"), TableOptions())


def test_types_that_cannot_be_joined_are_named(spark: SparkSession, name: str) -> None:
    ensure_table(spark, name, columns("value STRING"), TableOptions())
    with pytest.raises(TableRefusedError, match="cannot take the columns of the export"):
        ensure_table(spark, name, columns("value STRUCT<a: INT>"), TableOptions())
    assert schema_of_table(spark, name) == columns("value STRING")
