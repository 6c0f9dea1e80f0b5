"""Bad input of `kafscale export`: an error that names it, and nothing done."""

import asyncio
import contextlib
import json
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType, StructType

from kafscale.broker.stores import open_stores
from kafscale.formats.topic_record import decode_topic_record, encode_topic_record
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from tests.lake.support.exporter import LakeExporter
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.topic_writer import TopicWriter


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--value-format", "json"], "--value-format json is not supported without Spark"),
        (["--table", "orders"], "--table 'orders' is not legal: it must be NAMESPACE.NAME"),
        (["--dead-letter-table", "kafka.shop_orders"], "it is the table of the rows"),
        (["--to", "ftp://host/x"], "--to 'ftp://host/x' is not legal: it must be a folder, s3://bucket/path"),
        (["--to", "s3://bucket/lake"], "give its database with --catalog-property uri="),
        (["--to", "catalog:a b"], "catalog name 'catalog:a b' is not legal"),
        (["--catalog", "a.b"], "catalog name 'a.b' is not legal"),
        (["--catalog-property", "uri"], "--catalog-property 'uri' is not legal: it must be KEY=VALUE"),
        (["--catalog-property", "uri=env:NOT_THERE"], "there is no NOT_THERE in the environment"),
        (["--partition-by", "weeks(timestamp)"], "each term must be a column, year(c)"),
        (["--partition-by", "day(value)"], "column 'value' is of type binary"),
        (["--partition-by", "country"], "there is no column 'country'; the columns are key, value"),
        (["--starting-offsets", "yesterday"], "it must be earliest, latest, offsets such as"),
        (["--backfill-until", "latest"], "--backfill-until is of no use without --backfill-from"),
    ],
)
def test_options_that_are_not_legal(
    exporter: LakeExporter, writer: TopicWriter, options: list[str], told: str
) -> None:
    writer.append(0, sent(1))
    done = exporter.run(*options)
    assert done.status == 2, done.text
    assert told in done.text.replace("\n", " ")
    assert not exporter.folder.exists() or not exporter.exists()


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (["--partition-by", "weeks(timestamp)"], 2, "each term must be a column, year(c)"),
        (["--partition-by", "country"], 2, "there is no column 'country'"),
        (
            ["--starting-offsets", '{"shop.order": {"0": 1}}'],
            2,
            "names topic 'shop.order', which is not exported",
        ),
        (["--starting-offsets", '{"shop.orders": {"7": 1}}'], 2, "there is no such partition"),
        (["--backfill-from", '{"orders": {"0": 1}}'], 2, "--backfill-from names topic 'orders'"),
        (["--value-format", "string"], 1, "value is binary there and string here"),
    ],
)
def test_options_are_checked_when_there_is_nothing_to_export(
    exporter: LakeExporter, writer: TopicWriter, options: list[str], status: int, told: str
) -> None:
    writer.append(0, sent(1))
    before = exporter.export()
    done = exporter.run(*options)
    assert done.status == status, done.text
    assert told in done.text.replace("\n", " ")
    assert exporter.read().history == before.history


def test_an_unknown_topic_makes_nothing(exporter: LakeExporter, writer: TopicWriter, tmp_path: Path) -> None:
    other = LakeExporter(writer.settings, "nowhere", tmp_path / "lake")
    done = other.run("--quiet")
    assert done.status == 1
    assert "there is no topic 'nowhere' in the metadata store" in done.text
    assert not other.folder.exists()
    assert not (writer.settings.data_dir / "exports").exists()


def test_a_warehouse_that_is_a_file(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    exporter.folder.write_text("no folder")
    done = exporter.run()
    assert done.status == 1
    assert f"cannot open the catalog local: [Errno 17] File exists: '{exporter.folder}'" in done.text


def test_a_catalog_server_that_is_not_there(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    done = exporter.run("--to", "http://127.0.0.1:9/")
    assert done.status == 1
    assert "cannot open the catalog local: " in done.text


def test_a_catalog_that_pyiceberg_does_not_know(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    done = exporter.run("--to", "catalog:nowhere")
    assert done.status == 1
    assert "cannot open the catalog nowhere: " in done.text


def test_a_failure_is_in_the_summary_and_with_the_exports(
    exporter: LakeExporter, writer: TopicWriter
) -> None:
    writer.append(0, sent(1))
    exporter.folder.write_text("no folder")
    done = exporter.run("--json", "--quiet")
    fields = json.loads(done.text[done.text.index("{") :])
    assert fields["failed_topics"] == 1
    assert "File exists" in fields["topics"][0]["error"]


def test_a_table_with_decoded_values_is_the_spark_jobs(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    exporter.folder.mkdir()
    value = StructType(NestedField(2, "id", LongType(), required=False))
    with exporter.opened_catalog() as catalog:
        catalog.create_namespace("kafka")
        catalog.create_table("kafka.shop_orders", Schema(NestedField(1, "value", value, required=False)))
    done = exporter.run()
    assert done.status == 1
    assert "value is struct<2: id: optional long> there and binary here" in done.text
    assert "python -m spark_jobs.export" in done.text


def test_a_flat_table_is_the_spark_jobs(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    exporter.folder.mkdir()
    kafka = StructType(NestedField(3, "offset", LongType(), required=False))
    fields = (
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "_kafka", kafka, required=False),
    )
    with exporter.opened_catalog() as catalog:
        catalog.create_namespace("kafka")
        catalog.create_table("kafka.shop_orders", Schema(*fields))
    done = exporter.run()
    assert done.status == 1
    assert "shop_orders is flat: it was made by the Spark job with --flatten" in done.text


def test_a_table_that_requires_another_column(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(1))
    exporter.folder.mkdir()
    with exporter.opened_catalog() as catalog:
        catalog.create_namespace("kafka")
        catalog.create_table(
            "kafka.shop_orders", Schema(NestedField(1, "tenant", StringType(), required=True))
        )
    done = exporter.run()
    assert done.status == 1
    assert "table kafka.shop_orders requires column 'tenant'" in done.text


def test_columns_that_are_missing_are_added_or_left_out(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(2))
    exporter.folder.mkdir()
    columns = (
        NestedField(1, "offset", LongType(), required=False),
        NestedField(2, "note", StringType(), required=False),
    )
    with exporter.opened_catalog() as catalog:
        catalog.create_namespace("kafka")
        catalog.create_table("kafka.shop_orders", Schema(*columns))
    written = exporter.export("--no-add-columns")
    assert [(row["offset"], row["note"]) for row in written.rows] == [(0, None), (1, None)]
    assert len(written.columns) == 2
    writer.append(0, sent(1, first=2))
    added = exporter.export()
    assert len(added.columns) == 9
    assert [row["value"] for row in added.rows if row["offset"] == 2] == [b"value-2"]


async def give_another_id(writer: TopicWriter) -> None:
    """The topic is another one with the same name, as after a deletion and a creation."""
    async with contextlib.AsyncExitStack() as stack:
        metadata, _ = await open_stores(writer.settings, stack)
        found = await metadata.get(keys.topic(writer.topic))
        assert found is not None
        record = replace(decode_topic_record(found.key, found.value), topic_id=uuid.uuid4())
        await metadata.transact([], [Put(found.key, encode_topic_record(record))])


def test_a_topic_that_was_made_again_is_another(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(3))
    exporter.export()
    asyncio.run(give_another_id(writer))
    done = exporter.run()
    assert done.status == 1
    assert "the table has an earlier topic of the name 'shop.orders'" in done.text
    assert len(exporter.read().rows) == 3


def test_records_that_expired_before(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(3))
    writer.append(0, sent(3, first=3))
    exporter.export("--starting-offsets", '{"shop.orders": {"0": 1}}')
    writer.append(0, sent(3, first=6))
    writer.append(0, sent(3, first=9))
    writer.move_log_start(0, 9)
    done = exporter.run()
    assert done.status == 1
    assert "expired before it was exported: shop.orders-0 offsets 6 to 8" in done.text
    exporter.export("--on-expired", "record")
    assert [row["offset"] for row in exporter.stored_rows()] == [1, 2, 3, 4, 5, 9, 10, 11]
    assert exporter.state().gaps == {0: ((6, 9),)}


def test_a_backfill_brings_what_is_missing(exporter: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(10))
    exporter.export("--starting-offsets", "latest")
    writer.append(0, sent(2, first=10))
    exporter.export()
    exporter.export("--backfill-from", '{"shop.orders": {"0": 4}}')
    exporter.export("--backfill-from", "earliest")
    exporter.export("--backfill-from", "earliest")
    assert exporter.stored_rows() == writer.rows()
