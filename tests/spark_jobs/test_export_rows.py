"""End to end: what a topic holds is what the table holds, row by row, once, whatever the log looks like."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafscale.protocol.compression import Codec
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order, state_in
from tests.spark_jobs.support.sent_records import Batch, Sent, batches_of, sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.nightly import nightly_but

NewTable = Callable[[IcebergCatalog], str]
NULLS_AND_HEADERS = [
    Sent(key=None, value=None),
    Sent(key=b"", value=b""),
    Sent(key=b"\xff\x00", value=None, headers=(("trace", b"\x00\x01"), ("trace", None), ("", b""))),
    Sent(key=None, value="üñí".encode(), headers=(("naïve", "é".encode()),), timestamp_ms=0),
    Sent(key=b"future", value=b"x" * 70_000, timestamp_ms=4_102_444_800_123),
]


def exporter_for(
    spark: SparkSession, writer: TopicWriter, catalog: IcebergCatalog, new_table: NewTable, *more: str
) -> Exporter:
    return Exporter(spark, writer.settings, writer.topic, catalog, new_table(catalog), *more)


def write_of_everything(writer: TopicWriter) -> None:
    """Every codec, nulls, headers, times of the log, gaps, orphans, segments merged and expired, a checkpoint.

    Then all of that which a journal can have, in all the places that its slices come to.
    """
    for start, codec in enumerate(Codec):
        writer.append(0, sent(20, codec.name, first=start * 20), codec, batch_records=7)
    writer.append(0, NULLS_AND_HEADERS, Codec.ZSTD, batch_records=2)
    writer.merge(0, 20, 79)
    writer.write_checkpoint(0)
    writer.leave_unpublished(0, sent(3, "never published"))
    writer.new_leader(0)
    writer.append_batches(
        0,
        [
            Batch(records=[Sent(value=b"after the leftover", gap=1)], codec=Codec.LZ4),
            Batch(records=[Sent(value=b"a marker of a transaction")], is_control=True),
            Batch(records=[Sent(value=b"a"), Sent(value=b"b", gap=5)], gap_after=4),
        ],
    )
    writer.append(
        0, [Sent(value=b"appended", timestamp_ms=1)] * 3, Codec.GZIP, log_append_time_ms=1_700_000_123_456
    )
    # Its log begins within a segment, and without the first one.
    for start in range(0, 30, 10):
        writer.append(1, sent(10, "expiring", first=start), batch_records=5)
    writer.move_log_start(1, 13)
    # Partition 2 stays empty; the last one ends with a leftover.
    writer.append(3, sent(5, "last"))
    writer.leave_unpublished(3, sent(5, "never published either"))
    write_of_a_journal(writer)


def write_of_a_journal(writer: TopicWriter) -> None:
    """Slices that are sealed, gathered, named by records and behind them; a leader that died in the middle."""
    writer.lead(0, 1, 2)
    for codec in Codec:
        writer.append_entry({0: batches_of(sent(4), codec, batch_records=3), 1: batches_of(sent(2), codec)})
    writer.append(0, NULLS_AND_HEADERS, Codec.ZSTD, batch_records=2)
    writer.seal(0)
    writer.append_batches(
        0,
        [
            Batch(records=[Sent(value=b"another marker")], is_control=True),
            Batch(records=[Sent(value=b"c"), Sent(value=b"d", gap=5)], gap_after=4),
        ],
    )
    writer.append(1, [Sent(timestamp_ms=1)] * 2, log_append_time_ms=1_700_000_123_456)
    writer.gather()
    writer.append_entry({0: batches_of(sent(3, "named")), 1: batches_of(NULLS_AND_HEADERS)})
    writer.consolidate()
    writer.append(1, sent(2, "committed behind the record"), Codec.SNAPPY)
    writer.lose_leader(0, sent(3, "never committed"))
    writer.lead(0)
    writer.append(0, sent(3, "of the next leader"), Codec.LZ4)
    writer.consolidate(0)
    writer.append(0, sent(2, "behind its record"))


CATALOGS = ("local_catalog", "database_catalog", "bucket_catalog")


@pytest.mark.parametrize("kind", nightly_but(CATALOGS, "bucket_catalog"))
def test_the_table_has_what_the_topic_has(
    spark: SparkSession, tmp_path: Path, new_table: NewTable, request: pytest.FixtureRequest, kind: str
) -> None:
    catalog: IcebergCatalog = request.getfixturevalue(kind)
    writer = TopicWriter(embedded(tmp_path), "events", partitions=4)
    write_of_everything(writer)
    exporter = exporter_for(spark, writer, catalog, new_table)

    written = exporter.export()
    assert in_order(written.rows) == writer.rows()
    assert [name for name, _ in written.columns] == list(writer.rows()[0])
    without_headers = spark.sql(
        f"SELECT count(*) AS rows FROM {exporter.table} WHERE headers IS NULL"
    ).first()
    assert without_headers is not None and without_headers.rows == sum(
        not one.headers for one in writer.stored()
    )
    state = state_in(written.history[-1].summary, "events")
    assert state == state_in(written.properties, "events")
    ends = [writer.log_end_offset(partition) for partition in range(4)]
    assert state.starts == {0: 0, 1: 13, 2: 0, 3: 0}
    assert state.exported == {0: ((0, ends[0]),), 1: ((13, ends[1]),), 3: ((0, 5),)}
    assert state.gaps == {}

    again = exporter.export()
    assert again.history == written.history, "nothing was new, and yet something was committed"
    assert again.staged == written.staged

    first = {(row["partition"], row["offset"]) for row in written.rows}
    writer.lead(1, 2)
    writer.append(2, sent(4, "new"), Codec.SNAPPY)
    writer.append(3, [Sent(value=b"new", gap=5)])
    more = exporter.export()
    assert in_order(more.rows) == writer.rows()
    assert len(more.history) == len(written.history) + 1
    assert more.history[-1].summary["added-records"] == "5"
    assert len(first) == len(written.rows)


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_run_of_several_commits_and_a_file_of_each_partition(
    spark: SparkSession, tmp_path: Path, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    for start in range(0, 8, 2):
        writer.append(0, sent(2, "large", first=start, value_bytes=300_000))
        writer.append(1, sent(2, "large", first=start, value_bytes=100_000), Codec.ZSTD)
    exporter = exporter_for(
        spark, writer, local_catalog, new_table,
        "--max-batch-size", "1MiB", "--partition-by", "partition, bucket(2, key)", "--sort-by", "offset desc",
        "--table-property", "purpose=test",
    )  # fmt: skip
    written = exporter.export()
    assert in_order(written.rows) == writer.rows()
    assert len(written.history) > 2
    states = [state_in(snapshot.summary, "events") for snapshot in written.history]
    positions = [[state.position(0), state.position(1)] for state in states]
    assert positions == sorted(positions)
    assert positions[-1] == [8, 8]
    assert written.partition_fields == ("identity(partition)", "bucket[2](key)")
    assert written.sort_fields == ("identity(offset)",)
    assert written.properties["purpose"] == "test"


def test_a_topic_that_is_empty_has_an_empty_table(
    spark: SparkSession, tmp_path: Path, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    exporter = exporter_for(spark, writer, local_catalog, new_table)
    written = exporter.export()
    assert written.rows == []
    assert state_in(written.properties, "events").starts == {0: 0, 1: 0}
    writer.append(1, sent(1))
    assert in_order(exporter.export().rows) == writer.rows()


def test_an_existing_table_is_taken_as_it_is(
    spark: SparkSession, tmp_path: Path, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    writer.append(0, sent(3))
    exporter = exporter_for(
        spark, writer, local_catalog, new_table, "--value-format", "string", "--no-add-columns"
    )
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {local_catalog.name}.db")
    spark.sql(
        f"CREATE TABLE {exporter.table} (note STRING, value STRING, partition INT, offset BIGINT) USING iceberg"
        " PARTITIONED BY (truncate(10, offset))"
    )
    spark.sql(f"INSERT INTO {exporter.table} VALUES ('was here', 'before', 99, 0)")
    written = exporter.export()
    assert in_order(written.rows) == [
        *({"note": None, "value": f"value-{at}", "partition": 0, "offset": at} for at in range(3)),
        {"note": "was here", "value": "before", "partition": 99, "offset": 0},
    ]
    assert written.partition_fields == ("truncate[10](offset)",)


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_backfill_and_the_run_after_it_bring_each_record_once(
    spark: SparkSession, tmp_path: Path, local_catalog: IcebergCatalog, new_table: NewTable
) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", partitions=2)
    for start in range(0, 60, 20):
        writer.append(0, sent(20, first=start), Codec.LZ4, batch_records=4)
        writer.append(1, sent(20, first=start), batch_records=20)
    exporter = exporter_for(spark, writer, local_catalog, new_table)
    latest = '{"events": {"0": 40, "1": -1}}'
    exporter.export("--starting-offsets", latest)
    assert {(row["partition"], row["offset"]) for row in exporter.read().rows} == {
        (0, offset) for offset in range(40, 60)
    }
    span = (
        "--backfill-from",
        '{"events": {"0": 13, "1": 7}}',
        "--backfill-until",
        '{"events": {"0": 50, "1": 9}}',
    )
    exporter.export(*span)
    exporter.export(*span)
    writer.append(1, sent(1, first=60))
    written = exporter.export()
    found = sorted((row["partition"], row["offset"]) for row in written.rows)
    assert found == [*((0, offset) for offset in range(13, 60)), (1, 7), (1, 8), (1, 60)]
    expected = {(row["partition"], row["offset"]): row for row in writer.rows()}
    assert all(row == expected[row["partition"], row["offset"]] for row in written.rows)
