"""Hashes and row by row comparison in Spark: a loss, a duplicate, or a change in any column is always found."""

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from kafscale.lake.reconciling.comparison import DifferenceKind, Tally, check_spans
from kafscale.lake.reconciling.spans import Span, Standing
from spark_jobs.reconciling.row_hash import hashed
from spark_jobs.reconciling.tallies import Side, SpanRows, row_differences

Values = dict[str, Any]

SCHEMA = (
    "partition int, offset long, key binary, timestamp timestamp, timestampType int,"
    " headers array<struct<key string, value binary>>,"
    " value struct<id: long, name: string, price: decimal(12, 2), ratio: double, day: date,"
    " tags: array<string>, limits: map<string, int>, `odd.name`: struct<deep: array<struct<a: int, b: int>>>>"
)
COLUMNS = ("key", "timestamp", "timestampType", "headers", "value")
NOON = datetime.datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=datetime.UTC)


def row(offset: int, partition: int = 0, **changes: Any) -> Values:
    value = {
        "id": offset,
        "name": f"n{offset}",
        "price": Decimal("12.50"),
        "ratio": 0.5,
        "day": datetime.date(2026, 3, 1),
        "tags": ["a", None, "b"],
        "limits": {"low": 1, "high": None},
        "odd.name": {"deep": [{"a": 1, "b": None}, None]},
    }
    nested = {name.removeprefix("value_"): changes.pop(name) for name in list(changes) if "value_" in name}
    return {
        "partition": partition,
        "offset": offset,
        "key": b"k",
        "timestamp": NOON,
        "timestampType": 0,
        "headers": [("h", b"1"), ("h", None), ("", b"")],
        "value": value | nested,
    } | changes


def frame(spark: SparkSession, rows: Sequence[Values]) -> DataFrame:
    return spark.createDataFrame([tuple(one.values()) for one in rows], SCHEMA)


CHANGES: dict[str, Values] = {
    "a key": {"key": b"K"},
    "a key that is gone": {"key": None},
    "a key that is empty": {"key": b""},
    "a microsecond": {"timestamp": NOON + datetime.timedelta(microseconds=1)},
    "no timestamp": {"timestamp": None},
    "the timestamp's type": {"timestampType": 1},
    "no headers": {"headers": None},
    "empty headers": {"headers": []},
    "a header less": {"headers": [("h", b"1"), ("h", None)]},
    "headers the other way round": {"headers": [("h", None), ("h", b"1"), ("", b"")]},
    "null moved from one header to the next": {"headers": [("h", None), ("h", b"1"), ("", b"")]},
    "a header's null that is empty": {"headers": [("h", b"1"), ("h", b""), ("", b"")]},
    "a null header": {"headers": [("h", b"1"), None, ("", b"")]},
    "a tombstone": {"value": None},
    "a number": {"value_id": -1},
    "text": {"value_name": "x"},
    "null for text": {"value_name": None},
    "a cent": {"value_price": Decimal("12.51")},
    "the last bit": {"value_ratio": 0.5000000000000001},
    "a day": {"value_day": datetime.date(2026, 3, 2)},
    "a null that moved in an array": {"value_tags": [None, "a", "b"]},
    "an array that is empty": {"value_tags": []},
    "an array that is null": {"value_tags": None},
    "a value of a map": {"value_limits": {"low": 1, "high": 0}},
    "a key of a map": {"value_limits": {"low": 1, "higher": None}},
    "values of a map that changed places": {"value_limits": {"low": None, "high": 1}},
    "a field deep inside": {"value_odd.name": {"deep": [{"a": None, "b": 1}, None]}},
    "a null deep inside": {"value_odd.name": {"deep": [{"a": 1, "b": None}, {"a": None, "b": None}]}},
}


def column_of(change: Values) -> str:
    [name] = change
    return name.partition("_")[0]


def test_every_change_is_found_and_its_column_named(spark: SparkSession) -> None:
    topic = [row(offset) for offset in range(2 * len(CHANGES))]
    stored = [*topic]
    for place, change in enumerate(CHANGES.values()):
        stored[2 * place] = row(2 * place, **change)
    # Entries of a map have no order, and rows have none.
    stored[1]["value"] = dict(topic[1]["value"], limits={"high": None, "low": 1})
    found = row_differences(
        hashed(frame(spark, topic), COLUMNS), hashed(frame(spark, stored[::-1]), COLUMNS), COLUMNS, 1000
    )
    told = {one.first: (one.kind, one.columns) for one in found.first}
    expected = {
        2 * place: (DifferenceKind.CHANGED, (column_of(change),))
        for place, change in enumerate(CHANGES.values())
    }
    assert told == expected
    assert found.kinds == {DifferenceKind.CHANGED: len(CHANGES)}


@pytest.mark.nightly
@pytest.mark.every_spark
def test_rows_that_are_lost_and_rows_too_many(spark: SparkSession) -> None:
    topic = [row(offset, partition) for partition in (0, 1) for offset in range(10)]
    stored = [one for one in topic if (one["partition"], one["offset"]) != (0, 3)]
    stored += [row(5, 1), row(5, 1), row(10, 1), row(11, 1), row(11, 1)]
    found = row_differences(
        hashed(frame(spark, topic), COLUMNS), hashed(frame(spark, stored), COLUMNS), COLUMNS, 3
    )
    assert found.kinds == {
        DifferenceKind.MISSING: 1,
        DifferenceKind.DUPLICATE: 2,
        DifferenceKind.EXTRA: 1,
    }
    assert [(one.partition, one.first, one.kind) for one in found.first] == [
        (0, 3, DifferenceKind.MISSING),
        (1, 5, DifferenceKind.DUPLICATE),
        (1, 10, DifferenceKind.EXTRA),
    ]


def span(partition: int, first: int, next_offset: int, standing: Standing = Standing.COMPARED) -> Span:
    return Span(partition=partition, first=first, next_offset=next_offset, standing=standing)


SPANS = (
    span(0, 0, 4, Standing.EXPIRED),
    span(0, 4, 10),
    span(0, 10, 20),
    span(1, 10, 20),
    span(1, 20, 25),
)


@pytest.fixture
def tallied(spark: SparkSession) -> Callable[[Sequence[Values]], Any]:
    def tally(rows: Sequence[Values]) -> Any:
        hashes = {Side.TABLE: hashed(frame(spark, rows), COLUMNS)}
        return SpanRows(spark, SPANS, 10).tallies(hashes, len(COLUMNS))[Side.TABLE]

    return tally


@pytest.mark.nightly
@pytest.mark.every_spark
def test_rows_are_counted_and_hashed_by_span(
    spark: SparkSession, tallied: Callable[[Sequence[Values]], Any]
) -> None:
    rows = [row(offset, partition) for partition in (0, 1) for offset in range(22)]
    topic = tallied(rows)
    shape = {one: (tally.count, tally.first, tally.last) for one, tally in topic.spans.items()}
    assert shape == dict(
        zip(SPANS, [(4, 0, 3), (6, 4, 9), (10, 10, 19), (10, 10, 19), (2, 20, 21)], strict=True)
    )
    assert {one.partition: one.tally.count for one in topic.outside} == {0: 2, 1: 10}
    assert [(one.tally.first, one.tally.last) for one in topic.outside] == [(20, 21), (0, 9)]

    # The same rows at other offsets have another sum: rows that changed places do not cancel out.
    assert len({topic.spans[SPANS[2]].hash_sum, topic.spans[SPANS[3]].hash_sum}) == 2

    swapped = [one for one in rows if (one["partition"], one["offset"]) not in {(0, 12), (0, 13)}]
    swapped += [row(12, key=b"of 13"), row(13), row(1), {**row(0), "partition": None, "offset": None}]
    stored = tallied(swapped[::-1])
    checks = check_spans(SPANS, topic.spans, stored.spans, {}, {})
    assert [check.span for check in checks if not check.agrees] == [SPANS[2]]
    assert stored.outside[0].partition is None
    assert stored.outside[0].tally.count == 1

    hashes = hashed(frame(spark, swapped), COLUMNS)
    assert SpanRows(spark, SPANS, 10).duplicates(hashes, SPANS[:2]) == {SPANS[0]: 1}
    assert SpanRows(spark, SPANS, 10).duplicates(hashes, ()) == {}


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_span_without_rows_is_not_there(tallied: Callable[[Sequence[Values]], Any]) -> None:
    assert tallied([row(4)]).spans.keys() == {SPANS[1]}
    assert isinstance(tallied([row(4)]).spans[SPANS[1]], Tally)
