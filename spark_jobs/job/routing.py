"""The route of each record, as columns: by the type of its value, by a header, or by a field of its value."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql import types as st

from kafscale.errors import SettingError
from kafscale.lake.registry.documents import SchemaDocument, SchemaType
from kafscale.lake.routes import RouteKey, RouteKind
from spark_jobs.decoding import framing
from spark_jobs.decoding.avro.schemas import type_name
from spark_jobs.decoding.dead_letters import ERROR
from spark_jobs.decoding.decoder import open_decoder, utf8_or_null
from spark_jobs.decoding.json.json_schema import title_of
from spark_jobs.decoding.options import ValueFormat, ValueOptions
from spark_jobs.decoding.problems import UndecodableError
from spark_jobs.decoding.protobuf.registered import descriptor_set, message_paths
from spark_jobs.decoding.schema_source import ReportUnknown, SchemaSource, UnknownIds, unknown_id

ROUTE: Final = "kafscale_route"
ROUTE_ERROR: Final = "kafscale_route_error"

TypeNames = Mapping[int, Mapping[tuple[int, ...], str]]
"""The names of the types of a schema id; one for (), or by the indexes of Protobuf's framing."""


def with_route(records: DataFrame, key: RouteKey, values: ValueOptions, spark: SparkSession) -> DataFrame:
    """The records with their route, null where they have none, and why they have none.

    `values` with the registry's schemas. Raises `SettingError`.
    """
    match key.kind:
        case RouteKind.HEADER:
            route = _header(key.name)
            return _with_reason(records.withColumn(ROUTE, route), f"headers: no text in {key.name!r}")
        case RouteKind.FIELD if values.format in (ValueFormat.JSON, ValueFormat.JSON_VARIANT):
            path = "$" + "".join(f"['{step}']" for step in key.path)
            route = sql.get_json_object(_json_text(), path)
            return _with_reason(records.withColumn(ROUTE, route), f"value.{key.name}: is not there, or null")
        case RouteKind.FIELD:
            return _by_decoded_field(records, key, values, spark)
        case RouteKind.TYPE:
            return _by_type(records, values)


def _header(name: str) -> Column:
    """The last of the headers of this name, as text."""
    named = sql.filter(sql.col("headers"), lambda one: one.getField("key") == name)
    return utf8_or_null(sql.try_element_at(named, sql.lit(-1)).getField("value"))


def _json_text() -> Column:
    value = sql.col("value")
    framed = sql.substring(value, 1, 1) == sql.lit(b"\0")
    content = sql.when(framed, sql.substring(value, framing.HEADER_BYTES + 1, 2**31 - 1)).otherwise(value)
    return utf8_or_null(content)


def _with_reason(routed: DataFrame, reason: str) -> DataFrame:
    return routed.withColumn(ROUTE_ERROR, sql.when(sql.col(ROUTE).isNull(), sql.lit(reason)))


def _by_decoded_field(
    records: DataFrame, key: RouteKey, values: ValueOptions, spark: SparkSession
) -> DataFrame:
    """Avro and Protobuf values are decoded for it, and once more with the schema of their table."""
    if values.format not in (ValueFormat.AVRO, ValueFormat.PROTOBUF):
        raise SettingError(f"--route-by field:{key.name} is not legal with --value-format {values.format}")
    decoder = open_decoder(values, spark, records, None)
    found: st.DataType = decoder.value_type
    route = sql.col("value")
    for step in key.path:
        if not isinstance(found, st.StructType) or step not in found.names:
            raise SettingError(
                f"--route-by field:{key.name} is not legal: the schema of values has no such field"
            )
        route, found = route.getField(step), found[step].dataType
    reason = sql.coalesce(sql.col(ERROR), sql.lit(f"value.{key.name}: is not there, or null"))
    decoded = decoder.decode(records).withColumn(ROUTE, route.cast("string"))
    decoded = decoded.withColumn(ROUTE_ERROR, sql.when(sql.col(ROUTE).isNull(), reason))
    kept = [one for one in records.columns if one not in ("value", "key")]
    key_bytes = "key_bytes" if "key_bytes" in decoded.columns else "key"
    return decoded.select(
        sql.col(key_bytes).alias("key"), sql.col("value_bytes").alias("value"), *kept, ROUTE, ROUTE_ERROR
    )


def type_names(source: SchemaSource) -> TypeNames:
    """The names of the types of every known schema; of one that is no schema of the kind there are none."""
    return {number: _names(number, document) for number, document in source.writers.items()}


def _names(number: int, document: SchemaDocument) -> Mapping[tuple[int, ...], str]:
    what = f"the schema of id {number}"
    try:
        match document.schema_type:
            case SchemaType.PROTOBUF:
                return message_paths(descriptor_set(document, what), what)
            case SchemaType.AVRO:
                name = type_name(document.text)
            case SchemaType.JSON:
                name = title_of(document.text)
    except SettingError:
        return {}
    return {} if name is None else {(): name}


def _by_type(records: DataFrame, values: ValueOptions) -> DataFrame:
    if values.source is None:
        raise SettingError("--route-by type needs the schemas' names: give --schema-registry")
    schema = st.StructType(
        [
            *records.schema.fields,
            st.StructField(ROUTE, st.StringType(), True),
            st.StructField(ROUTE_ERROR, st.StringType(), True),
        ]
    )
    names, report = type_names(values.source), values.source.report_unknown

    def add_routes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        finder = TypeFinder(names, report)
        for batch in batches:
            found = [finder.find(value) for value in batch.column("value").cast(pa.binary()).to_pylist()]
            columns = [pa.array([one[place] for one in found], pa.string()) for place in (0, 1)]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *columns], names=[*batch.schema.names, ROUTE, ROUTE_ERROR]
            )

    return records.mapInArrow(add_routes, schema)


class TypeFinder:
    """Finds the name of a value's type by its frame."""

    def __init__(self, names: TypeNames, report: ReportUnknown | None) -> None:
        self._names = names
        self._unknown = UnknownIds(report)

    def find(self, value: bytes | None) -> tuple[str | None, str | None]:
        """The name, or why there is none; neither for a null."""
        if value is None:
            return None, None
        try:
            return self._name(value), None
        except UndecodableError as problem:
            return None, problem.reason()

    def _name(self, value: bytes) -> str:
        number = framing.schema_id(value)
        names = self._names.get(number)
        if names is None:
            self._unknown.add(number)
            raise UndecodableError(unknown_id(number))
        if () in names:
            return names[()]
        if names:
            indexes, _ = framing.message_indexes(value, framing.HEADER_BYTES)
            if indexes in names:
                return names[indexes]
        raise UndecodableError(f"has the schema id {number}, whose schema names no such type")
