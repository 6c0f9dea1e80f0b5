"""End to end: a topic is compacted before, between and beside exports into its table."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_jobs.job import spark_table
from spark_jobs.job.batch_write import BatchWriter
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.compaction import compact, kept_offsets, set_compacted
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
KEYS = 10


def update_all(writer: TopicWriter, rounds: int) -> None:
    """A segment with an update of each key, for each round."""
    for number in range(rounds):
        writer.append(0, [Sent(key=b"key-%d" % key, value=b"%d" % number) for key in range(KEYS)])


@pytest.mark.parametrize(
    "is_by_default",
    [
        pytest.param(False, id="by its policy"),
        pytest.param(True, id="by the broker's default", marks=pytest.mark.nightly),
    ],
)
def test_a_topic_that_is_compacted_beside_its_export(
    spark: SparkSession,
    local_catalog: IcebergCatalog,
    new_table: NewTable,
    tmp_path: Path,
    is_by_default: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = TopicWriter(embedded(tmp_path), "prices")
    if not is_by_default:
        set_compacted(writer)
    update_all(writer, 10)
    changes = [lambda: compact(writer, 0)]

    class Late(BatchWriter):
        def write(self, *arguments: Any) -> Any:
            if changes:
                changes.pop()()
            return super().write(*arguments)

    monkeypatch.setattr(spark_table, "BatchWriter", Late)
    exporter = Exporter(spark, writer.settings, "prices", local_catalog, new_table(local_catalog))
    first = exporter.export()
    before = kept_offsets(writer, 0)
    assert [row["offset"] for row in in_order(first.rows)] == sorted(before)
    assert len(before) == 2 * KEYS
    update_all(writer, 10)
    compact(writer, 0)
    second = exporter.export()
    assert [row["offset"] for row in in_order(second.rows)] == sorted(before | kept_offsets(writer, 0))
    assert exporter.state().exported == {0: ((0, 200),)}
