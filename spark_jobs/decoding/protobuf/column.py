"""Decodes a column of Protobuf values with the official runtime, with or without Confluent's framing."""

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql import types as st

from spark_jobs.decoding import framing
from spark_jobs.decoding.columns import ColumnDecoder, DecodedColumn, decode_each
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError
from spark_jobs.decoding.protobuf.descriptors import index_path, read_descriptor
from spark_jobs.decoding.protobuf.types import spark_type
from spark_jobs.decoding.protobuf.unknown import has_unknown, require_only_newer_fields
from spark_jobs.decoding.protobuf.values import message_converter
from spark_jobs.decoding.protobuf.wire import broken
from spark_jobs.decoding.schema_source import ReportUnknown, UnknownIds, unknown_id
from spark_jobs.decoding.types import arrow_type

_SOURCE = "descriptor set"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtobufFormat:
    """Values that are messages named `message` in the serialized `descriptor_set`.

    `paths`: of a registry's schemas, by id: the indexes that such a message has there, None if it is not there.
    Without them all values have the indexes of the descriptor set.
    """

    descriptor_set: bytes
    message: str
    framing: Framing
    paths: Mapping[int, tuple[int, ...] | None] | None = None
    report_unknown: ReportUnknown | None = None

    @property
    def value_type(self) -> st.DataType:
        """The type, every level optional."""
        return spark_type(read_descriptor(self.descriptor_set, self.message, _SOURCE), _SOURCE)

    def open(self) -> ColumnDecoder:
        """A decoder for this process."""
        return ProtobufDecoder(self)


class ProtobufDecoder:
    """Decodes columns of Protobuf values."""

    def __init__(self, protobuf_format: ProtobufFormat) -> None:
        # A descriptor is valid only as long as its pool, which the class keeps.
        self._descriptor = read_descriptor(protobuf_format.descriptor_set, protobuf_format.message, _SOURCE)
        self._class = GetMessageClass(self._descriptor)
        self._convert = message_converter(self._descriptor)
        self._indexes = index_path(self._descriptor)
        self._framing = protobuf_format.framing
        self._paths = protobuf_format.paths
        self._unknown = UnknownIds(protobuf_format.report_unknown)
        self._arrow_type = arrow_type(spark_type(self._descriptor, _SOURCE))

    def decode(self, column: pa.Array) -> DecodedColumn:
        """Decode a column of type binary; never raises for a value."""
        return decode_each(column, self._decode, self._arrow_type)

    def _decode(self, data: bytes) -> object:
        content = self._content(data)
        try:
            message = self._class.FromString(content)
        except DecodeError:
            raise broken(content, self._descriptor) from None
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            raise UndecodableError(f"lacks the required {missing}")
        if has_unknown(message):
            require_only_newer_fields(self._class.FromString(content))
        return self._convert(message)

    def _content(self, data: bytes) -> bytes:
        """The message. No message begins with byte 0, so that the first byte shows the framing."""
        if self._framing is Framing.NONE or (self._framing is Framing.AUTO and data[:1] != b"\0"):
            return data
        wanted = self._wanted_indexes(framing.schema_id(data))
        indexes, position = framing.message_indexes(data, framing.HEADER_BYTES)
        if indexes != wanted:
            has = "is not in its schema" if wanted is None else f"has {list(wanted)}"
            raise UndecodableError(
                f"is the message with indexes {list(indexes)}, and {self._descriptor.full_name} {has}"
            )
        return data[position:]

    def _wanted_indexes(self, schema_id: int) -> tuple[int, ...] | None:
        if self._paths is None:
            return self._indexes
        try:
            return self._paths[schema_id]
        except KeyError:
            self._unknown.add(schema_id)
            raise UndecodableError(unknown_id(schema_id)) from None
