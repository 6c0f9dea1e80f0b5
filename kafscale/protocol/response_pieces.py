"""Encodes large responses a piece at a time, by kafka-python's schemas, so that others can run in between."""

import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Final

from kafka.protocol.schemas.fields.codecs import EncodeBuffer

from kafscale.protocol.api_messages import Response
from kafscale.protocol.header import has_flexible_response_header, response_header
from kafscale.protocol.wire import array_count, uvarint

ELEMENTS_PER_PIECE: Final = 256
"""About a millisecond's worth of elements to encode."""

_LENGTH = struct.Struct(">i")

Field = Any
"""A kafka-python schema field."""


def is_large(message: Response) -> bool:
    """True if a response has more array elements than one piece; at two levels, and those below count as one."""
    weight = 0
    message_class: Any = type(message)
    for name, nested in _arrays(message_class):
        values = getattr(message, name) or ()
        weight += len(values)
        if nested and weight <= ELEMENTS_PER_PIECE:
            weight += sum(_nested_weight(value, nested) for value in values)
    return weight > ELEMENTS_PER_PIECE


def encode_pieces(message: Response, api_version: int) -> Iterator[bytes]:
    """Encode a response's body; each piece takes about a millisecond.

    Raises `struct.error` when a value does not fit its field.
    """
    encoder = _Encoder(api_version, message.flexible_version_q(api_version))
    message_class: Any = type(message)
    yield from encoder.struct(message_class._struct, message)
    yield encoder.taken()


def frame_start(message: Response, api_version: int, correlation_id: int, body_bytes: int) -> bytes:
    """Encode what comes before a response's body: 4-byte length and header."""
    header = response_header(correlation_id, has_flexible_response_header(message.API_KEY, api_version))
    return _LENGTH.pack(len(header) + body_bytes) + header


@cache
def _arrays(message_class: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The message's arrays, each with the arrays that its elements have."""
    return tuple(
        (field.name, _array_names(field.array_of) if field.array_of.is_struct() else ())
        for field in message_class._struct._fields
        if field.is_array()
    )


def _array_names(schema: Field) -> tuple[str, ...]:
    return tuple(field.name for field in schema._fields if field.is_array())


def _nested_weight(value: Any, names: Sequence[str]) -> int:
    return sum(len(getattr(value, name) or ()) for name in names)


class _Encoder:
    """Writes into one buffer, which each piece takes empty."""

    def __init__(self, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._out = EncodeBuffer()

    def taken(self) -> bytes:
        """The bytes written since the last piece."""
        data = bytes(memoryview(self._out.buf)[: self._out.pos])
        self._out.reset()
        return data

    def struct(self, schema: Field, item: Any) -> Iterator[bytes]:
        """Write a struct, its arrays of structs in pieces."""
        layout = {"compact": self._flexible, "tagged": self._flexible}
        for field in schema.untagged_fields(self._version):
            value = getattr(item, field.name)
            if value and field.is_array() and field.array_of.is_struct():
                yield from self._elements(field.array_of, value)
            else:
                field.encode_into(value, self._out, version=self._version, **layout)
        if self._flexible:
            schema.tagged_fields(self._version).encode_into(item, self._out, version=self._version)

    def _elements(self, schema: Field, values: Sequence[Any]) -> Iterator[bytes]:
        self._write(uvarint(len(values) + 1) if self._flexible else array_count(len(values)))
        encode = schema.compiled_encode_into(self._version, compact=self._flexible, tagged=self._flexible)
        names = _array_names(schema)
        written = 0
        for value in values:
            weight = 1 + _nested_weight(value, names)
            if weight > ELEMENTS_PER_PIECE:
                yield from self.struct(schema, value)
                weight = 0
            else:
                encode(value, self._out)
            written += weight
            if written >= ELEMENTS_PER_PIECE:
                written = 0
                yield self.taken()

    def _write(self, data: bytes) -> None:
        self._out.ensure(len(data))
        end = self._out.pos + len(data)
        self._out.buf[self._out.pos : end] = data
        self._out.pos = end
