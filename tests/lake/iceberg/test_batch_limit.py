"""`--max-batch-size` limits commits also where segments are larger, and partitions come in turn."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kafscale.arrow.split_columns import read_split
from kafscale.reader import splits
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

MIB = 1024**2
VALUE_BYTES = 4000


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path / "data"), "shop.orders", partitions=2)


def merged(writer: TopicWriter, partition: int, records: int) -> None:
    """One segment of so many records, in batches of five; its index has every hundredth."""
    for first in range(0, records, 250):
        writer.append(partition, sent(250, first=first, value_bytes=VALUE_BYTES), batch_records=5)
    writer.merge(partition)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_merged_segment_is_divided(
    exporter: LakeExporter, writer: TopicWriter, is_chunked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_chunked:
        monkeypatch.setattr(splits, "WHOLE_SEGMENT_BYTES", 1 * MIB)
        monkeypatch.setattr(splits, "CHUNK_BYTES", 700_000)
    merged(writer, 0, 1000)
    read: list[int] = []

    def counted(*arguments: Any, **named: Any) -> Iterator[pa.RecordBatch]:
        for batch in read_split(*arguments, **named):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr("kafscale.lake.iceberg.records.read_split", counted)
    written = exporter.export("--max-batch-size", "1MiB")
    assert sum(read) == 1000, "each record is read once"
    assert exporter.stored_rows() == writer.rows()
    added = [int(one.summary["added-records"]) for one in written.history]
    assert max(added) * VALUE_BYTES <= MIB
    assert len(added) >= 4


def test_segments_are_measured_together(exporter: LakeExporter, writer: TopicWriter) -> None:
    """Both partitions: half of the limit is not enough for a segment, so each commit has one of them."""
    for partition in (0, 1):
        merged(writer, partition, 250)
    written = exporter.export("--max-batch-size", "1MiB")
    assert exporter.stored_rows() == writer.rows()
    assert [int(one.summary["added-records"]) for one in written.history] == [250, 250]
