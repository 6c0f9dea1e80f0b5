"""Decodes a column of Avro values, with or without Confluent's framing."""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as st

from spark_jobs.decoding import framing
from spark_jobs.decoding.avro.reading import Read, failing_reader, read_whole
from spark_jobs.decoding.avro.resolution import reader_of
from spark_jobs.decoding.avro.schemas import AvroSchemas
from spark_jobs.decoding.avro.types import spark_type
from spark_jobs.decoding.columns import ColumnDecoder, DecodedColumn, decode_each
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError
from spark_jobs.decoding.schema_source import ReportUnknown, UnknownIds, unknown_id
from spark_jobs.decoding.types import arrow_type


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat:
    """Avro values of `schemas`."""

    schemas: AvroSchemas
    framing: Framing
    report_unknown: ReportUnknown | None = None

    @property
    def value_type(self) -> st.DataType:
        """The reader's schema as the type that Spark's own reader of Avro gives it."""
        return spark_type(self.schemas.reader, "value schema")

    def open(self) -> ColumnDecoder:
        """A decoder for this process."""
        return AvroDecoder(self)


class AvroDecoder:
    """Decodes columns of Avro values."""

    def __init__(self, avro_format: AvroFormat) -> None:
        schemas = avro_format.schemas
        self._framing = avro_format.framing
        self._arrow_type = arrow_type(avro_format.value_type)
        self._read = reader_of(schemas.reader, schemas.reader, "value schema")
        self._by_id: dict[int, Read] = {
            number: reader_of(writer, schemas.reader, f"schema of id {number}")
            for number, writer in schemas.writers.items()
        }
        self._by_id.update((number, failing_reader(why)) for number, why in schemas.refused.items())
        self._registered = schemas.registered
        self._unknown = UnknownIds(avro_format.report_unknown)

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode a column of type binary; never raises for a value."""
        decode = {Framing.NONE: self._plain, Framing.CONFLUENT: self._framed, Framing.AUTO: self._either}
        return decode_each(column, decode[self._framing], self._arrow_type)

    def _plain(self, data: bytes) -> object:
        if not data:
            raise UndecodableError("is empty, and no Avro")
        try:
            return read_whole(self._read, data, 0)
        except UndecodableError as problem:
            if framing.is_framed(data):
                problem.problem += " (its first byte is 0: is it framed by a serializer of Confluent's?)"
            raise

    def _framed(self, data: bytes) -> object:
        number = framing.schema_id(data)
        return read_whole(self._reader_for(number), data, framing.HEADER_BYTES)

    def _reader_for(self, number: int) -> Read:
        if not self._by_id and not self._registered:
            return self._read
        try:
            return self._by_id[number]
        except KeyError:
            if self._registered:
                self._unknown.add(number)
                raise UndecodableError(unknown_id(number)) from None
            known = ", ".join(map(str, sorted(self._by_id)))
            raise UndecodableError(f"has the schema id {number}, and schemas are given for {known}") from None

    def _either(self, data: bytes) -> object:
        """Framed, or plain if that fails. A value that can be read both ways must not be guessed."""
        if not framing.is_framed(data):
            return self._plain(data)
        values: list[object] = []
        problems: list[UndecodableError] = []
        for decode in (self._framed, self._plain):
            try:
                values.append(decode(data))
            except UndecodableError as problem:
                problems.append(problem)
        if len(values) > 1:
            raise UndecodableError("can be read with and without Confluent's framing: say which by option")
        if not values:
            raise problems[0]  # what begins with a magic byte is more likely to be framed
        return values[0]
