"""Writes the rows of one batch: decoded ones into the table, staged; the others into the dead-letter table."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import DataType, NullType, StructType

from kafscale.lake.batch_plan import BatchPlan
from kafscale.lake.commit_errors import ExportMismatchError
from kafscale.lake.ranges import Range, Ranges, intersection
from spark_jobs.decoding.dead_letters import ERROR, KEY_BYTES, VALUE_BYTES, dead_letter_columns
from spark_jobs.decoding.decoder import open_decoder
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.tables.iceberg_table import ensure_table, fitted, schema_of_table
from spark_jobs.tables.layout import quoted
from spark_jobs.tables.publish import Staged, publish, read_state, stage
from spark_jobs.tables.table_options import TableOptions

_COORDINATES = ("topic", "partition", "offset")
_NOT_IN_THE_TABLE = (VALUE_BYTES, KEY_BYTES, ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A batch whose rows are staged and whose dead letters are in their table."""

    staged: Staged
    dead_letters: int = 0

    @property
    def row_count(self) -> int:
        """The staged rows."""
        return self.staged.row_count


OpenRecords = Callable[[Mapping[int, Range]], DataFrame]
"""The topic's records at these offsets, by partition, with the data source's columns."""


class BatchWriter:
    """Writes batches of one topic. `check` raises if the topic's lease is lost."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        options: TopicOptions,
        open_records: OpenRecords,
        check: Callable[[], None],
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._options = options
        self._open_records = open_records
        self._check = check

    def write(self, batch: BatchPlan, commit_id: str, topic_id: str) -> Written:
        """Write the batch; the rows of the table become visible with `publish` only.

        Raises `ExportMismatchError`, `TableRefusedError`, `SettingError`, and Spark's errors.
        """
        records = self._open_records(batch.ranges)
        decoder = open_decoder(self._options.value, self._spark, records, self._known_type())
        decoded, known = self._without_known_dead_letters(decoder.decode(records), batch)
        seen = Observation()
        decoded = decoded.observe(seen, sql.count(ERROR).alias("dead_letters"))
        rows = decoded.where(sql.col(ERROR).isNull()).drop(*_NOT_IN_THE_TABLE)
        # Values whose type is not known yet have no column until it is.
        columns = StructType([one for one in rows.schema if not isinstance(one.dataType, NullType)])
        ensure_table(self._spark, self._options.table, columns, self._options.table_options)
        staged = stage(self._fitted(rows), self._options.table, commit_id, self._options.write_options)
        # Only shows if there are any: Spark counts twice what it reads twice, as it does to sort.
        letters = self._stage_dead_letters(decoded, commit_id) if seen.get["dead_letters"] else None
        dead_letters = 0 if letters is None else letters.row_count
        self._compare(batch, records, staged.row_count + dead_letters + known)
        if letters is not None:
            self._publish_dead_letters(letters, batch, topic_id)
        return Written(staged=staged, dead_letters=dead_letters)

    def _known_type(self) -> DataType | None:
        schema = schema_of_table(self._spark, self._options.table)
        if schema is None or "value" not in schema.names:
            return None
        return schema["value"].dataType

    def _fitted(self, rows: DataFrame) -> DataFrame:
        schema = schema_of_table(self._spark, self._options.table)
        assert schema is not None, "the table was made before"
        return fitted(rows, schema)

    def _without_known_dead_letters(self, decoded: DataFrame, batch: BatchPlan) -> tuple[DataFrame, int]:
        """The records that are not in the dead-letter table yet, and the number of those that are.

        A crash between the two commits leaves some there. They stay dead letters, even if they would decode now.
        """
        table = self._options.dead_letter_table
        if schema_of_table(self._spark, table) is None:
            return decoded, 0
        state = read_state(self._spark, table, self._topic)
        ranges = {
            partition: intersection((wanted,), state.exported.get(partition, ()))
            for partition, wanted in batch.ranges.items()
        }
        if not any(ranges.values()):
            return decoded, 0
        known = self._spark.table(quoted(table)).where(_within(self._topic, ranges)).select(*_COORDINATES)
        return decoded.join(known, [*_COORDINATES], "left_anti"), known.count()

    def _compare(self, batch: BatchPlan, records: DataFrame, brought: int) -> None:
        wanted = batch.record_count
        if wanted is None or wanted > brought:
            # The segments' own counts are no use for a range that begins inside of one, and they include the markers
            # of transactions, which Kafscale's brokers do not write, but others may have.
            wanted = records.count()
        if wanted != brought:
            raise ExportMismatchError(self._topic, brought, wanted)

    def _stage_dead_letters(self, decoded: DataFrame, commit_id: str) -> Staged:
        table = self._options.dead_letter_table
        dead = dead_letter_columns(decoded)
        properties = self._options.table_options.properties
        ensure_table(self._spark, table, dead.schema, TableOptions(properties=properties))
        return stage(dead, table, commit_id, self._options.write_options)

    def _publish_dead_letters(self, staged: Staged, batch: BatchPlan, topic_id: str) -> None:
        table = self._options.dead_letter_table
        before = read_state(self._spark, table, self._topic)
        exported: dict[int, Ranges] = {partition: (wanted,) for partition, wanted in batch.ranges.items()}
        after = before.after(
            commit_id=staged.commit_id, topic_id=topic_id, starts={}, exported=exported, gaps={}
        )
        self._check()
        publish(self._spark, table, staged, before, after)


def _within(topic: str, ranges: Mapping[int, Ranges]) -> Any:
    condition = sql.lit(False)
    for partition, wanted in ranges.items():
        for first, following in wanted:
            condition = condition | (
                (sql.col("partition") == partition)
                & (sql.col("offset") >= first)
                & (sql.col("offset") < following)
            )
    return (sql.col("topic") == topic) & condition
