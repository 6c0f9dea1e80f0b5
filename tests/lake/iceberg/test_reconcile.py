"""`kafscale reconcile`: a topic against its tables, and every kind of damage to them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from kafscale.commands.cli import main
from tests.lake.support.exporter import LakeExporter, Outcome
from tests.spark_jobs.support.export_runs import store_environment
from tests.spark_jobs.support.sent_records import Sent, sent
from tests.spark_jobs.support.topic_writer import TopicWriter

EQUAL, FAILED, NOT_LEGAL, DIFFERENT = 0, 1, 2, 3
BROKEN = b"\xff"


def reconcile(exporter: LakeExporter, *more: str) -> Outcome:
    arguments = ["reconcile", exporter.topic, "--to", str(exporter.folder), *more]
    done = CliRunner().invoke(main, arguments, env=store_environment(exporter.settings))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Outcome(status=done.exit_code, text=done.output)


def fields_of(exporter: LakeExporter, *more: str) -> dict[str, Any]:
    done = reconcile(exporter, "--json", "--quiet", *more)
    (fields,) = json.loads(done.text)["topics"]
    assert done.status == (EQUAL if fields["agrees"] else DIFFERENT)
    assert isinstance(fields, dict)
    return fields


def differences(fields: dict[str, Any]) -> list[tuple[str, int, int, int]]:
    return [
        (one["kind"], one["partition"], one["first_offset"], one["last_offset"])
        for one in fields["differences"]
    ]


@pytest.fixture
def exported(exporter: LakeExporter, writer: TopicWriter) -> LakeExporter:
    """Exported in two commits, with headers, nulls and a dead letter."""
    writer.append(
        0, [Sent(key=None, value=b"a", headers=(("h", None),)), Sent(value=BROKEN), Sent(value=None)]
    )
    writer.append(1, sent(40))
    exporter.export("--value-format", "string")
    writer.lead()
    writer.append(1, sent(20, first=40))
    exporter.export("--value-format", "string")
    return exporter


def damage(exporter: LakeExporter, how: Callable[[Table], None]) -> None:
    """Change the table as another writer would."""
    with exporter.opened_catalog() as catalog:
        how(catalog.load_table(("kafka", "shop_orders")))


def row(table: Table, partition: int, offset: int) -> pa.Table:
    found: pa.Table = table.scan(row_filter=f"partition = {partition} AND offset = {offset}").to_arrow()
    assert found.num_rows == 1
    return found


def test_topic_and_tables_agree(exported: LakeExporter, writer: TopicWriter) -> None:
    writer.append(0, sent(2))
    fields = fields_of(exported, "--range-size", "25")
    assert fields["agrees"]
    first, second = fields["partitions"]
    (found,) = first["ranges"]
    assert (found["topic"]["rows"], found["table"]["rows"], found["dead_letters"]["rows"]) == (3, 2, 1)
    assert first["lag"] == [{"first_offset": 3, "last_offset": 4}]
    assert [one["topic"]["rows"] for one in second["ranges"]] == [25, 25, 10]
    assert fields["columns_not_compared"] == []
    shown = reconcile(exported)
    assert shown.status == EQUAL
    assert "Topic 'shop.orders' against local.kafka.shop_orders" in shown.text


def test_a_row_that_is_missing(exported: LakeExporter) -> None:
    damage(exported, lambda table: table.delete("partition = 1 AND offset = 7"))
    fields = fields_of(exported)
    assert differences(fields) == [("MISSING", 1, 7, 7)]
    shown = reconcile(exported)
    assert shown.status == DIFFERENT
    assert "shop.orders-1: offset 7: 1 record missing from the table" in shown.text


def test_a_range_that_is_missing(exported: LakeExporter) -> None:
    damage(exported, lambda table: table.delete("partition = 1"))
    assert differences(fields_of(exported)) == [("MISSING", 1, 0, 59)]


def test_a_row_that_is_there_twice(exported: LakeExporter) -> None:
    damage(exported, lambda table: table.append(row(table, 1, 7)))
    assert differences(fields_of(exported)) == [("DUPLICATE", 1, 7, 7)]


@pytest.mark.parametrize(
    ("column", "value"),
    [("value", "other"), ("value", None), ("value", ""), ("key", b"other"), ("timestampType", 1)],
)
def test_a_row_that_was_changed(exported: LakeExporter, column: str, value: Any) -> None:
    def change(table: Table) -> None:
        found = row(table, 1, 7)
        place = found.schema.get_field_index(column)
        field = found.schema.field(place)
        changed = found.set_column(place, field, pa.array([value], field.type))
        table.overwrite(changed, overwrite_filter="partition = 1 AND offset = 7")

    damage(exported, change)
    fields = fields_of(exported)
    assert differences(fields) == [("CHANGED", 1, 7, 7)]
    assert fields["differences"][0]["columns"] == [column]
    assert fields_of(exported, "--except-column", column)["agrees"]


def test_rows_that_the_state_does_not_claim(exported: LakeExporter) -> None:
    def add(table: Table) -> None:
        found = row(table, 1, 7)
        place = found.schema.get_field_index("offset")
        table.append(found.set_column(place, found.schema.field(place), [[1000]]))

    damage(exported, add)
    fields = fields_of(exported)
    assert not fields["agrees"]
    assert [(one["partition"], one["rows"], one["first_offset"]) for one in fields["unexpected"]] == [
        (1, 1, 1000)
    ]


def test_rows_whose_records_expired(exported: LakeExporter, writer: TopicWriter) -> None:
    writer.move_log_start(1, 40)
    fields = fields_of(exported)
    assert fields["agrees"]
    assert [one["standing"] for one in fields["partitions"][1]["ranges"]] == ["expired", "compared"]
    damage(exported, lambda table: table.append(row(table, 1, 7)))
    fields = fields_of(exported)
    assert not fields["agrees"]
    assert fields["partitions"][1]["ranges"][0]["duplicates"] == 1
    assert fields_of(exported, "--skip-expired")["agrees"]


def test_tables_that_cannot_be_compared(exporter: LakeExporter, writer: TopicWriter, tmp_path: Path) -> None:
    writer.append(0, sent(1))
    done = reconcile(exporter)
    assert (done.status, "there is no catalog.db in it" in done.text) == (NOT_LEGAL, True)
    assert not exporter.folder.exists()
    exporter.folder.mkdir()
    value = StructType(NestedField(9, "id", LongType(), required=False))
    columns = [
        NestedField(1, "partition", IntegerType(), required=False),
        NestedField(2, "offset", LongType(), required=False),
        NestedField(3, "value", value, required=False),
    ]
    with exporter.opened_catalog() as catalog:
        catalog.create_namespace("kafka")
        catalog.create_table("kafka.shop_orders", Schema(*columns))
        catalog.create_table("kafka.other", Schema(columns[0]))
    done = reconcile(exporter)
    assert (done.status, "which only Spark decodes" in done.text) == (NOT_LEGAL, True)
    done = reconcile(exporter, "--table", "kafka.other")
    assert (done.status, "has no column 'offset'" in done.text) == (NOT_LEGAL, True)
    done = reconcile(exporter, "--table", "kafka.nothing")
    assert (done.status, "there is no table local.kafka.nothing" in done.text) == (NOT_LEGAL, True)


def test_a_topic_that_is_not_there(exported: LakeExporter, writer: TopicWriter, tmp_path: Path) -> None:
    nowhere = LakeExporter(writer.settings, "nowhere", exported.folder)
    done = reconcile(nowhere, "--table", "kafka.shop_orders")
    assert done.status == FAILED
    assert "there is no topic 'nowhere'" in done.text
