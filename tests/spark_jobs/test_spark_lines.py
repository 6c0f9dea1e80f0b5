"""Which Spark the jobs run with, which jars that needs, and what 3.5 reads instead of a data source."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from kafscale.errors import StartupError
from kafscale.lake.offset_points import SourceOptionError
from spark_jobs.iceberg_jars import iceberg_jars
from spark_jobs.source.planned_records import planned_records
from spark_jobs.spark_lines import LINES, NEWEST, SparkLine, line_of
from tests.lake.support.exporter import in_order
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded


@pytest.mark.parametrize(
    ("version", "line"), [("3.5.1", "3.5"), ("4.0.2", "4.0"), ("4.1.4", "4.1"), ("4.1", "4.1")]
)
def test_a_version_is_of_a_line(version: str, line: str) -> None:
    assert line_of(version).version == line


@pytest.mark.parametrize("version", ["3.4.9", "4.10.0", "5.0.0", "4"])
def test_a_version_that_was_not_tried_is_refused(version: str) -> None:
    with pytest.raises(StartupError, match=f"Spark {version} is not supported: .* 3.5, 4.0, 4.1"):
        line_of(version)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.version)
def test_each_line_has_icebergs_runtime_of_its_own(line: SparkLine) -> None:
    jars = iceberg_jars(line)
    runtime, bundle = jars.coordinates()
    scala = "2.12" if line.version == "3.5" else "2.13"
    assert runtime.startswith(f"org.apache.iceberg:iceberg-spark-runtime-{line.version}_{scala}:")
    assert runtime.rpartition(":")[2] == bundle.rpartition(":")[2], "the AWS bundle is of another version"
    assert (jars.folder.name == "spark-jars") == (line is NEWEST)


class OnlyOffsets:
    """A step that leaves one column."""

    def schema(self, records: StructType) -> StructType:
        return StructType([records["offset"]])

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.select(["offset"])


@pytest.mark.nightly
@pytest.mark.every_spark
def test_planned_records_are_those_of_the_topic(spark: SparkSession, tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path / "data"), "events", partitions=2)
    writer.append(0, sent(20), batch_records=5)
    writer.lead()
    writer.append(1, [Sent(), Sent(value=b"", headers=(("a", b"1"), ("b", None)))])
    options = {"dataDir": str(writer.settings.data_dir), "subscribe": "events", "minPartitions": "3"}
    found = planned_records(spark, options)
    expected = [one.row() for one in writer.stored()]
    names = [name for name in expected[0] if name != "timestamp"]
    rows = [
        row.asDict(recursive=True)
        for row in found.selectExpr(*names, "unix_millis(timestamp) AS timestamp").collect()
    ]
    assert in_order(rows) == [
        row | {"timestamp": one.timestamp_ms} for row, one in zip(expected, writer.stored(), strict=True)
    ]
    middle = planned_records(
        spark,
        options | {"startingOffsets": json.dumps({"events": {"0": 5, "1": -2}}), "includeHeaders": "false"},
    )
    assert middle.count() == 17
    assert "headers" not in middle.columns
    stepped = planned_records(spark, options, OnlyOffsets())
    assert stepped.columns == ["offset"]
    assert sorted(row.offset for row in stepped.collect()) == sorted(row["offset"] for row in expected)
    with pytest.raises(SourceOptionError, match="subscribes is unknown"):
        planned_records(spark, options | {"subscribes": "x"})
