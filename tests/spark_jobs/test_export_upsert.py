"""End to end: a table with one row for each key is the dictionary that a consumer of the topic would build."""

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafscale.lake.export_mode import property_of
from spark_jobs.tables import jvm, upsert
from tests.spark_jobs.support.catalogs import IcebergCatalog
from tests.spark_jobs.support.compaction import compact, set_compacted
from tests.spark_jobs.support.export_runs import Exporter, state_in
from tests.spark_jobs.support.sent_records import Sent, Stored
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.nightly import by_day

NewTable = Callable[[IcebergCatalog], str]
UPSERT = ("--mode", "upsert")
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")


def newest(records: Iterable[Stored]) -> dict[bytes | None, bytes]:
    """As a consumer that puts what it reads into a dictionary."""
    found: dict[bytes | None, bytes] = {}
    for one in records:
        if one.value is None:
            found.pop(one.key, None)
        else:
            found[one.key] = one.value
    return found


class Upserts:
    """An export with `--mode upsert`, and what Spark, which knows of deletes on reading, finds in its table."""

    def __init__(self, spark: SparkSession, writer: TopicWriter, catalog: IcebergCatalog, table: str) -> None:
        self.spark = spark
        self.writer = writer
        self.exporter = Exporter(spark, writer.settings, writer.topic, catalog, table, *UPSERT)
        self.table = table

    def export(self, *more: str) -> None:
        done = self.exporter.run(*more)
        assert done.exit_code == 0, done.output

    def refused(self, *more: str) -> str:
        done = self.exporter.run(*more)
        assert done.exit_code != 0, done.output
        return done.output

    def rows(self) -> list[tuple[bytes, bytes]]:
        self.spark.catalog.refreshTable(self.table)
        found = self.spark.table(self.table).where("topic = 'prices'").collect()
        return sorted((bytes(row.key), bytes(row.value)) for row in found)

    def check(self) -> None:
        """One row for each key, with the newest value, and nothing staged is left."""
        assert self.rows() == sorted(newest(self.writer.stored()).items())
        table = jvm.load_table(self.spark, self.table)
        metadata = table.operations().current()
        history = list(jvm.ancestor_summaries(metadata, metadata.currentSnapshot()))
        assert len(history) == len(list(metadata.snapshots())), "staged snapshots are left"
        ends = {
            partition: self.writer.log_end_offset(partition) for partition in range(self.writer.partitions)
        }
        state = state_in(jvm.as_mapping(metadata.properties()), self.writer.topic)
        assert state == state_in(history[0], self.writer.topic)
        assert {one: state.position(one) for one in ends} == ends

    def files(self) -> set[str]:
        location = jvm.load_table(self.spark, self.table).location().removeprefix("file:")
        return {str(one) for one in Path(location).rglob("*.parquet")}


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    writer = TopicWriter(embedded(tmp_path), "prices", partitions=2)
    set_compacted(writer)
    return writer


@pytest.fixture
def upserts(
    spark: SparkSession, writer: TopicWriter, local_catalog: IcebergCatalog, new_table: NewTable
) -> Upserts:
    return Upserts(spark, writer, local_catalog, new_table(local_catalog))


def update(writer: TopicWriter, seed: int, count: int = 60) -> None:
    """Updates of some keys in both partitions, and tombstones, of which some are of keys that are not there."""
    chosen = random.Random(seed)
    for partition in range(2):
        writer.append(
            partition,
            [
                Sent(
                    key=b"key-%d-%d" % (partition, chosen.randrange(20)),
                    value=None if chosen.random() < 0.3 else b"%d-%d" % (seed, number),
                )
                for number in range(count)
            ],
        )


def test_the_table_is_the_dictionary_of_a_consumer(upserts: Upserts, writer: TopicWriter) -> None:
    for seed in range(by_day(2, by_night=8)):
        update(writer, seed)
        upserts.export()
        upserts.check()
    properties = jvm.as_mapping(jvm.load_table(upserts.spark, upserts.table).properties())
    assert properties[property_of("prices")] == "upsert"
    assert properties["write.merge.mode"] == "merge-on-read"
    compact(writer, 0)
    # Tombstones of keys that are not there: nothing changes but the state.
    writer.append(0, [Sent(key=b"nowhere", value=None)])
    upserts.export("--compact")
    upserts.check()
    assert upserts.exporter.run().exit_code == 0
    upserts.check()


@pytest.mark.nightly
def test_copy_on_write_and_small_batches(upserts: Upserts, writer: TopicWriter) -> None:
    for seed in range(2):
        update(writer, seed, count=10)
        for partition in range(2):
            writer.append(partition, [Sent(key=b"large-%d" % partition, value=bytes([seed]) * 1_200_000)])
    update(writer, 2, count=10)
    upserts.export("--table-property", "write.merge.mode=copy-on-write", "--max-batch-size", "1MiB")
    upserts.check()


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_run_that_ends_between_stage_and_publish(
    upserts: Upserts, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(writer, 0)
    upserts.export()
    before = upserts.rows()
    update(writer, 1)

    def crash(*_: Any) -> Any:
        raise RuntimeError("the end")

    with monkeypatch.context() as patched:
        patched.setattr(upsert, "_commit", crash)
        with pytest.raises(RuntimeError, match="the end"):
            upserts.exporter.run()
    assert upserts.rows() == before, "nothing of a batch is visible before it is published"
    upserts.export()
    assert upserts.rows() == sorted(newest(writer.stored()).items())
    # After its commit, before it knows: the next run finds what is there.
    update(writer, 2)
    real = upsert._commit

    def crash_late(*given: Any) -> Any:
        real(*given)
        raise RuntimeError("the end")

    with monkeypatch.context() as patched:
        patched.setattr(upsert, "_commit", crash_late)
        with pytest.raises(RuntimeError, match="the end"):
            upserts.exporter.run()
    upserts.export()
    assert upserts.rows() == sorted(newest(writer.stored()).items())


@pytest.mark.nightly
@pytest.mark.every_spark
def test_another_writer_between_stage_and_publish(
    upserts: Upserts, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(writer, 0)
    upserts.export()
    update(writer, 1)
    columns = ", ".join("'other' AS topic" if one == "topic" else one for one in COLUMNS)
    statements = [
        # The batch is merged with what the others made of the table, not with what it was.
        f"DELETE FROM {upserts.table} WHERE topic = 'prices'",
        f"INSERT INTO {upserts.table} SELECT {columns} FROM {upserts.table} LIMIT 3",
    ]
    real = upsert._merge

    def merge(*given: Any) -> Any:
        merged = real(*given)
        if statements:
            upserts.spark.sql(statements.pop())
        return merged

    monkeypatch.setattr(upsert, "_merge", merge)
    upserts.export()
    assert not statements
    upserts.spark.catalog.refreshTable(upserts.table)
    assert upserts.spark.table(upserts.table).where("topic = 'other'").count() == 3
    of_second = [one for one in writer.stored() if one.offset >= 60]
    assert upserts.rows() == sorted(newest(of_second).items())


@pytest.mark.nightly
def test_a_table_that_others_change_all_the_time(
    upserts: Upserts, writer: TopicWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    update(writer, 0)
    upserts.export()
    before = upserts.rows()
    update(writer, 1)
    real = upsert._merge

    def merge(*given: Any) -> Any:
        merged = real(*given)
        upserts.spark.sql(f"INSERT INTO {upserts.table} SELECT * FROM {upserts.table} LIMIT 0")
        return merged

    with monkeypatch.context() as patched:
        patched.setattr(upsert, "_merge", merge)
        patched.setattr(upsert, "_ATTEMPTS", 2)
        patched.setattr(upsert, "_RETRY_SEC", 0.0)
        assert "changed " in upserts.refused()
    assert upserts.rows() == before
    upserts.export()
    assert upserts.rows() == sorted(newest(writer.stored()).items())


def test_what_an_upsert_refuses(upserts: Upserts, writer: TopicWriter) -> None:
    writer.run(lambda topic: topic.set_configs({}))
    update(writer, 0)
    said = upserts.refused()
    assert "'prices' has no compact in its cleanup.policy" in said
    assert "--upsert-any-topic" in said
    writer.append(0, [Sent(value=b"without a key"), Sent(key=b"a", value=b"b")])
    upserts.export("--upsert-any-topic")
    assert upserts.rows() == sorted(newest(one for one in writer.stored() if one.key is not None).items())
    (letter,) = upserts.exporter.dead_letters().rows
    assert (letter["value"], letter["error"]) == (
        b"without a key",
        "key: is missing, and the table has one row for each key",
    )
    update(writer, 1)
    append = Exporter(
        upserts.spark, writer.settings, "prices", upserts.exporter.catalog, upserts.table, "--mode", "append"
    ).run()
    assert append.exit_code == 1
    assert "has topic 'prices' with --mode upsert, and not with --mode append" in append.output
    for options in (["--backfill-from", "earliest"], ["--replay-dead-letters"]):
        assert "older records would take the place of newer ones" in upserts.refused(*options)
    assert "is not legal with --mode upsert" in upserts.refused(
        "--route-by", "header:h", "--route", "a=local.db.a"
    )


@pytest.mark.nightly
@pytest.mark.parametrize("has_merge_into", [True, False], ids=["Spark 4", "as Spark 3.5"])
def test_flat_tables_have_one_row_for_each_key_too(
    upserts: Upserts, writer: TopicWriter, has_merge_into: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upsert, "HAS_MERGE_INTO", has_merge_into)
    flat = ("--value-format", "json", "--flatten")
    writer.append(0, [Sent(key=b"a", value=b'{"id": 1}'), Sent(key=b"b", value=b'{"id": 2}')])
    upserts.export(*flat)
    writer.append(0, [Sent(key=b"a", value=None), Sent(key=b"b", value=b'{"id": 3, "n": "x"}')])
    writer.append(0, [Sent(key=b"c", value=b"{}")])
    upserts.export(*flat)
    found = upserts.spark.sql(
        f"SELECT id, n, _kafka.key, _kafka.offset FROM {upserts.table} ORDER BY 4"
    ).collect()
    assert [(row.id, row.n, bytes(row.key), row.offset) for row in found] == [
        (3, "x", b"b", 3),
        (None, None, b"c", 4),
    ]
