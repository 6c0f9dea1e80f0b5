"""End to end: records that expired before they were exported are never left out silently."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order, state_in
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path), "events", partitions=2)


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(spark, writer.settings, "events", local_catalog, new_table(local_catalog))


@pytest.mark.nightly
@pytest.mark.every_spark
def test_expired_offsets_are_an_error_or_a_recorded_gap(writer: TopicWriter, exporter: Exporter) -> None:
    for start in range(0, 30, 10):
        writer.append(0, sent(10, first=start))
        writer.append(1, sent(10, first=start))
    before = exporter.export()
    writer.lead()
    for start in range(30, 60, 10):
        writer.append(0, sent(10, first=start))
    writer.append(1, sent(5, first=30))
    exported = writer.rows()
    writer.move_log_start(0, 45)

    refused = exporter.run()
    assert refused.exit_code == 1
    assert "events-0 offsets 30 to 44" in refused.output
    assert exporter.read().history == before.history, "nothing of a run that was refused is in the table"

    after = exporter.export("--on-expired", "record")
    lost = range(30, 45)
    assert in_order(after.rows) == [
        row for row in exported if row["partition"] == 1 or row["offset"] not in lost
    ]
    state = state_in(after.properties, "events")
    assert state.gaps == {0: ((30, 45),)}
    assert state.exported == {0: ((0, 30), (45, 60)), 1: ((0, 35),)}

    # From now on it is known, and a run that fails for what has expired goes on.
    writer.append(0, sent(1, first=60))
    assert len(exporter.export().rows) == len(after.rows) + 1


def test_a_topic_created_again_is_not_mixed_with_the_old_one(
    spark: SparkSession,
    tmp_path: Path,
    writer: TopicWriter,
    exporter: Exporter,
    local_catalog: IcebergCatalog,
) -> None:
    writer.append(0, sent(10))
    before = exporter.export()
    namesake = TopicWriter(embedded(tmp_path / "other"), "events")
    namesake.append(0, sent(20, "of another topic"))
    refused = Exporter(spark, namesake.settings, "events", local_catalog, exporter.table).run()
    assert refused.exit_code == 1
    assert "earlier topic of the name 'events'" in refused.output
    assert exporter.read().history == before.history
