"""The export without Spark and the Spark job at one table, in turns: none repeats or skips what the other wrote."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kafscale.commands.cli import main as kafscale
from spark_jobs.reconcile import main as reconcile
from tests.lake.support.exporter import LakeExporter, in_order
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
BROKEN = b"\xff\xfe"


def texts(first: int, count: int) -> list[Sent]:
    """Every fourth value is no text; every third record has headers."""
    return [
        Sent(
            key=b"%d" % number,
            value=BROKEN if number % 4 == 3 else b"text %d" % number,
            headers=(("trace", b"%d" % number), ("empty", None)) if number % 3 == 0 else (),
            timestamp_ms=1_700_000_000_000 + number * 20_000_000,
        )
        for number in range(first, first + count)
    ]


@pytest.mark.nightly
@pytest.mark.every_spark
@pytest.mark.usefixtures("logging_as_before")
def test_each_goes_on_where_the_other_ended(
    spark: SparkSession, database_catalog: IcebergCatalog, new_table: NewTable, tmp_path: Path
) -> None:
    writer = TopicWriter(embedded(tmp_path / "data"), "orders", partitions=2)
    table = new_table(database_catalog)
    text = ("--value-format", "string")
    job = Exporter(spark, writer.settings, "orders", database_catalog, table, *text)
    folder = Path(database_catalog.warehouse.removeprefix("file://"))
    database = (
        "--catalog",
        database_catalog.name,
        "--catalog-property",
        f"uri=sqlite:///{database_catalog.database}",
    )
    lake = LakeExporter(
        writer.settings, "orders", folder, *database, *text, "--table", table.split(".", 1)[1]
    )
    lake.catalog, lake.table = database_catalog, table

    writer.append(0, texts(0, 10))
    lake.export("--partition-by", "days(timestamp)")
    writer.append(1, texts(0, 7))
    job.export()
    writer.lead()
    writer.append(0, texts(10, 6))
    lake.export()
    assert lake.run().status == 0
    assert job.run().exit_code == 0

    rows = [row.asDict(recursive=True) for row in spark.table(table).collect()]
    good = [one for one in writer.stored() if one.value != BROKEN]
    assert [(row["partition"], row["offset"], row["value"], row["headers"]) for row in in_order(rows)] == [
        (one.partition, one.offset, one.value.decode() if one.value else None, one.row()["headers"])
        for one in good
    ]
    assert [(row["partition"], row["offset"]) for row in lake.dead_letters()] == [
        (one.partition, one.offset) for one in writer.stored() if one.value == BROKEN
    ]
    assert len(lake.read().history) == 3, "a commit of what the other one had written"
    assert lake.state() == job.state()

    without_spark = ["reconcile", "orders", "--to", str(folder), *database, "--table", table.split(".", 1)[1]]
    alike = CliRunner().invoke(kafscale, without_spark, env=job.environment())
    assert alike.exit_code == 0, alike.output
    compared = CliRunner().invoke(reconcile, [*job.arguments(), "--quiet"], env=job.environment())
    assert compared.exit_code == 0, compared.output
    assert "DIFFERENT" not in compared.output
