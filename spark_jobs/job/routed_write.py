"""Writes one topic's batch into several tables, by route. They are committed before the topic's own table.

Decision 0086: the topic's own table has the state that counts. The others know what they have, so that a run after a
crash leaves out what is there already.
"""

import dataclasses
from collections.abc import Mapping
from typing import Final

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from kafscale.lake.routes import KnownRoutes, RouteKind, Routes, UnknownRoute, encode_routes
from kafscale.lake.routes import property_of as routes_property
from spark_jobs.decoding.dead_letters import ERROR, VALUE_BYTES, dead_letter_columns
from spark_jobs.decoding.options import ValueFormat, ValueOptions
from spark_jobs.job.batch_records import BatchRecords, records_in
from spark_jobs.job.batch_write import BatchWriter, StagedBatch, StagedTable
from spark_jobs.job.routing import ROUTE, ROUTE_ERROR, with_route
from spark_jobs.tables.iceberg_table import set_property

_MAX_SEEN: Final = 5_000


class RoutedWriter(BatchWriter):
    """See `BatchWriter`; the options have routes."""

    def _stage(self, records: BatchRecords, commit_id: str) -> StagedBatch:
        routes = self._options.routes
        assert routes is not None, "there are routes"
        # Read once, however many tables there are.
        routed = with_route(records.open(None), routes.key, self._base_options(routes), self._spark)
        routed = routed.persist(StorageLevel.MEMORY_AND_DISK)
        batch = StagedBatch()
        batch.kept.callback(routed.unpersist)
        try:
            self._stage_routed(batch, routed, routes, commit_id)
        except BaseException:
            batch.release()
            raise
        return batch

    def _stage_routed(self, batch: StagedBatch, routed: DataFrame, routes: Routes, commit_id: str) -> None:
        known = KnownRoutes(
            routes=routes,
            topic_tables=(self._options.table, self._options.dead_letter_table),
            before=self.remembered_routes(),
        )
        batch.read_count = routed.count()
        seen = [row[ROUTE] for row in routed.select(ROUTE).distinct().limit(_MAX_SEEN).collect()]
        chosen = {route: known.add(route) for route in sorted(one for one in seen if one is not None)}
        tables = {route: table for route, table in chosen.items() if table is not None}
        own = self._stage_own(batch, routed, tables, routes, commit_id)
        if known.remembered() != known.before:
            # Before anything is in them: only this says after a crash where records may be.
            text = encode_routes(known.remembered())
            set_property(self._spark, self._options.table, routes_property(self._topic), text)
        for route, table in tables.items():
            part = routed.where(sql.col(ROUTE) == route).drop(ROUTE, ROUTE_ERROR)
            values = self._options_of(route, routes)
            staged = self._stage_table(batch, records_in(part, is_kept=True), table, values, commit_id)
            batch.tables.append(staged)
        batch.tables.append(own)

    def _stage_own(
        self,
        batch: StagedBatch,
        routed: DataFrame,
        tables: Mapping[str, str],
        routes: Routes,
        commit_id: str,
    ) -> StagedTable:
        """The topic's own table gets what has no value and no route, and what is unknown if that is wanted."""
        named = sql.coalesce(sql.col(ROUTE).isin(list(tables)), sql.lit(False))
        nothing = sql.col(ROUTE).isNull() & sql.col("value").isNull()
        if routes.unknown is UnknownRoute.TABLE:
            rows, values = routed.where(~named), self._value_options()
        else:
            rows, values = routed.where(nothing), ValueOptions(key_format=self._options.value.key_format)
            unknown = routed.where(~named & ~nothing)
            if not unknown.isEmpty():
                batch.letters.append(_unknown_letters(unknown))
        rows = rows.drop(ROUTE, ROUTE_ERROR)
        if routes.unknown is not UnknownRoute.TABLE:
            # Nothing but nulls: a table without a column for them can still get one of any type.
            rows = rows.withColumn("value", sql.lit(None).cast("void"))
        return self._stage_table(
            batch, records_in(rows, is_kept=True), self._options.table, values, commit_id
        )

    def _base_options(self, routes: Routes) -> ValueOptions:
        """To find routes with: names of types need no columns."""
        if routes.key.kind is RouteKind.FIELD and self._options.value.format is not ValueFormat.JSON:
            return self._value_options()
        if self._schemas is None:
            return self._options.value
        return dataclasses.replace(
            self._options.value, source=self._schemas.source(reads_latest=False, type_name=None)
        )

    def _options_of(self, route: str, routes: Routes) -> ValueOptions:
        values = self._value_options(route if routes.key.kind is RouteKind.TYPE else None)
        if routes.key.kind is RouteKind.TYPE and values.format is ValueFormat.PROTOBUF:
            return dataclasses.replace(values, message=route)
        return values


def _unknown_letters(unknown: DataFrame) -> DataFrame:
    reason = sql.coalesce(
        sql.col(ROUTE_ERROR),
        sql.concat(sql.lit("route "), _shown(sql.col(ROUTE)), sql.lit(" names no table")),
    )
    return dead_letter_columns(unknown.withColumns({VALUE_BYTES: sql.col("value"), ERROR: reason}))


def _shown(text: Column) -> Column:
    return sql.regexp_replace(sql.substring(text, 1, 60), "[^ -~]", "?")
