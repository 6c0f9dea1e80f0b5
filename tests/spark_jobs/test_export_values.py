"""End to end: values that decode, values that do not, and schemas that grow from run to run."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafscale.protocol.compression import Codec
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order, state_in
from tests.spark_jobs.support.read_back import table_exists
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

NewTable = Callable[[IcebergCatalog], str]


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
