"""Writes the rows of one batch: decoded ones into the table, staged; the others into the dead-letter table."""

import contextlib
import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from kafscale.lake.batch_plan import BatchPlan, check_compacted, check_same_topic
from kafscale.lake.commit_errors import ExportMismatchError
from kafscale.lake.dead_letter_limit import DeadLetterBudget
from kafscale.lake.ranges import Ranges, intersection
from kafscale.lake.routes import RememberedRoutes, decode_routes
from kafscale.lake.routes import property_of as routes_property
from spark_jobs.decoding.dead_letters import ERROR, IS_KEPT, KEY_BYTES, VALUE_BYTES, dead_letter_columns
from spark_jobs.decoding.options import WITH_FIELDS, ValueOptions
from spark_jobs.job.batch_records import BatchRecords, OpenRecords, records_in
from spark_jobs.job.decoded_batch import DecodedBatch, columns_known
from spark_jobs.job.export_options import TopicOptions
from spark_jobs.job.kept_letters import KeptLetters, LetterWatch, as_data_frame
from spark_jobs.job.topic_schemas import TopicSchemas, reads_latest
from spark_jobs.tables.flat_rows import (
    check_shape,
    flattened,
    is_flat,
    unflattened,
    value_type_of,
    without_reserved,
)
from spark_jobs.tables.iceberg_table import (
    distribution_option,
    ensure_table,
    fitted,
    schema_of_table,
    table_properties,
)
from spark_jobs.tables.layout import quoted
from spark_jobs.tables.publish import Staged, publish, read_state, stage
from spark_jobs.tables.table_options import TableOptions

_COORDINATES = ("topic", "partition", "offset")
_NOT_IN_THE_TABLE = (VALUE_BYTES, KEY_BYTES, ERROR, IS_KEPT)
# Each attempt brings schemas or tables that were unknown; a batch of bytes that only look like ids must end, too.
_MAX_ATTEMPTS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A batch whose rows are staged and whose dead letters are in their table.

    `routed_rows`: those of other tables, which are published already.
    """

    staged: Staged
    dead_letters: int = 0
    routed_rows: int = 0

    @property
    def row_count(self) -> int:
        """The rows of all tables."""
        return self.staged.row_count + self.routed_rows


@dataclass(slots=True, kw_only=True)
class StagedTable:
    """Rows of one table that are written, and invisible. `rows`: as they were decoded, never flat.

    `read_count`: of the records that went by when they were written, dead letters included.
    """

    table: str
    staged: Staged
    rows: DataFrame
    read_count: int


@dataclass(slots=True, kw_only=True)
class StagedBatch:
    """Records as rows of tables, the topic's own one last, and the dead letters among them, with their columns.

    `read_count`: of the records that were read. `kept`: what Spark keeps of it until `release`.
    """

    tables: list[StagedTable] = field(default_factory=list)
    letters: list[DataFrame] = field(default_factory=list)
    read_count: int = 0
    kept: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    @property
    def row_count(self) -> int:
        """The rows of all tables."""
        return sum(one.staged.row_count for one in self.tables)

    def release(self) -> None:
        """Give back what Spark keeps."""
        self.kept.close()


class BatchWriter:
    """Writes batches of one topic. `check` raises if the topic's lease is lost.

    `schemas`: a registry's; `budget`: the dead letters that the run may still make.
    """

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        options: TopicOptions,
        open_records: OpenRecords,
        check: Callable[[], None],
        schemas: TopicSchemas | None = None,
        budget: DeadLetterBudget | None = None,
    ) -> None:
        self._spark = spark
        self._topic = topic
        self._options = options
        self._open_records = open_records
        self._check = check
        self._schemas = schemas
        self._budget = budget

    def write(self, batch: BatchPlan, commit_id: str, topic_id: str) -> Written:
        """Write the batch; the rows of the table become visible with `publish` only.

        Raises `ExportMismatchError`, `DeadLetterLimitError`, `UnknownSchemaError`, `TableRefusedError`,
        `SettingError`, and Spark's errors.
        """
        records = BatchRecords(
            open=functools.partial(self._open_records, batch.wanted), size_bytes=batch.size_bytes
        )
        fresh, known = self._without_committed(records, batch, topic_id)
        staged = self.stage(fresh, commit_id)
        try:
            letters = self._stage_dead_letters(staged.letters, commit_id) if staged.letters else None
            dead_letters = 0 if letters is None else letters.row_count
            self._compare(batch, records, staged, dead_letters, known)
            if self._budget is not None:
                self._budget.check(dead_letters, staged.row_count + dead_letters)
            if letters is not None:
                self._publish_before_rows(self._options.dead_letter_table, letters, batch, topic_id)
            *routed, own = staged.tables
            for one in routed:
                self._publish_before_rows(one.table, one.staged, batch, topic_id)
        finally:
            staged.release()
        return Written(
            staged=own.staged,
            dead_letters=dead_letters,
            routed_rows=sum(one.staged.row_count for one in routed),
        )

    def stage(self, records: BatchRecords, commit_id: str) -> StagedBatch:
        """Write the records into their tables, invisible; again with each schema that turns out to be missing."""
        for attempt in itertools.count():
            staged = self._stage(records, f"{commit_id}-{attempt}" if attempt else commit_id)
            try:
                if self._schemas is None or attempt == _MAX_ATTEMPTS or not self._schemas.learn():
                    return staged
            except BaseException:
                staged.release()
                raise
            staged.release()
        raise AssertionError("the last attempt returns")

    def _stage(self, records: BatchRecords, commit_id: str) -> StagedBatch:
        """One attempt. Tasks report the ids of schemas that they miss."""
        with contextlib.ExitStack() as stack:
            batch = StagedBatch()
            stack.callback(batch.release)
            own = self._stage_table(batch, records, self._options.table, self._value_options(), commit_id)
            batch.tables.append(own)
            batch.read_count = own.read_count
            stack.pop_all()
        return batch

    def _value_options(self, type_name: str | None = None) -> ValueOptions:
        """The options with the registry's schemas as they are now."""
        values = self._options.value
        if self._schemas is None or values.format not in WITH_FIELDS:
            return values
        source = self._schemas.source(reads_latest=reads_latest(values), type_name=type_name)
        return replace(values, source=source)

    def _stage_table(
        self, batch: StagedBatch, records: BatchRecords, table: str, values: ValueOptions, commit_id: str
    ) -> StagedTable:
        """Decode the records and stage their rows; the batch gets the dead letters, none or one frame of them."""
        schema = schema_of_table(self._spark, table)
        check_shape(table, schema, flattens=self._options.flattens)
        decoding = DecodedBatch(
            values,
            records,
            None if schema is None else value_type_of(schema),
            without_reserved if self._options.flattens else lambda one: one,
        )
        batch.kept.callback(decoding.close)
        staged, letters = self._stage_decoded(decoding.decoded(), table, commit_id)
        if decoding.grow(letters):
            # What is staged stays invisible.
            staged, letters = self._stage_decoded(decoding.decoded(), table, f"{commit_id}-grown")
        if letters.count:
            dead = dead_letter_columns(decoding.decoded())
            complete = letters.is_complete
            batch.letters.append(as_data_frame(self._spark, letters, dead.schema) if complete else dead)
        return staged

    def _stage_decoded(
        self, decoded: DataFrame, table: str, staged_as: str
    ) -> tuple[StagedTable, KeptLetters]:
        watch = LetterWatch(decoded)
        rows = self._shaped(_rows_of(watch.watched))
        # Values whose type is not known yet have no column until it is.
        table_options = self._options.table_options
        ensure_table(self._spark, table, columns_known(rows), table_options)
        options = {**self._options.write_options, **distribution_option(self._spark, table, table_options)}
        staged = stage(self._fitted(rows, table), table, staged_as, options)
        letters = watch.letters()
        rows_again = _rows_of(decoded)  # the watch is for the first action only
        return StagedTable(table=table, staged=staged, rows=rows_again, read_count=letters.row_count), letters

    def _shaped(self, rows: DataFrame) -> DataFrame:
        return flattened(rows) if self._options.flattens else rows

    def _fitted(self, rows: DataFrame, table: str) -> DataFrame:
        schema = schema_of_table(self._spark, table)
        assert schema is not None, "the table was made before"
        return fitted(rows, schema)

    def remembered_routes(self) -> RememberedRoutes:
        """The tables that records of the topic went to, as its own table remembers them."""
        properties = table_properties(self._spark, self._options.table)
        return decode_routes(self._topic, properties.get(routes_property(self._topic)))

    def _without_committed(
        self, records: BatchRecords, batch: BatchPlan, topic_id: str
    ) -> tuple[BatchRecords, int]:
        """The records that no other table has yet, and the number of those that one has.

        A crash between the commits to the tables leaves some there. They stay where they are, even if they would
        decode now, or have another route.
        """
        known: list[DataFrame] = []
        for table in (self._options.dead_letter_table, *self.remembered_routes().all_tables):
            schema = schema_of_table(self._spark, table)
            if schema is None:
                continue
            state = read_state(self._spark, table, self._topic)
            check_same_topic(state, topic_id, table)
            ranges = {
                partition: intersection(wanted, state.exported.get(partition, ()))
                for partition, wanted in batch.wanted.items()
            }
            if any(ranges.values()):
                rows = self._spark.table(quoted(table))
                rows = unflattened(rows) if is_flat(schema) else rows
                known.append(rows.where(_within(self._topic, ranges)).select(*_COORDINATES))
        if not known:
            return records, 0
        there = reduce(DataFrame.unionByName, known)
        fresh = records.open(None).join(there, [*_COORDINATES], "left_anti")
        return records_in(fresh, size_bytes=records.size_bytes), there.count()

    def _compare(
        self, batch: BatchPlan, records: BatchRecords, staged: StagedBatch, dead_letters: int, known: int
    ) -> None:
        """Raise `ExportMismatchError` if the batch has other records than are written."""
        brought = staged.row_count + dead_letters + known
        if batch.is_compacted:
            check_compacted(batch, self._topic, brought)
            return
        wanted, is_too_many = batch.record_count, False
        if wanted is None:
            # The segments' own counts are no use for a range that begins inside of one. Nothing is missing if each
            # offset is there; if some have no record, each record must be there that was read.
            offsets = batch.offset_count
            wanted = offsets if offsets == brought else staged.read_count + known
        elif wanted > brought:
            # They include markers, and the records of aborted transactions.
            wanted = staged.read_count + known
        else:
            is_too_many = wanted < brought
        if wanted != brought and not is_too_many:
            wanted = records.open(None).count()
        if wanted != brought:
            raise ExportMismatchError(self._topic, brought, wanted)

    def _stage_dead_letters(self, letters: Sequence[DataFrame], commit_id: str) -> Staged:
        table = self._options.dead_letter_table
        dead = reduce(DataFrame.unionByName, letters)
        properties = self._options.table_options.properties
        ensure_table(self._spark, table, dead.schema, TableOptions(properties=properties))
        return stage(dead, table, commit_id, self._options.write_options)

    def _publish_before_rows(self, table: str, staged: Staged, batch: BatchPlan, topic_id: str) -> None:
        """Commit to a table that is not the topic's own: it knows what it has, should the own one never follow."""
        before = read_state(self._spark, table, self._topic)
        check_same_topic(before, topic_id, table)
        after = before.after(
            commit_id=staged.commit_id, topic_id=topic_id, starts={}, exported=batch.wanted, gaps={}
        )
        self._check()
        publish(self._spark, table, staged, before, after)


def _rows_of(decoded: DataFrame) -> DataFrame:
    return decoded.where(sql.col(ERROR).isNull()).drop(*_NOT_IN_THE_TABLE)


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
