"""The rows that `kafscale export` puts into tables, held against the records that were sent."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from kafscale.arrow.columns import TIME_DOES_NOT_FIT
from kafscale.lake.iceberg import data_files
from kafscale.protocol.compression import Codec
from tests.lake.support.exporter import LakeExporter, in_order
from tests.spark_jobs.support.read_back import table_exists
from tests.spark_jobs.support.sent_records import Batch, Sent, Stored, sent
from tests.spark_jobs.support.topic_writer import TopicWriter

ODD = [
    Sent(value=None, key=None),
    Sent(value=b"", key=b"", headers=(("a", b"1"), ("a", None), ("", b""))),
    Sent(value=b"\xff\xfe", timestamp_ms=-1),
    Sent(value=b"x", timestamp_ms=2**63 - 1),
]


def is_late(record: Stored) -> bool:
    return record.timestamp_ms == 2**63 - 1


def test_rows_are_the_records_of_every_kind(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(100), Codec.ZSTD, batch_records=7)
    writer.append_batches(
        1, [Batch(records=ODD), Batch(records=sent(3), log_append_time_ms=1_700_000_000_000)]
    )
    writer.append_batches(1, [Batch(records=sent(1), is_control=True), Batch(records=sent(2))])
    writer.lead()
    writer.append(0, sent(50, first=100), Codec.LZ4)

    exporter.export()

    expected = [one.row() for one in writer.stored() if not is_late(one)]
    assert exporter.stored_rows() == in_order(expected)
    # A time that microseconds cannot hold makes a dead letter.
    (late,) = (replace(one, timestamp_ms=0).row() for one in writer.stored() if is_late(one))
    assert exporter.dead_letters() == [late | {"timestamp": None, "error": TIME_DOES_NOT_FIT}]
    assert exporter.state().exported == {0: ((0, 150),), 1: ((0, 10),)}


def test_each_run_appends_what_is_new(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(10))
    assert len(exporter.export().history) == 1
    assert len(exporter.export().history) == 1, "a commit of nothing"
    writer.lead()
    writer.append(0, sent(5, first=10))
    writer.append(1, sent(3))
    written = exporter.export()
    assert len(written.history) == 2
    assert exporter.stored_rows() == writer.rows()
    assert exporter.run("--json").status == 0


def test_columns_and_properties_are_those_of_the_spark_job(
    exporter: LakeExporter, writer: TopicWriter
) -> None:
    writer.append(0, sent(1))
    written = exporter.export("--table-property", "owner=lake")
    assert written.columns == (
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "long"),
        ("timestamp", "timestamptz"),
        ("timestampType", "int"),
        ("headers", "list<struct<10: key: optional string, 11: value: optional binary>>"),
    )
    assert written.properties["write.wap.enabled"] == "true"
    assert written.properties["owner"] == "lake"


def test_small_batches_are_commits_of_their_own(exporter: LakeExporter, writer: TopicWriter) -> None:
    for first in range(0, 4000, 1000):
        writer.append(0, sent(1000, first=first, value_bytes=700))
    written = exporter.export("--max-batch-size", "1MiB")
    assert len(written.history) == 4
    assert exporter.stored_rows() == writer.rows()


@pytest.mark.nightly
def test_files_end_at_their_size(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "ROW_GROUP_BYTES", 100_000)
    for first in range(0, 4000, 1000):
        writer.append(0, sent(1000, first=first, value_bytes=700))
    written = exporter.export("--target-file-size", "1MiB")
    assert len(written.history) == 1
    assert len(written.data_file_bytes) > 1
    assert exporter.stored_rows() == writer.rows()


def test_partitioned_tables_have_every_row_once(
    exporter: LakeExporter, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MOST_OPEN_FILES", 2)
    day_ms = 86_400_000
    records = [
        Sent(key=b"k%d" % (n % 5), value=b"v%d" % n, timestamp_ms=(n - 10) * day_ms // 2) for n in range(20)
    ]
    writer.append(0, records)
    writer.append(1, [Sent(value=None, timestamp_ms=day_ms)])
    written = exporter.export(
        "--partition-by", "days(timestamp), bucket(3, key), truncate(2, topic), partition"
    )
    assert written.partition_fields == (
        "day(timestamp)",
        "bucket[3](key)",
        "truncate[2](topic)",
        "identity(partition)",
    )
    assert exporter.stored_rows() == writer.rows()
    # Filters go by the partitions that the files say they are of.
    with_day = [row for row in writer.rows() if row["timestamp"] >= datetime(1970, 1, 2, tzinfo=UTC)]
    assert exporter.filtered("timestamp >= '1970-01-02T00:00:00+00:00'") == [
        row["offset"] for row in with_day
    ]
    assert exporter.filtered("topic = 'shop.orders' AND partition = 1") == [0]


def test_text_that_does_not_decode_is_a_dead_letter(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(
        0, [Sent(key=b"a", value=b"good"), Sent(key=b"\xff", value=b"v"), Sent(key=b"\xff", value=b"\xfe")]
    )
    writer.append(1, [Sent(key=None, value=None), Sent(key="ä".encode(), value="ö".encode())])
    exporter.export("--value-format", "string", "--key-format", "string")

    rows = exporter.stored_rows()
    assert [(row["partition"], row["offset"], row["key"], row["value"]) for row in rows] == [
        (0, 0, "a", "good"),
        (1, 0, None, None),
        (1, 1, "ä", "ö"),
    ]
    assert [
        (row["partition"], row["offset"], row["key"], row["value"], row["error"])
        for row in exporter.dead_letters()
    ] == [(0, 1, b"\xff", b"v", "key: is not UTF-8"), (0, 2, b"\xff", b"\xfe", "value: is not UTF-8")]


def test_too_many_dead_letters_fail_the_run(exporter: LakeExporter, writer: TopicWriter) -> None:
    text = ("--value-format", "string")
    writer.append(0, [Sent(value=b"good"), Sent(value=b"\xff"), Sent(value=b"\xfe")])
    for limit, words in (("1", "and --max-dead-letters allows fewer"), ("50%", "which is more than 50%")):
        refused = exporter.run(*text, "--max-dead-letters", limit)
        assert refused.status == 1
        assert "has 2 dead letters among 3 records" in refused.text
        assert words in refused.text
    assert exporter.stored_rows() == []
    assert not table_exists(exporter.catalog, f"{exporter.table}_dead_letters") or not exporter.dead_letters()
    exporter.export(*text, "--max-dead-letters", "2", "--max-dead-letters", "67%")
    assert len(exporter.stored_rows()) == 1
    assert exporter.run(*text, "--max-dead-letters", "some").status == 2


def test_a_topic_with_routes_is_left_to_spark(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    exporter.export("--table-property", f"kafscale.routes.{exporter.topic}=...")
    refused = exporter.run()
    assert refused.status == 1
    assert "which only the Spark job" in refused.text


def test_the_summary_is_that_of_the_spark_job(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(10))
    done = exporter.run("--json", "--quiet")
    assert done.status == 0
    fields = json.loads(done.text)
    assert (fields["rows"], fields["dead_letters"], fields["failed_topics"]) == (10, 0, 0)
    (topic,) = fields["topics"]
    assert topic["table"] == "local.kafka.shop_orders"
    assert topic["finished"] and topic["offsets"] == 10 and topic["lag"] == 0
