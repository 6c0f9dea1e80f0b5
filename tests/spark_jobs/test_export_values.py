"""End to end: values that decode, values that do not, and schemas that grow from run to run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from kafscale.arrow.columns import TIME_DOES_NOT_FIT
from kafscale.protocol.compression import Codec
from spark_jobs.reconcile import main as reconcile
from spark_jobs.spark_lines import NEWEST, installed_line
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order, state_in
from tests.spark_jobs.support.read_back import table_exists
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]
VARIANTS = pytest.mark.skipif(installed_line() != NEWEST, reason="needs Spark 4.1")


def reconciled(exporter: Exporter, *more: str) -> int:
    """The exit status of a comparison."""
    done = CliRunner().invoke(reconcile, exporter.arguments("--quiet", *more), env=exporter.environment())
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code


def values_of(*values: object) -> list[Sent]:
    """JSON values with keys; bytes and None stay as they are."""
    return [
        Sent(
            key=b"key-%d" % number,
            value=value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
            headers=(("number", b"%d" % number),),
        )
        for number, value in enumerate(values)
    ]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2)
    writer.lead()
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Exporter:
    return Exporter(
        spark, writer.settings, "orders", local_catalog, new_table(local_catalog), "--value-format", "json"
    )


def test_dead_letters_have_coordinates_and_a_reason(writer: TopicWriter, exporter: Exporter) -> None:
    good = {"id": 1, "name": "one"}
    broken = [b"{", b"\xff\xfe", b"", b"[1, 2]", b'{"id": "not a number"}']
    schema = ("--schema", "id BIGINT, name STRING")
    writer.append(0, values_of(good, broken[0], None, broken[1]), Codec.ZSTD)
    writer.append(1, values_of(*broken[2:], {"id": 2, "name": None}, {"id": 3, "more": 1}))

    rows = in_order(exporter.export(*schema).rows)
    letters = in_order(exporter.dead_letters().rows)
    places = [(row["partition"], row["offset"]) for row in rows]
    dead = [(row["partition"], row["offset"]) for row in letters]
    assert sorted(places + dead) == [(one.partition, one.offset) for one in writer.stored()], "each once"
    assert dead == [(0, 1), (0, 3), (1, 0), (1, 1), (1, 2)]
    assert {(row["partition"], row["offset"]): row["value"] for row in rows} == {
        (0, 0): good,
        (0, 2): None,
        (1, 3): {"id": 2, "name": None},
        (1, 4): {"id": 3, "name": None},
    }
    as_sent = {(one.partition, one.offset): one.row() for one in writer.stored()}
    for letter in letters:
        reason = letter.pop("error")
        assert reason, "a dead letter without a reason"
        assert letter == as_sent[letter["partition"], letter["offset"]], "as it was, byte by byte"

    assert exporter.export(*schema).history == exporter.read().history
    assert in_order(exporter.dead_letters().rows) == in_order(exporter.dead_letters().rows)
    assert len(exporter.dead_letters().rows) == len(broken)


def test_no_dead_letter_table_without_dead_letters(writer: TopicWriter, exporter: Exporter) -> None:
    writer.append(0, values_of({"id": 1}))
    exporter.export()
    assert not table_exists(exporter.catalog, exporter.dead_letter_table)


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_schema_that_is_inferred_grows_with_the_values(writer: TopicWriter, exporter: Exporter) -> None:
    writer.append(0, values_of({"id": 1, "at": {"x": 1}}, {"id": 2}))
    first = exporter.export()
    assert [row["value"] for row in in_order(first.rows)] == [
        {"id": 1, "at": {"x": 1}},
        {"id": 2, "at": None},
    ]

    writer.append(0, values_of({"id": 3, "at": {"x": 3, "y": "new"}, "tags": ["a"]}))
    writer.append(1, values_of({"id": 4}))
    second = exporter.export()
    found = {row["value"]["id"]: row["value"] for row in second.rows}
    assert sorted(found) == [1, 2, 3, 4]
    assert found[1] == {"id": 1, "at": {"x": 1, "y": None}, "tags": None}
    assert found[3] == {"id": 3, "at": {"x": 3, "y": "new"}, "tags": ["a"]}
    assert dict(first.columns)["value"] != dict(second.columns)["value"]
    assert state_in(second.properties, "orders").exported == {0: ((0, 3),), 1: ((0, 1),)}


def test_keys_and_values_as_text_and_what_is_no_text(writer: TopicWriter, exporter: Exporter) -> None:
    writer.append(0, [Sent(key="ключ".encode(), value="значение".encode()), Sent(key=None, value=None)])
    writer.append(0, [Sent(key=b"k", value=b"\xff"), Sent(key=b"\xff", value=b"good")])
    rows = in_order(exporter.export("--value-format", "string", "--key-format", "string").rows)
    letters = in_order(exporter.dead_letters().rows)
    assert [(row["key"], row["value"]) for row in rows] == [("ключ", "значение"), (None, None)]
    assert [(row["key"], row["value"]) for row in letters] == [(b"k", b"\xff"), (b"\xff", b"good")]


@pytest.mark.nightly
def test_a_time_that_does_not_fit_makes_a_dead_letter(writer: TopicWriter, exporter: Exporter) -> None:
    """A producer that counts nanoseconds: it is counted and named, and nothing is null without a word."""
    letter = Sent(key=b"k", value=b'{"id": 2}', timestamp_ms=1_700_000_000_000_000_000)
    writer.append(0, [Sent(value=b'{"id": 1}', timestamp_ms=-1), letter, Sent(value=b'{"id": 3}')])
    done = exporter.run("--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.output[done.output.index("{") :])["dead_letters"] == 1
    assert [row["value"]["id"] for row in in_order(exporter.read().rows)] == [1, 3]
    (found,) = exporter.dead_letters().rows
    assert (found["offset"], found["timestamp"], found["key"]) == (1, None, b"k")
    assert (found["value"], found["error"]) == (letter.value, TIME_DOES_NOT_FIT)


@pytest.mark.nightly
@VARIANTS
def test_variants_take_json_of_any_type(spark: SparkSession, writer: TopicWriter, exporter: Exporter) -> None:
    """Two batches into one table of format version 3; and compared with the topic again."""
    variant = ("--value-format", "json-variant")
    good = [{"a": 1}, {"a": "text", "b": [1, None]}, [1, 2.5], 7, None]
    writer.append(0, values_of(good[0], b'{"a": 1} {"b": 2}', good[1]))
    assert exporter.run(*variant, "--partition-by", "days(timestamp)").exit_code == 0
    writer.append(1, values_of(*good[2:], b'{"a": 1, "a": 2}'))
    assert exporter.run(*variant).exit_code == 0

    table = spark.table(exporter.table)
    assert table.schema["value"].dataType.typeName() == "variant"
    rows = table.selectExpr("partition", "offset", "to_json(value) AS text", "_row_id").collect()
    found = {(row.partition, row.offset): row.text and json.loads(row.text) for row in rows}
    assert found == {(0, 0): good[0], (0, 2): good[1], (1, 0): good[2], (1, 1): good[3], (1, 2): None}
    assert len({row._row_id for row in rows}) == len(rows), "rows of different commits have ids of their own"
    assert [letter["error"] for letter in in_order(exporter.dead_letters().rows)] == [
        "value: is not JSON: Extra data at character 9",
        "value.a: stands twice in its object",
    ]
    assert reconciled(exporter, *variant) == 0


@pytest.mark.nightly
@VARIANTS
def test_variants_need_a_table_of_version_3(writer: TopicWriter, exporter: Exporter) -> None:
    writer.append(0, values_of({"a": 1}))
    variant = ("--value-format", "json-variant")
    refused = exporter.run(*variant, "--table-property", "format-version=2")
    assert refused.exit_code == 1
    assert "--table-property format-version 2 is not legal with --value-format json-variant" in refused.output
    exporter.export("--value-format", "string")
    writer.append(0, values_of({"a": 2}))
    refused = exporter.run(*variant)
    assert refused.exit_code == 1
    assert f"table {exporter.table} of format version 2 is not legal" in refused.output
