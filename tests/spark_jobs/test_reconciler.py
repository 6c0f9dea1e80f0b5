"""Reconciliation with Spark over real Iceberg tables: what agrees, and planted damage of every kind."""

import dataclasses
import datetime
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType

from kafscale.errors import SettingError
from kafscale.lake.export_state import ExportState, encode_state, property_of
from kafscale.lake.ranges import Range
from kafscale.lake.reconciling.comparison import Comparison, DifferenceKind
from kafscale.lake.reconciling.report import as_fields, as_text
from kafscale.reader.topic_state import PartitionLog, TopicLog
from spark_jobs.decoding.decoder import utf8_or_null
from spark_jobs.reconciling.reconciler import ReconcileOptions, Reconciler
from spark_jobs.reconciling.sides import TopicReader
from spark_jobs.source.columns import spark_schema
from tests.spark_jobs.support.catalogs import IcebergCatalog

TOPIC = "events"
TOPIC_ID = UUID(int=11)
NOON = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
NOT_TEXT = b"\xff\xfe"

Record = tuple[Any, ...]


def record(partition: int, offset: int) -> Record:
    value = NOT_TEXT if offset % 10 == 5 else None if offset % 10 == 7 else b"value %d" % offset
    when = NOON + datetime.timedelta(milliseconds=offset)
    return (b"key", value, TOPIC, partition, offset, when, 0, [("h", b"%d" % offset)])


def log_of(*bounds: Range) -> TopicLog:
    return TopicLog(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partitions=tuple(
            PartitionLog(
                topic=TOPIC,
                topic_id=TOPIC_ID,
                partition=partition,
                log_start_offset=start,
                log_end_offset=end,
                references=(),
            )
            for partition, (start, end) in enumerate(bounds)
        ),
    )


def decoded(records: DataFrame, _known_type: DataType | None) -> DataFrame:
    """As the format `string` does it."""
    text = utf8_or_null(sql.col("value"))
    reason = sql.when(sql.col("value").isNotNull() & text.isNull(), "not text")
    return records.withColumn("value_bytes", sql.col("value")).withColumns({"value": text, "error": reason})


Rows = list[Record]
Damage = Callable[[Rows, Rows], None]
"""Changes the rows of the table and those of the dead-letter table before they are written."""

TABLE_SCHEMA = ", ".join(
    f"{one.name} {'string' if one.name == 'value' else one.dataType.simpleString()}"
    for one in spark_schema(include_headers=True)
)
DEAD_LETTER_SCHEMA = ", ".join(
    f"{one.name} {one.dataType.simpleString()}" for one in spark_schema(include_headers=True)
)


class Exported:
    """A topic of some records, and the two tables that an export would have made of it."""

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        records: Sequence[Record],
        state: ExportState,
        log: TopicLog,
        damage: Damage = lambda table, dead: None,
    ) -> None:
        self.spark = spark
        self.table = table
        self.dead_letter_table = f"{table}_dead_letters"
        self.log = log
        self.reads: list[Mapping[int, Range]] = []
        self.records = records
        there = [
            one for one in records if any(first <= one[4] < last for first, last in state.exported[one[3]])
        ]
        rows = [(one[0], one[1] and one[1].decode(), *one[2:]) for one in there if one[1] != NOT_TEXT]
        dead = [one for one in there if one[1] == NOT_TEXT]
        damage(rows, dead)
        written = spark.createDataFrame(rows, TABLE_SCHEMA).writeTo(table)
        written.tableProperty(property_of(TOPIC), encode_state(state)).create()
        spark.createDataFrame(dead, DEAD_LETTER_SCHEMA).writeTo(self.dead_letter_table).create()

    def run(self, *, range_size: int = 10, **options: Any) -> Comparison:
        reader = TopicReader(log=lambda: self.log, records=self._read, decode=decoded)
        asked = ReconcileOptions(
            topic=TOPIC,
            table=self.table,
            dead_letter_table=self.dead_letter_table,
            range_size=range_size,
            **options,
        )
        return Reconciler(self.spark, asked, reader, lambda _: None).run()

    def _read(self, ranges: Mapping[int, Range]) -> DataFrame:
        """The records of a topic: none that has expired."""
        self.reads.append(ranges)
        starts = {one.partition: one.log_start_offset for one in self.log.partitions}
        there = [
            one
            for one in self.records
            if one[3] in ranges
            and ranges[one[3]][0] <= one[4] < ranges[one[3]][1]
            and one[4] >= starts[one[3]]
        ]
        return self.spark.createDataFrame(there, spark_schema(include_headers=True))

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.format(table=self.table, dead=self.dead_letter_table))


RECORDS = [record(partition, offset) for partition in (0, 1) for offset in range(50) if offset != 33]
STATE = ExportState(
    topic=TOPIC,
    topic_id=str(TOPIC_ID),
    commit_id="c1",
    starts={0: 0, 1: 0},
    exported={0: ((0, 40),), 1: ((0, 20), (30, 40))},
    gaps={1: ((20, 25),)},
)


@pytest.fixture
def export(
    spark: SparkSession, local_catalog: IcebergCatalog, new_table: Callable[[IcebergCatalog], str]
) -> Callable[..., Exported]:
    def made(damage: Damage = lambda table, dead: None) -> Exported:
        return Exported(
            spark, new_table(local_catalog), RECORDS, STATE, log_of((12, 50), (0, 50)), damage=damage
        )

    return made


@pytest.mark.nightly
@pytest.mark.every_spark
def test_tables_agree_with_their_topic(export: Callable[..., Exported]) -> None:
    exported = export()
    found = exported.run()
    assert found.agrees
    assert exported.reads == [{0: (12, 40), 1: (0, 40)}]
    rows = [
        (
            one.span.partition,
            one.span.first,
            one.topic and one.topic.count,
            one.table.count,
            one.dead_letters.count,
        )
        for one in found.checks
    ]
    assert rows == [
        (0, 0, None, 9, 1),
        (0, 10, None, 2, 0),
        (0, 12, 8, 7, 1),
        (0, 20, 10, 9, 1),
        (0, 30, 9, 8, 1),
        (1, 0, 10, 9, 1),
        (1, 10, 10, 9, 1),
        (1, 30, 9, 8, 1),
    ]
    assert [plan.lag for plan in found.plans] == [((40, 50),), ((25, 30), (40, 50))]
    assert found.not_compared == ()
    text = as_text(found, shows_all=False)
    assert (
        "Topic and table agree on 56 records; 12 rows are of records that the topic no longer has; " in text
    )
    assert "25 offsets are not exported yet." in text
    assert "events-1: offsets 20 to 24" in text

    hidden = exported.run(skips_expired=True, range_size=100)
    assert hidden.agrees
    assert [one.span.first for one in hidden.checks] == [12, 0, 30]


KEY, VALUE, PARTITION, OFFSET, TIMESTAMP, HEADERS = 0, 1, 3, 4, 5, 7


def at(rows: Rows, partition: int, *offsets: int) -> Rows:
    return [one for one in rows if one[PARTITION] == partition and one[OFFSET] in offsets]


def change(rows: Rows, partition: int, offset: int, changes: Mapping[int, Any]) -> None:
    [row] = at(rows, partition, offset)
    rows[rows.index(row)] = tuple(changes.get(place, one) for place, one in enumerate(row))


def remove(rows: Rows, partition: int, *offsets: int) -> None:
    for row in at(rows, partition, *offsets):
        rows.remove(row)


def all_damage(table: Rows, dead: Rows) -> None:
    remove(table, 0, 13, 14)
    change(table, 0, 21, {KEY: b"\0"})
    change(table, 0, 27, {VALUE: ""})
    [row] = at(table, 0, 28)
    later = row[TIMESTAMP] + datetime.timedelta(microseconds=1)
    change(table, 0, 28, {TIMESTAMP: later, HEADERS: None})
    table += at(table, 0, 3, 30)
    remove(dead, 0, 35)
    change(dead, 1, 5, {VALUE: b"\xff"})
    remove(table, 1, *range(10, 20))
    remove(dead, 1, *range(10, 20))
    table.append(tuple(45 if place == OFFSET else one for place, one in enumerate(at(table, 1, 1)[0])))
    change(table, 1, 34, {OFFSET: 33})


@pytest.mark.nightly
@pytest.mark.every_spark
def test_damage_is_found_by_row_and_column(export: Callable[..., Exported]) -> None:
    exported = export(all_damage)
    found = exported.run()
    assert not found.agrees
    told = [(one.partition, one.first, one.last, one.kind.name, one.columns) for one in found.differences]
    assert told == [
        (0, 13, 14, "MISSING", ()),
        (0, 21, 21, "CHANGED", ("key",)),
        (0, 27, 27, "CHANGED", ("value",)),
        (0, 28, 28, "CHANGED", ("timestamp", "headers")),
        (0, 30, 30, "DUPLICATE", ()),
        (0, 35, 35, "MISSING", ()),
        (1, 5, 5, "CHANGED", ("value",)),
        (1, 10, 19, "MISSING", ()),
        (1, 33, 33, "EXTRA", ()),
        (1, 34, 34, "MISSING", ()),
    ]
    assert found.kinds == {
        DifferenceKind.MISSING: 14,
        DifferenceKind.CHANGED: 4,
        DifferenceKind.DUPLICATE: 1,
        DifferenceKind.EXTRA: 1,
    }
    assert [(one.partition, one.tally.first, one.tally.count) for one in found.unexpected] == [(1, 45, 1)]
    assert [one.duplicates for one in found.checks if one.duplicates] == [1]
    text = as_text(found, shows_all=True)
    assert "events-0: offset 28: 1 record not the same: timestamp, headers" in text
    assert "events-1: offset 45: 1 row in the table, which does not say that it has them" in text
    fields = as_fields(found)
    assert not fields["agrees"]
    assert fields["kinds"]["MISSING"] == 14


@pytest.mark.nightly
def test_columns_may_be_left_out_and_are_named(export: Callable[..., Exported]) -> None:
    def damage(table: Rows, dead: Rows) -> None:
        change(table, 1, 8, {VALUE: ""})

    exported = export(damage)
    exported.sql("ALTER TABLE {table} ADD COLUMN remark string")
    exported.sql("INSERT INTO {table} SELECT * FROM {table} WHERE false")
    exported.sql("ALTER TABLE {table} DROP COLUMN headers")
    found = exported.run(except_columns=("value",))
    assert found.agrees
    assert sorted(found.not_compared) == [
        "headers: the table does not have it",
        "remark: the topic does not have it",
        "value: left out by --except-column",
    ]


@pytest.mark.parametrize(
    ("offset", "is_expected"),
    [(45, True), (22, False)],
)
@pytest.mark.nightly
@pytest.mark.every_spark
def test_dead_letters_may_be_ahead_of_the_rows_of_their_batch(
    export: Callable[..., Exported], offset: int, is_expected: bool
) -> None:
    def damage(table: Rows, dead: Rows) -> None:
        dead.append(tuple(offset if place == OFFSET else one for place, one in enumerate(at(dead, 1, 5)[0])))

    found = export(damage).run(skips_expired=True)
    assert found.agrees == is_expected
    assert [one.tally.first for one in found.unexpected] == ([] if is_expected else [offset])


def test_a_table_of_an_earlier_topic_is_not_compared(export: Callable[..., Exported]) -> None:
    exported = export()
    exported.log = TopicLog(topic=TOPIC, topic_id=UUID(int=12), partitions=exported.log.partitions)
    found = exported.run()
    assert not found.agrees
    assert exported.reads == []
    assert "has an earlier topic of this name" in as_text(found, shows_all=False)


def test_a_table_that_is_not_there_is_no_legal_option(export: Callable[..., Exported]) -> None:
    exported = export()
    exported.table += "_nowhere"
    with pytest.raises(SettingError, match="no such table"):
        exported.run()


def test_a_table_whose_rows_cannot_be_found_is_refused(export: Callable[..., Exported]) -> None:
    exported = export()
    exported.sql("ALTER TABLE {table} DROP COLUMN offset")
    with pytest.raises(SettingError, match="no column 'offset'"):
        exported.run()


@pytest.mark.nightly
@pytest.mark.every_spark
def test_a_compacted_topic_has_fewer_records_than_its_table(export: Callable[..., Exported]) -> None:
    def damage(table: Rows, dead: Rows) -> None:
        remove(table, 0, 14, 20)
        table += at(table, 0, 22, 24)
        change(table, 1, 8, {VALUE: ""})
        remove(dead, 1, 5)

    exported = export(damage)
    exported.log = dataclasses.replace(exported.log, compacts=True)
    # All odd offsets are compacted away, and with them nothing that differs but a dead letter.
    exported.records = [one for one in RECORDS if not one[OFFSET] % 2]
    found = exported.run()
    told = [(one.partition, one.first, one.last, one.kind.name) for one in found.differences]
    assert told == [
        (0, 14, 14, "MISSING"),
        (0, 20, 20, "MISSING"),
        (0, 22, 22, "DUPLICATE"),
        (0, 24, 24, "DUPLICATE"),
        (1, 8, 8, "CHANGED"),
    ]
    assert [(one.span.first, one.compacted_away) for one in found.checks] == [
        (0, 0),
        (10, 0),
        (12, 4),
        (20, 5),
        (30, 4),
        (0, 4),
        (10, 5),
        (30, 4),
    ]
    assert not found.unexpected
    assert "26 rows are of records that were compacted away" in as_text(found, shows_all=False)


@pytest.mark.nightly
def test_a_repeated_row_of_a_compacted_record_is_found(export: Callable[..., Exported]) -> None:
    def repeat(table: Rows, dead: Rows) -> None:
        table += at(table, 0, 23)

    exported = export(repeat)
    exported.log = dataclasses.replace(exported.log, compacts=True)
    exported.records = [one for one in RECORDS if not one[OFFSET] % 2]
    found = exported.run()
    assert [one.duplicates for one in found.checks if one.duplicates] == [1]
    assert not found.agrees
    exported.sql("DELETE FROM {table} WHERE partition = 0 AND offset = 23")
    assert exported.run().agrees
