"""End to end: values whose schemas are in a registry, ids that it learns later, and dead letters that come back."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import SparkSession

from kafscale.lake.replay_state import ReplayState, encode_replay, property_of
from spark_jobs.job import batch_write, replay
from spark_jobs.tables import publish as publishing
from spark_jobs.tables import replayed
from spark_jobs.tables.iceberg_table import set_property
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, in_order
from tests.spark_jobs.support.read_back import table_exists
from tests.spark_jobs.support.sent_records import Sent
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.schema_registry import SchemaRegistry, schema_registry

NewTable = Callable[[IcebergCatalog], str]
V1 = {"type": "record", "name": "shop.Order", "fields": [{"name": "id", "type": "long"}]}
V2 = {
    "type": "record",
    "name": "shop.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
}
REFUND = {"type": "record", "name": "shop.Refund", "fields": [{"name": "why", "type": "string"}]}


class KilledError(BaseException):
    """Ends the driver where it stands."""


def avro(number: int, schema: dict[str, Any], value: object) -> Sent:
    """A value as Confluent's serializer writes it."""
    out = io.BytesIO()
    schemaless_writer(out, parse_schema(schema), value)
    return Sent(key=b"k", value=b"\0" + number.to_bytes(4, "big") + out.getvalue())


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path), "orders", partitions=2)
    writer.lead()
    return writer


@pytest.fixture
def exporter(
    spark: SparkSession,
    writer: TopicWriter,
    local_catalog: IcebergCatalog,
    new_table: NewTable,
    registry: SchemaRegistry,
) -> Exporter:
    options = ("--value-format", "avro", "--schema-registry", registry.url, "--schema-registry-timeout", "1")
    return Exporter(spark, writer.settings, "orders", local_catalog, new_table(local_catalog), *options)


def places(rows: Any) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in in_order(rows)]


@pytest.mark.nightly
@pytest.mark.every_spark
def test_schemas_come_from_the_registry_once(
    writer: TopicWriter, exporter: Exporter, registry: SchemaRegistry
) -> None:
    first = registry.register("orders-value", V1)
    writer.append(0, [avro(first, V1, {"id": 1}), Sent(key=b"k", value=None)])
    assert [row["value"] for row in in_order(exporter.export().rows)] == [{"id": 1}, None]

    second = registry.register("orders-value", V2)
    writer.append(0, [avro(second, V2, {"id": 2, "note": "x"}), avro(first, V1, {"id": 3})])
    asked = len(registry.asked)
    rows = in_order(exporter.export().rows)
    assert [row["value"] for row in rows] == [
        {"id": 1, "note": None},
        None,
        {"id": 2, "note": "x"},
        {"id": 3, "note": None},
    ]
    assert len([one for one in registry.asked[asked:] if one.startswith("/schemas")]) <= 1
    assert not table_exists(exporter.catalog, exporter.dead_letter_table)

    registry.fault = lambda _: (503, b"", {})
    writer.append(1, [avro(second, V2, {"id": 4, "note": None}), avro(first, V1, {"id": 5})])
    assert len(exporter.export().rows) == 6, "a registry that is away is not missed"
    writer.append(1, [avro(9, V1, {"id": 6})])
    failed = exporter.run()
    assert failed.exit_code == 1
    assert f"the schema registry {registry.url} answers 503" in failed.output, (
        "not a dead letter: it may be known"
    )
    assert len(exporter.read().rows) == 6


@pytest.mark.nightly
def test_dead_letters_come_back_exactly_once(
    spark: SparkSession,
    writer: TopicWriter,
    exporter: Exporter,
    registry: SchemaRegistry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = registry.register("orders-value", V1)
    values = [avro(7, V1, {"id": number}) for number in range(1, 6)]
    writer.append(0, [avro(known, V1, {"id": 0}), *values])
    writer.append(1, [Sent(key=b"k", value=b"broken"), avro(8, V1, {"id": 7})])
    everything = places([{"partition": one.partition, "offset": one.offset} for one in writer.stored()])

    refused = exporter.run("--on-unknown-schema", "stop")
    assert refused.exit_code == 1
    assert "schema ids that the registry" in refused.output
    assert "does not have: 7, 8;" in refused.output
    limited = exporter.run("--max-dead-letters", "6")
    assert limited.exit_code == 1
    assert "has 7 dead letters among 8 records, and --max-dead-letters allows fewer" in limited.output
    assert not table_exists(exporter.catalog, exporter.dead_letter_table) or not exporter.dead_letters().rows

    assert places(exporter.export("--max-dead-letters", "7", "--max-dead-letters", "90%").rows) == [(0, 0)]
    letters = in_order(exporter.dead_letters().rows)
    assert letters[0]["error"] == "value: has the schema id 7, whose schema is not known"
    assert letters[5]["error"].startswith("value: begins with byte 98")

    registry.register("orders-value", V1, schema_id=7)
    monkeypatch.setattr(replay, "PAGE_ROWS", 2)
    steps = 0
    while killed_after(steps, exporter, monkeypatch):
        steps += 1
        assert steps <= 9, "rows, dead letters and the list, for three pages"
        rows, letters_left = places(exporter.read().rows), places(exporter.dead_letters().rows)
        assert len(set(rows)) == len(rows), "a row twice"
        assert {*rows, *letters_left} == set(everything), "a record is lost"
        twice = set(rows) & set(letters_left)
        assert not twice or property_of("orders") in exporter.read().properties
    assert steps == 9

    result = exporter.run("--replay-dead-letters")
    assert result.exit_code == 0, result.output
    assert "2 dead letters do not decode, and stay in" in result.output
    assert [row["value"]["id"] for row in in_order(exporter.read().rows)] == [0, 1, 2, 3, 4, 5]
    assert places(exporter.dead_letters().rows) == [(1, 0), (1, 1)]
    assert property_of("orders") not in exporter.read().properties
    assert sorted(places(exporter.read().rows) + places(exporter.dead_letters().rows)) == everything

    before = exporter.read().history
    assert exporter.run("--replay-dead-letters").exit_code == 0
    assert exporter.read().history == before, "nothing is left to do"
    assert exporter.export().history == before, "nor to export"

    # Rows that are gone because the table was rolled back are not deleted from the dead letters, too.
    state = ReplayState(
        commit_id="never", dead_letter_table=exporter.dead_letter_table, offsets={1: ((0, 1),)}
    )
    monkeypatch.setattr(replayed, "_was_rolled_back", lambda *_: True)
    set_property(spark, exporter.table, property_of("orders"), encode_replay(state))
    exporter.export()
    assert len(exporter.dead_letters().rows) == 2


STEPS = ((replay, "publish"), (replayed, "_delete"), (replayed, "set_property"))
"""The changes that a replay makes of tables, in order, for each page."""


def killed_after(step: int, exporter: Exporter, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A replay that ends right after this step; False if it did not come to it, and ended by itself."""
    module, name = STEPS[step % len(STEPS)]
    original = getattr(module, name)

    def last(*arguments: Any) -> None:
        original(*arguments)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(module, name, last)
        try:
            done = exporter.run("--replay-dead-letters")
        except KilledError:
            return True
    assert done.exit_code == 0, done.output
    return False


@pytest.mark.nightly
def test_one_topic_into_several_tables_by_type(
    writer: TopicWriter, exporter: Exporter, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = registry.register("orders-shop.Order", V2)
    refund = registry.register("orders-shop.Refund", REFUND)
    other = registry.register("orders-other", {"type": "record", "name": "Other", "fields": V1["fields"]})
    writer.append(0, [avro(order, V2, {"id": 1, "note": "n"}), avro(refund, REFUND, {"why": "broken"})])
    writer.append(
        1, [avro(other, V1, {"id": 9}), Sent(key=b"gone"), avro(order, V2, {"id": 2, "note": None})]
    )
    table = exporter.table
    routes = (
        "--route-by",
        "type",
        "--route",
        f"shop.Order={table}_order",
        "--route",
        f"shop.Refund={table}_refund",
    )

    # Killed after the first of the tables.
    original = publishing.publish
    published: list[str] = []

    def once(spark: Any, name: str, *more: Any) -> None:
        if len(published) == 2:
            raise KilledError
        published.append(name)
        original(spark, name, *more)

    with monkeypatch.context() as patched, pytest.raises(KilledError):
        patched.setattr(batch_write, "publish", once)
        exporter.run(*routes)
    assert published == [f"{table}_dead_letters", f"{table}_order"]
    assert not exporter.read().rows

    # The next run has other routes, and knows where records are all the same.
    writer.append(0, [avro(order, V2, {"id": 3, "note": None})])
    rows = exporter.export(
        "--route-by", "type", "--route", f"*={table}_as_{{route}}", "--max-route-tables", "4"
    ).rows
    assert places(rows) == [(1, 1)], "a tombstone has no type"

    def read(name: str) -> list[Any]:
        return in_order(
            type(exporter)(exporter._spark, exporter.settings, "orders", exporter.catalog, name).read().rows
        )

    assert [row["value"]["id"] for row in read(f"{table}_order")] == [1, 2]
    assert [row["value"]["why"] for row in read(f"{table}_as_shop_Refund")] == ["broken"]
    assert [row["value"]["id"] for row in read(f"{table}_as_shop_Order")] == [3]
    letters = in_order(exporter.dead_letters().rows)
    assert [(row["partition"], row["offset"], row["error"]) for row in letters] == [
        (1, 0, "route Other names no table")
    ]
    assert exporter.export(*routes).history == exporter.read().history
