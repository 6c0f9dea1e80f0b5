"""Decoding of a batch of records: the driver opens the decoder once for a batch, Spark's tasks use it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from spark_jobs.decoding.columns import ColumnFormat
from spark_jobs.decoding.dead_letters import ERROR, IS_KEPT, KEY_BYTES, VALUE_BYTES
from spark_jobs.decoding.formats import column_format
from spark_jobs.decoding.options import KeyFormat, ValueFormat, ValueOptions
from spark_jobs.decoding.text import NOT_UTF8, TextFormat


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueDecoder:
    """Decodes records whose columns are those of the source.

    `value_type`: of the column `value` of what `decode` gives; NullType while nothing says what inferred JSON
    holds. `key_type` likewise.
    """

    value_type: st.DataType
    key_type: st.DataType
    _column_format: ColumnFormat | None
    is_variant: bool = False

    def decode(self, records: DataFrame) -> DataFrame:
        """The records' columns with `value` (and `key`) decoded, and behind them `value_bytes` and `error`.

        `value_bytes` is the value as it was, `key_bytes` (if keys are decoded) the key. `error` is null where
        all is decoded; otherwise it says why, and the value is null. A null value decodes to null.
        """
        raw = records.withColumn(VALUE_BYTES, sf.col("value"))
        decoded = self._decode_values(raw)
        if self.is_variant:
            decoded = with_variants(decoded)
        return self._decode_keys(decoded) if isinstance(self.key_type, st.StringType) else decoded

    def _decode_values(self, raw: DataFrame) -> DataFrame:
        if self._column_format is not None:
            return _decode_by(raw, self._column_format)
        if isinstance(self.value_type, st.StringType):
            text = utf8_or_null(sf.col("value"))
            return raw.withColumns({"value": text, ERROR: _reason("value", text)})
        return raw.withColumn(ERROR, sf.lit(None).cast("string"))

    def _decode_keys(self, decoded: DataFrame) -> DataFrame:
        text = utf8_or_null(sf.col("key"))
        # One reason is enough for a dead letter: the value's, which is more specific.
        error = sf.coalesce(sf.col(ERROR), _reason("key", text))
        return decoded.withColumns({KEY_BYTES: sf.col("key"), "key": text, ERROR: error})


def open_decoder(
    options: ValueOptions, spark: SparkSession, records: DataFrame, known_type: st.DataType | None
) -> ValueDecoder:
    """A decoder for the batch `records`. Call it for every batch.

    Schemas are read here, and checked. `known_type` is the type of the table's column of values (None without
    a table) and matters for inferred JSON only: then one job looks at `records`, and the decoder's `value_type`
    is `known_type` with what is new. Raises `SettingError`.
    """
    key_type: st.DataType = st.StringType() if options.key_format is KeyFormat.STRING else st.BinaryType()
    found = column_format(options, spark, records, known_type)
    if options.format is ValueFormat.STRING:
        found = None  # Spark does that itself
    if found is not None:
        value_type = found.value_type
    else:
        value_type = st.StringType() if options.format is ValueFormat.STRING else st.BinaryType()
    is_variant = options.format is ValueFormat.JSON_VARIANT
    if is_variant:
        value_type = st.VariantType()
    return ValueDecoder(value_type=value_type, key_type=key_type, _column_format=found, is_variant=is_variant)


def with_variants(decoded: DataFrame) -> DataFrame:
    """Decoded records with the variants of their values, which are JSON texts.

    What Spark cannot store as one after all, such as a text of 100 MB, is a dead letter.
    """
    text, error = "json_text", sf.col(ERROR)
    variants = decoded.withColumnRenamed("value", text).withColumn("value", sf.try_parse_json(text))
    failed = sf.col(text).isNotNull() & sf.col("value").isNull()
    columns = {
        VALUE_BYTES: sf.coalesce(VALUE_BYTES, sf.when(failed, sf.col(text).cast("binary"))),
        ERROR: sf.coalesce(error, sf.when(failed, sf.lit("value: is more than a variant can hold"))),
    }
    if IS_KEPT in decoded.columns:
        columns[IS_KEPT] = sf.coalesce(IS_KEPT, sf.when(failed, sf.lit(False)))
    return variants.withColumns(columns).select(*decoded.columns)


def key_format(options: ValueOptions) -> TextFormat | None:
    """The format of keys, None for bytes."""
    return TextFormat(name="key") if options.key_format is KeyFormat.STRING else None


def utf8_or_null(column: Column) -> Column:
    """The column's bytes as text; null for null and for what is not UTF-8."""
    text = column.cast("string")
    if hasattr(sf, "try_validate_utf8"):
        return sf.try_validate_utf8(text)
    # Spark 3.5: what is not UTF-8 does not come back as the same bytes.
    return sf.when(sf.encode(sf.decode(column, "UTF-8"), "UTF-8") == column, text)


def _reason(name: str, text: Column) -> Column:
    return sf.when(sf.col(name).isNotNull() & text.isNull(), sf.lit(f"{name}: {NOT_UTF8}"))


def _decode_by(raw: DataFrame, column_format: ColumnFormat) -> DataFrame:
    fields = [
        st.StructField(
            field.name, column_format.value_type if field.name == "value" else field.dataType, True
        )
        for field in raw.schema.fields
    ]
    schema = st.StructType([*fields, st.StructField(ERROR, st.StringType(), True)])

    def decode_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = column_format.open()
        for batch in batches:
            decoded = decoder.decode(batch.column("value").cast(pa.binary()))
            columns = [
                decoded.values if name == "value" else column
                for name, column in zip(batch.schema.names, batch.columns, strict=True)
            ]
            errors = pa.array(decoded.errors, pa.string())
            yield pa.RecordBatch.from_arrays([*columns, errors], names=[*batch.schema.names, ERROR])

    return raw.mapInArrow(decode_batches, schema)
