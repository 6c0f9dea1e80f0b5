"""Small files come together and old snapshots go, and the table keeps its rows and what it says of itself."""

import uuid
from collections.abc import Callable

from pyspark.sql import SparkSession

from spark_jobs.tables.iceberg_table import ensure_table
from spark_jobs.tables.maintenance import Maintenance, maintain
from spark_jobs.tables.publish import publish, read_state, stage
from spark_jobs.tables.table_options import TableOptions
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.read_back import read_table


def test_a_table_after_many_small_commits(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: Callable[[IcebergCatalog], str]
) -> None:
    name = new_table(local_catalog) + "-daily"
    rows = spark.range(0, 2, 1, 1).selectExpr("id AS offset")
    ensure_table(spark, name, rows.schema, TableOptions())
    state = read_state(spark, name, "orders")
    for commit in range(5):
        after = state.after(
            commit_id=uuid.uuid4().hex,
            topic_id="t",
            starts={0: 0},
            exported={0: ((2 * commit, 2 * commit + 2),)},
            gaps={},
        )
        publish(spark, name, stage(rows, name, after.commit_id, {}), state, after)
        state = after
    assert maintain(spark, name, Maintenance()) == []
    assert len(read_table(local_catalog, name).data_file_bytes) == 5
    compacted, expired = maintain(spark, name, Maintenance(compacts=True, expire_older_than_sec=0))
    assert compacted == f"{name}: 5 files put together into 1"
    assert expired.startswith(f"{name}: snapshots older than 0 s expired")
    written = read_table(local_catalog, name)
    assert (len(written.data_file_bytes), len(written.history), written.staged) == (1, 1, ())
    assert len(written.rows) == 10
    assert read_state(spark, name, "orders") == state
