"""End to end: an export whose driver is killed anywhere, and started again, neither loses nor repeats a row."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_process import export_process
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.gated_export import Point
from tests.spark_jobs.support.read_back import WrittenTable, table_exists
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
BROKEN = b"{broken"


def json_records(first: int, count: int) -> list[Sent]:
    """Every fifth value is broken."""
    return [
        Sent(key=b"%d" % number, value=BROKEN if number % 5 == 3 else b'{"id": %d}' % number)
        for number in range(first, first + count)
    ]


def places(written: WrittenTable) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in in_order(written.rows)]


def check_killed(exporter: Exporter, writer: TopicWriter, folder: Path, point: Point) -> None:
    """A run that is killed at the point, and one after it."""
    before = exporter.read().history if table_exists(exporter.catalog, exporter.table) else ()
    expected = [(one.partition, one.offset) for one in writer.stored() if one.value != BROKEN]
    broken = [(one.partition, one.offset) for one in writer.stored() if one.value == BROKEN]
    arguments = exporter.arguments("--warehouse", exporter.catalog.warehouse, "--master", "local[1]")
    with export_process(folder, arguments, points=[point], environment=exporter.environment()) as driver:
        driver.wait_at(point)
        refused = exporter.run()
        assert refused.exit_code == 1, "two exporters of one topic at once"
        assert str(driver.pid) in refused.output, refused.output
        driver.kill_all()

    seen = exporter.read()
    if point is Point.PUBLISHED:
        assert places(seen) == expected
    else:
        assert seen.history == before, "rows were seen before they were committed"
        assert seen.staged, "the rows were not even written"
    assert places(exporter.dead_letters()) == broken

    after = exporter.export()
    assert places(after) == expected
    assert places(exporter.dead_letters()) == broken
    assert len(after.history) == len(before) + 1, "more than one commit, whichever of the two made it"


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path / "data"), "orders", partitions=2)
    writer.append(0, json_records(0, 20), batch_records=4)
    writer.lead()
    writer.append(1, json_records(0, 10))
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    table = new_table(local_catalog)
    return Exporter(spark, writer.settings, "orders", local_catalog, table, "--value-format", "json")


@pytest.mark.nightly
def test_a_driver_killed_between_the_commits_to_its_tables(
    exporter: Exporter, writer: TopicWriter, tmp_path: Path
) -> None:
    check_killed(exporter, writer, tmp_path, Point.DEAD_LETTERS_PUBLISHED)


@pytest.mark.nightly
def test_a_driver_killed_after_its_commit_before_it_reports(
    exporter: Exporter, writer: TopicWriter, tmp_path: Path
) -> None:
    exporter.export()
    writer.append(0, json_records(20, 10))
    check_killed(exporter, writer, tmp_path, Point.PUBLISHED)
    writer.append(1, json_records(10, 5))
    assert len(exporter.export().rows) == sum(one.value != BROKEN for one in writer.stored())
