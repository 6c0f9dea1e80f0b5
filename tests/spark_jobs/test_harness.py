"""The harness itself: each catalog that tests use is written by Spark and read by pyiceberg."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.read_back import read_table, table_exists


@pytest.mark.parametrize("kind", ["local_catalog", "database_catalog", "bucket_catalog"])
def test_what_spark_writes_pyiceberg_reads(
    spark: SparkSession, new_table: Callable[[IcebergCatalog], str], request: pytest.FixtureRequest, kind: str
) -> None:
    catalog: IcebergCatalog = request.getfixturevalue(kind)
    name = new_table(catalog)
    assert not table_exists(catalog, name)
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT, text STRING) USING iceberg"
        " PARTITIONED BY (bucket(4, id)) TBLPROPERTIES ('purpose' = 'test')"
    )
    rows = spark.createDataFrame([(1, "one"), (2, None)], "id BIGINT, text STRING")
    rows.writeTo(name).option("snapshot-property.said", "first").append()
    rows.limit(0).writeTo(name).option("snapshot-property.said", "nothing").append()

    written = read_table(catalog, name)
    assert table_exists(catalog, name)
    assert sorted(written.rows, key=lambda row: row["id"]) == [
        {"id": 1, "text": "one"},
        {"id": 2, "text": None},
    ]
    assert written.columns == (("id", "long"), ("text", "string"))
    assert written.properties["purpose"] == "test"
    assert [snapshot.summary.get("said") for snapshot in written.history] == ["first", "nothing"]
    assert written.staged == ()
    assert written.partition_fields == ("bucket[4](id)",)
