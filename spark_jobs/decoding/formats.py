"""Turns the value options into a format that executors receive; the driver checks the options."""

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as st

from kafscale.errors import SettingError
from kafscale.lake.registry.documents import SchemaDocument
from spark_jobs.decoding.avro.column import AvroFormat
from spark_jobs.decoding.avro.schemas import read_schemas
from spark_jobs.decoding.columns import ColumnFormat
from spark_jobs.decoding.json.column import JsonFormat
from spark_jobs.decoding.json.evolution import evolved
from spark_jobs.decoding.json.inference import joined, observe_batches
from spark_jobs.decoding.json.json_schema import json_schema_type
from spark_jobs.decoding.json.observed import MAX_FIELDS_SEEN, Observed
from spark_jobs.decoding.json.schema import read_type
from spark_jobs.decoding.json.variant import VariantFormat
from spark_jobs.decoding.options import Framing, ValueFormat, ValueOptions
from spark_jobs.decoding.protobuf.column import ProtobufFormat
from spark_jobs.decoding.protobuf.descriptors import check_message
from spark_jobs.decoding.protobuf.registered import descriptor_set, first_message, message_paths
from spark_jobs.decoding.schema_files import read_bytes, read_text
from spark_jobs.decoding.schema_source import SchemaSource
from spark_jobs.decoding.text import TextFormat
from spark_jobs.decoding.types import parts, require_usable

logger = logging.getLogger(__name__)


def column_format(
    options: ValueOptions, spark: SparkSession, records: DataFrame, known_type: st.DataType | None
) -> ColumnFormat | None:
    """The format of the values; None for bytes. Raises `SettingError`.

    `known_type` matters for inferred JSON only: then one job looks at `records`.
    """
    if not is_inferred(options):
        return fixed_format(options)
    data_type = evolved(known_type, observed_in(records, options, known_type), options.max_fields)
    return inferred_format(options, data_type)


def is_inferred(options: ValueOptions) -> bool:
    """True for values whose type is not given, but found in them. Raises `SettingError`."""
    _require_matching(options)
    has_reader = options.source is not None and options.source.reader is not None
    has_schema = options.schema is not None or bool(options.schema_files) or has_reader
    return options.format is ValueFormat.JSON and not has_schema


def fixed_format(options: ValueOptions) -> ColumnFormat | None:
    """The format of values whose type is not inferred; None for bytes. Raises `SettingError`."""
    _require_matching(options)
    match options.format:
        case ValueFormat.BYTES:
            return None
        case ValueFormat.STRING:
            return TextFormat()
        case ValueFormat.AVRO:
            return _avro(options)
        case ValueFormat.PROTOBUF:
            return _protobuf(options)
        case ValueFormat.JSON:
            return _json(options)
        case ValueFormat.JSON_VARIANT:
            if not hasattr(st, "VariantType"):
                raise SettingError("value format json-variant: needs Spark 4, older ones have no variants")
            return VariantFormat(framing=options.framing)


def inferred_format(options: ValueOptions, data_type: st.DataType) -> ColumnFormat:
    """JSON of the type that was found. Raises `SettingError` for a table's type that JSON cannot have."""
    if not isinstance(data_type, st.NullType):
        require_usable(data_type, "the table's column of values, for JSON without a schema")
    return JsonFormat(data_type=data_type, inferred=True, framing=options.framing)


def _avro(options: ValueOptions) -> AvroFormat:
    schemas = read_schemas(options.schema, options.schema_files, options.source)
    if options.source is None:
        return AvroFormat(schemas=schemas, framing=options.framing)
    # Not either way: before its schema is known, a framed value might be read as one without a frame.
    framing = Framing.CONFLUENT if options.framing is Framing.AUTO else options.framing
    return AvroFormat(schemas=schemas, framing=framing, report_unknown=options.source.report_unknown)


def _protobuf(options: ValueOptions) -> ProtobufFormat:
    if options.source is not None:
        return _registered_protobuf(options, options.source)
    if len(options.schema_files) != 1 or options.message is None:
        raise SettingError(
            "value format protobuf: needs one descriptor set as schema file (protoc --include_imports "
            "--descriptor_set_out=FILE) and the full name of a message"
        )
    (path,) = options.schema_files
    content = read_bytes(path)
    check_message(content, options.message, path)
    return ProtobufFormat(descriptor_set=content, message=options.message, framing=options.framing)


def _registered_protobuf(options: ValueOptions, source: SchemaSource) -> ProtobufFormat:
    """The columns are the file's, if there is one, else those of the registry's newest schema."""
    if options.schema_files or source.reader is None:
        found = _protobuf(replace(options, source=None))
        content, message = found.descriptor_set, found.message
    else:
        content = descriptor_set(source.reader, source.what)
        message = options.message or first_message(content, source.what)
        check_message(content, message, source.what)
    return ProtobufFormat(
        descriptor_set=content,
        message=message,
        framing=options.framing,
        paths={number: _path_of(message, number, one) for number, one in source.writers.items()},
        report_unknown=source.report_unknown,
    )


def _path_of(message: str, schema_id: int, document: SchemaDocument) -> tuple[int, ...] | None:
    try:
        what = f"the schema of id {schema_id}"
        paths = message_paths(descriptor_set(document, what), what)
    except SettingError as problem:
        logger.warning("%s: its values are dead letters", problem)
        return None
    return next((path for path, name in paths.items() if name == message.removeprefix(".")), None)


def _json(options: ValueOptions) -> JsonFormat:
    if len(options.schema_files) > 1 or (options.schema_files and options.schema is not None):
        raise SettingError("value format json: has more than one schema; legal is one, as text or as a file")
    if options.schema_files:
        (path,) = options.schema_files
        data_type = read_type(read_text(path), f"schema file {path!r}")
    elif options.schema is not None:
        data_type = read_type(options.schema, "value schema")
    else:
        assert options.source is not None and options.source.reader is not None, "else it is inferred"
        data_type = json_schema_type(options.source.reader, options.source.what)
    return JsonFormat(data_type=data_type, inferred=False, framing=options.framing)


def observed_in(records: DataFrame, options: ValueOptions, known_type: st.DataType | None) -> Observed:
    """The types of the records' JSON values: one job that looks at them all."""
    framing, exact_digits = options.framing, _has_decimals(known_type)

    def observe(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        texts = list(observe_batches(batches, framing, exact_digits=exact_digits))
        yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["observed"])

    rows = records.select("value").mapInArrow(observe, "observed string").collect()
    return joined(row.observed for row in rows)


def _has_decimals(known_type: st.DataType | None) -> bool:
    return known_type is not None and any(isinstance(part, st.DecimalType) for part in parts(known_type))


def _require_matching(options: ValueOptions) -> None:
    """Raise `SettingError` for an option that the format does not use: it would be ignored silently."""
    value_format = options.format
    plain = value_format in (ValueFormat.BYTES, ValueFormat.STRING)
    typeless = plain or value_format is ValueFormat.JSON_VARIANT
    if typeless and (options.schema is not None or options.schema_files):
        raise SettingError(
            f"value format {value_format}: takes no schema; legal with json, avro and protobuf"
        )
    if options.source is not None and (typeless or options.framing is Framing.NONE):
        raise SettingError(
            f"value format {value_format} with framing {options.framing}: takes no schema registry; legal with json, "
            "avro and protobuf in Confluent's framing"
        )
    if plain and options.framing is Framing.CONFLUENT:
        raise SettingError(
            f"value format {value_format}: takes no framing {options.framing}; legal with json, avro and protobuf"
        )
    if options.message is not None and value_format is not ValueFormat.PROTOBUF:
        raise SettingError(f"value format {value_format}: takes no message name; legal with protobuf")
    if options.schema is not None and value_format is ValueFormat.PROTOBUF:
        raise SettingError(
            "value format protobuf: takes no schema as text; legal is a descriptor set as a file"
        )
    if not 1 <= options.max_fields <= MAX_FIELDS_SEEN:
        raise SettingError(f"max fields {options.max_fields}: legal is 1 to {MAX_FIELDS_SEEN}")
