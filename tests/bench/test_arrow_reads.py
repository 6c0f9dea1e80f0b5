"""The readers of the benchmark of Arrow reads find every record."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.arrow_readers import ARROW, PARQUET, TO_PARQUET, Task, prepared
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded


def test_each_way_counts_all_records(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2)
    for partition in range(2):
        writer.append(partition, sent(500), batch_records=100)
    task = Task(
        way=ARROW,
        topic="orders",
        partitions=2,
        records=1000,
        data_folder=str(tmp_path),
        bootstrap="",
        parquet=str(tmp_path / "topic.parquet"),
    )
    assert [prepared(replace(task, way=way))() for way in (ARROW, TO_PARQUET, PARQUET)] == [1000] * 3
    with pytest.raises(ValueError, match="'by hand' is not a way to read"):
        prepared(replace(task, way="by hand"))
