"""End to end: the topic is created again, or loses records, while the export works at it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.job import spark_table
from spark_jobs.job.batch_write import BatchWriter
from spark_jobs.tables.publish import publish
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.read_back import table_exists
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
Happens = Callable[[], None]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    """Two segments, of which a small batch takes one."""
    writer = TopicWriter(embedded(tmp_path), "events")
    for first in (0, 10):
        writer.append(0, sent(10, "old", first=first, value_bytes=100_000))
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(spark, writer.settings, "events", local_catalog, new_table(local_catalog))


def once(change: Callable[[], object]) -> Happens:
    happened: list[bool] = []

    def happens() -> None:
        if not happened:
            happened.append(True)
            change()

    return happens


def around(before: Happens, work: Callable[..., Any], after: Happens) -> Callable[..., Any]:
    def replaced(*arguments: Any, **named: Any) -> Any:
        before()
        result = work(*arguments, **named)
        after()
        return result

    return replaced


def nothing() -> None:
    """Nothing happens."""


@pytest.mark.nightly
@pytest.mark.every_spark
@pytest.mark.parametrize("place", ["between commits", "between plan and read"])
def test_a_topic_created_again_is_not_mixed_in(
    writer: TopicWriter, exporter: Exporter, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_id, old_rows = writer.topic_id(), writer.rows()

    def change() -> None:
        writer.recreate()
        for first in (0, 10):
            writer.append(0, sent(10, "new", first=first, value_bytes=150_000))

    happens = once(change)
    if place == "between commits":
        monkeypatch.setattr(spark_table, "publish", around(nothing, publish, happens))
        expected = old_rows[:10]
    else:
        monkeypatch.setattr(BatchWriter, "write", around(happens, BatchWriter.write, nothing))
        expected = []
    done = exporter.run("--max-batch-size", "1MiB")
    assert done.exit_code == 1, done.output
    assert f"the export is of topic id {old_id}, and the topic of this name has topic id" in done.output
    assert str(writer.topic_id()) in done.output
    assert "nothing of the new topic is in the table: export it into a new table" in done.output
    found = exporter.read().rows if table_exists(exporter.catalog, exporter.table) else []
    assert in_order(found) == expected


@pytest.mark.nightly
def test_what_expires_between_plan_and_read_is_a_gap(
    writer: TopicWriter, exporter: Exporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    happens = once(lambda: writer.move_log_start(0, 10))
    with monkeypatch.context() as patch:
        patch.setattr(BatchWriter, "write", around(happens, BatchWriter.write, nothing))
        written = exporter.export("--on-expired", "record")
    assert in_order(written.rows) == writer.rows()
    assert exporter.state().gaps == {0: ((0, 10),)}

    writer.append(0, sent(10, "old", first=20))
    writer.append(0, sent(10, "old", first=30))
    refusal = once(lambda: writer.move_log_start(0, 30))
    with monkeypatch.context() as patch:
        patch.setattr(BatchWriter, "write", around(refusal, BatchWriter.write, nothing))
        refused = exporter.run()
    assert refused.exit_code == 1
    assert "expired before it was exported: events-0 offsets 20 to 29" in refused.output
    assert "run again with --on-expired record" in refused.output
