"""Topics with transactions in queries and exports of Spark's."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.source.open_source import load_records
from tests.lake.support.transacting import TransactingTopics, Transaction
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.export_runs import Exporter, state_in
from tests.spark_jobs.support.read_back import read_table

NewTable = Callable[[IcebergCatalog], str]
A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)


@pytest.fixture
def topics(tmp_path: Path) -> TransactingTopics:
    return TransactingTopics(tmp_path / "data", "a", "b")


def place_of(row: Any) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def query(spark: SparkSession, topics: TransactingTopics, **options: str) -> DataFrame:
    named = {name.replace("__", "."): value for name, value in options.items()}
    return load_records(spark, {"dataDir": str(topics.settings.data_dir), "subscribe": "a,b", **named})


def places(frame: DataFrame) -> list[tuple[str, int, int]]:
    return sorted(place_of(row) for row in frame.select("topic", "partition", "offset").collect())


@pytest.mark.nightly
@pytest.mark.every_spark
def test_queries_bring_what_their_isolation_level_says(
    spark: SparkSession, topics: TransactingTopics
) -> None:
    aborted, committed, left_open = topics.begin(1), topics.begin(2), topics.begin(3)
    for one in (aborted, committed, None, aborted):
        for place in (A0, B0):
            topics.send(one, place)
    topics.end(aborted, is_commit=False)
    topics.end(committed, is_commit=True)
    topics.send(left_open, A0)
    topics.send(None, A0)
    found = places(query(spark, topics))
    assert found == [place_of(row) for row in topics.committed()]
    found = places(query(spark, topics, isolation__level="read_uncommitted"))
    assert found == [place_of(row) for row in topics.written()]
    end = topics.writers["a"].log_end_offset(0)
    ends = f'{{"a": {{"0": {end}, "1": -1}}, "b": {{"0": -1, "1": -1}}}}'
    with pytest.raises(
        Exception, match=f"a-0 would end before offset {end}, and a transaction is open since"
    ):
        query(spark, topics, endingOffsets=ends).collect()
    some = places(query(spark, topics, exceptOffsets='{"b": {"0": [[2, 4], [5, 6]]}}'))
    assert some == [
        place
        for place in map(place_of, topics.committed())
        if place not in {("b", 0, 2), ("b", 0, 3), ("b", 0, 5)}
    ]


@pytest.mark.nightly
def test_atomic_commits_have_no_transaction_by_half(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: NewTable, topics: TransactingTopics
) -> None:
    rule = new_table(local_catalog) + "_{topic}"
    exporter = Exporter(spark, topics.settings, "a", local_catalog, rule, "--topic", "b")
    dice, running = random.Random(3), dict[int, Transaction]()
    hanging = topics.begin(9)
    topics.send(hanging, B0)
    for _ in range(60):
        producer_id = dice.randrange(3)
        one = running.get(producer_id)
        if one is None or (one.decision and not one.unmarked):
            running[producer_id] = topics.begin(producer_id)
        elif one.decision:
            topics.mark(one, dice.choice(one.unmarked))
        elif one.records and dice.random() < 0.4:
            topics.decide(one, is_commit=dice.random() < 0.7)
        else:
            topics.send(one, dice.choice((A0, A1) if dice.random() < 0.7 else (B0,)))
    done = exporter.run("--transactions", "atomic")
    assert done.exit_code == 0, done.output
    table = read_table(local_catalog, rule.replace("{topic}", "a"))
    there = {place_of(row) for row in table.rows}
    assert there
    wholes = [
        {(record.topic, record.partition, record.offset) for record in one.records} for one in topics.all
    ]
    assert all(whole & there in (set(), whole) for whole in wholes)
    exported = state_in(table.history[-1].summary, "a").exported
    assert any(len(ranges) > 1 for ranges in exported.values()), "nothing waits inside of what is exported"
    topics.end(hanging, is_commit=True)
    for one in running.values():
        if not one.decision:
            topics.decide(one, is_commit=True)
        for place in list(one.unmarked):
            topics.mark(one, place)
    done = exporter.run("--transactions", "atomic")
    assert done.exit_code == 0, done.output
    rows = [
        row for topic in ("a", "b") for row in read_table(local_catalog, rule.replace("{topic}", topic)).rows
    ]
    assert sorted(map(place_of, rows)) == [place_of(row) for row in topics.committed()]
