"""The Iceberg table of an export: created if missing, used as it is if it exists, and evolved."""

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import StructField, StructType

from kafscale.errors import SettingError
from kafscale.lake.commit_errors import TableRefusedError
from kafscale.lake.table_care import properties_of_new_table, properties_to_add
from spark_jobs.tables import jvm
from spark_jobs.tables.conform import conformed
from spark_jobs.tables.layout import partition_terms, quoted, quoted_name, sort_terms, type_text
from spark_jobs.tables.publish import WAP_ENABLED
from spark_jobs.tables.table_options import TableOptions

logger = logging.getLogger(__name__)

# With a sort order Iceberg's default distribution is by ranges, for which Spark reads and decodes everything twice.
_DISTRIBUTION = "write.distribution-mode"
_FORMAT_VERSION = "format-version"
_VARIANT_VERSION = 3
_DEFAULTS = {_FORMAT_VERSION: "2", _DISTRIBUTION: "hash", **properties_of_new_table()}


def schema_of_table(spark: SparkSession, name: str) -> StructType | None:
    """The columns of the table, None if it does not exist. Raises `TableRefusedError` if it is not Iceberg's."""
    if not spark.catalog.tableExists(quoted(name)):
        return None
    try:
        jvm.load_table(spark, name)
    except Exception as problem:
        if not jvm.java_exceptions(problem):
            raise
        raise TableRefusedError(
            f"table {name} is there, but it is no Iceberg table that can be read: {_first_line(problem)}"
        ) from problem
    return spark.table(quoted(name)).schema


def ensure_table(spark: SparkSession, name: str, columns: StructType, options: TableOptions) -> None:
    """Make sure that the table exists and can take rows of these columns, as far as its options allow.

    Raises `SettingError` for a layout or format version that is not legal, `TableRefusedError`.
    """
    if has_variants(columns):
        _check_version(f"--table-property {_FORMAT_VERSION}", options.properties.get(_FORMAT_VERSION))
    if schema_of_table(spark, name) is None:
        _create(spark, name, columns, options)
        return
    table = jvm.load_table(spark, name)
    _set_properties(spark, name, table, options)
    if has_variants(columns):
        table.refresh()
        _check_version(f"table {name} of format version", str(table.operations().current().formatVersion()))
    present = {one.name for one in spark.table(quoted(name)).schema}
    wanted = StructType([_optional(one) for one in columns if options.adds_columns or one.name in present])
    try:
        jvm.union_schema(spark, table, wanted)
    except Exception as problem:
        if not jvm.java_exceptions(problem):
            raise
        raise TableRefusedError(
            f"table {name} cannot take the columns of the export: {_first_line(problem)}"
        ) from problem
    spark.catalog.refreshTable(quoted(name))
    _check_required(spark, name, {one.name for one in columns})


def has_variants(columns: StructType) -> bool:
    """True if one of the columns is of the type VARIANT, which tables of format version 3 have."""
    return any(one.dataType.typeName() == "variant" for one in columns)  # Spark 3.5 has no such type


def _check_version(place: str, version: str | None) -> None:
    if version is not None and not (version.isdigit() and int(version) >= _VARIANT_VERSION):
        raise SettingError(
            f"{place} {version} is not legal with --value-format json-variant: variants need format version "
            f"{_VARIANT_VERSION}, which --table-property {_FORMAT_VERSION}={_VARIANT_VERSION} gives a table; older "
            "readers then cannot read it"
        )


def distribution_option(spark: SparkSession, name: str, options: TableOptions) -> dict[str, str]:
    """Spark's write option for a table that is distributed by ranges, unless the options of the export ask for that.

    Earlier versions left sorted tables so. Each file is sorted all the same.
    """
    properties = jvm.as_mapping(jvm.load_table(spark, name).properties())
    by_ranges = properties.get(_DISTRIBUTION) == "range" and _DISTRIBUTION not in options.properties
    return {"distribution-mode": "hash"} if by_ranges else {}


def _create(spark: SparkSession, name: str, columns: StructType, options: TableOptions) -> None:
    names = columns.fieldNames()
    partitioned, ordered = partition_terms(options.partition_by, names), sort_terms(options.sort_by, names)
    namespace, _, _ = name.rpartition(".")
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(namespace)}")
    described = ", ".join(f"{quoted_name(one.name)} {type_text(one.dataType)}" for one in columns)
    defaults = {**_DEFAULTS, _FORMAT_VERSION: str(_VARIANT_VERSION)} if has_variants(columns) else _DEFAULTS
    properties = ", ".join(
        f"{_literal(key)} = {_literal(value)}"
        for key, value in {
            **defaults,
            **options.new_properties,
            **options.properties,
            WAP_ENABLED: "true",
        }.items()
    )
    layout = f"PARTITIONED BY ({', '.join(partitioned)})" if partitioned else ""
    # Two exporters of two topics may create the same table at once.
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {quoted(name)} ({described}) USING iceberg {layout} TBLPROPERTIES ({properties})"
    )
    if ordered:
        # Files are sorted, each by itself. "WRITE ORDERED BY" alone would make the distribution one by ranges.
        distributed = "DISTRIBUTED BY PARTITION " if partitioned else ""
        order = ", ".join(ordered)
        spark.sql(f"ALTER TABLE {quoted(name)} WRITE {distributed}LOCALLY ORDERED BY {order}")
        if _DISTRIBUTION in options.properties:
            _set_properties(spark, name, jvm.load_table(spark, name), options)
    logger.info("created table %s", name)


def _set_properties(spark: SparkSession, name: str, table: Any, options: TableOptions) -> None:
    there = jvm.as_mapping(table.properties())
    wanted = {**properties_to_add(there), **options.properties, WAP_ENABLED: "true"}
    changed = {key: value for key, value in wanted.items() if there.get(key) != value}
    if changed:
        properties = ", ".join(f"{_literal(key)} = {_literal(value)}" for key, value in changed.items())
        spark.sql(f"ALTER TABLE {quoted(name)} SET TBLPROPERTIES ({properties})")


def table_properties(spark: SparkSession, name: str) -> Mapping[str, str]:
    """The properties of the table, none without a table."""
    if not spark.catalog.tableExists(quoted(name)):
        return {}
    return jvm.as_mapping(jvm.load_table(spark, name).properties())


def set_property(spark: SparkSession, name: str, key: str, value: str | None) -> None:
    """Set a property of the table, or remove it if there is no value."""
    if value is None:
        spark.sql(f"ALTER TABLE {quoted(name)} UNSET TBLPROPERTIES IF EXISTS ({_literal(key)})")
    else:
        spark.sql(f"ALTER TABLE {quoted(name)} SET TBLPROPERTIES ({_literal(key)} = {_literal(value)})")


def _optional(column: StructField) -> StructField:
    return StructField(column.name, column.dataType, nullable=True)


def _check_required(spark: SparkSession, name: str, brought: set[str]) -> None:
    missing = [
        one.name for one in spark.table(quoted(name)).schema if not one.nullable and one.name not in brought
    ]
    if missing:
        raise TableRefusedError(
            f"table {name} requires column {missing[0]!r}, which the export does not bring: make it optional with "
            f"ALTER TABLE {name} ALTER COLUMN {missing[0]} DROP NOT NULL"
        )


def fitted(rows: DataFrame, table_schema: StructType) -> DataFrame:
    """The rows with the table's columns only, in its order and shape: null where the export has no value."""
    brought = {one.name: one.dataType for one in rows.schema}
    return rows.select(
        *(
            conformed(sql.col(quoted_name(one.name)), brought[one.name], one.dataType).alias(one.name)
            if one.name in brought
            else sql.lit(None).cast(one.dataType).alias(one.name)
            for one in table_schema
        )
    )


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _first_line(problem: BaseException) -> str:
    if isinstance(problem, PySparkException):
        return str(problem).splitlines()[0]
    java = getattr(problem, "java_exception", None)
    return str(java.getMessage()).splitlines()[0] if java is not None else str(problem)
