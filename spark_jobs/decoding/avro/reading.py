"""Strict reading of Avro's binary encoding: functions from bytes and a position to a value and the next position.

fastavro's compiled reader is little faster and accepts too much: a negative index of a union or an enum counts from
the end, any byte is a boolean, and a number may have any length. Bytes that are not Avro must not become a row.
Re-encoding its values to compare the bytes refuses legal ones, such as blocks with their size (decision 0053).

Source: https://avro.apache.org/docs/1.12.0/specification/#binary-encoding
"""

import struct
from collections.abc import Callable, Sequence

from spark_jobs.decoding.problems import UndecodableError, shown

Read = Callable[[bytes, int], tuple[object, int]]

_INT_LIMIT, _LONG_LIMIT = 1 << 31, 1 << 63
_LAST_SHIFT = 63
# An array may have this many items that take no bytes (nulls): a few bytes can claim any number of them.
_MAX_EMPTY_ITEMS = 16


def read_null(_data: bytes, position: int) -> tuple[object, int]:
    """Reads null, which has no bytes."""
    return None, position


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Reads a zigzag varint of at most 10 bytes and 64 bits."""
    try:
        byte = data[position]
        if byte < 0x80:
            return (byte >> 1) ^ -(byte & 1), position + 1
        number, shift = byte & 0x7F, 7
        while True:
            position += 1
            byte = data[position]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > _LAST_SHIFT:
                raise UndecodableError("is a number of more than 10 bytes")
    except IndexError:
        raise _ends(data) from None
    if number >= 2 * _LONG_LIMIT:
        raise UndecodableError("is a number of more than 64 bits")
    return (number >> 1) ^ -(number & 1), position + 1


def read_int(data: bytes, position: int) -> tuple[int, int]:
    """Reads a number of 32 bits, encoded as a long."""
    number, position = read_long(data, position)
    if not -_INT_LIMIT <= number < _INT_LIMIT:
        raise UndecodableError(f"is {number}, and an int has 32 bits")
    return number, position


def read_boolean(data: bytes, position: int) -> tuple[object, int]:
    """Reads a byte, 0 or 1."""
    if position >= len(data):
        raise _ends(data)
    if data[position] > 1:
        raise UndecodableError(f"is a boolean with byte {data[position]}; legal are 0 and 1")
    return data[position] == 1, position + 1


def float_reader(layout: struct.Struct) -> Read:
    """Reads a number of this layout; NaN and infinities are legal."""

    def read(data: bytes, position: int) -> tuple[object, int]:
        end = position + layout.size
        if end > len(data):
            raise _ends(data)
        return layout.unpack_from(data, position)[0], end

    return read


read_float, read_double = float_reader(struct.Struct("<f")), float_reader(struct.Struct("<d"))


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Reads a length and that many bytes."""
    length, position = read_long(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise UndecodableError(f"has the length {length}, and {len(data) - position} bytes are left")
    return data[position:end], end


def read_string(data: bytes, position: int) -> tuple[str, int]:
    """Reads a length and that many bytes of UTF-8."""
    found, position = read_bytes(data, position)
    try:
        return found.decode(), position
    except UnicodeDecodeError as error:
        raise UndecodableError(f"is not UTF-8 at byte {error.start} of the string") from None


def fixed_reader(size: int) -> Read:
    """Reads `size` bytes."""

    def read(data: bytes, position: int) -> tuple[object, int]:
        end = position + size
        if end > len(data):
            raise _ends(data)
        return data[position:end], end

    return read


def mapped_reader(read_inner: Read, convert: Callable[[object], object]) -> Read:
    """Reads with `read_inner` and converts the value. `convert` may raise `UndecodableError`."""

    def read(data: bytes, position: int) -> tuple[object, int]:
        value, position = read_inner(data, position)
        return convert(value), position

    return read


def choice_reader(readers: Sequence[Read], noun: str) -> Read:
    """Reads an index and then with the reader at that index: a union's branch or an enum's symbol."""
    count = len(readers)

    def read(data: bytes, position: int) -> tuple[object, int]:
        index, position = read_long(data, position)
        if not 0 <= index < count:
            raise UndecodableError(f"has the {noun} {index}; legal are 0 to {count - 1}")
        return readers[index](data, position)

    return read


def array_reader(read_item: Read) -> Read:
    """Reads blocks of items, at most as many as they have bytes and `_MAX_EMPTY_ITEMS` more."""

    def read(data: bytes, position: int) -> tuple[object, int]:
        start = position
        items: list[object] = []
        while True:
            count, position = _block(data, position)
            if not count:
                return items, position
            try:
                for _ in range(count):
                    item, position = read_item(data, position)
                    items.append(item)
            except UndecodableError as problem:
                raise problem.within(len(items)) from None
            if len(items) > position - start + _MAX_EMPTY_ITEMS:
                raise UndecodableError(f"has {len(items)} items in {position - start} bytes")

    return read


def map_reader(read_value: Read) -> Read:
    """Reads blocks of keys and values. Refuses a key that comes twice: one of its values would be lost."""

    def read(data: bytes, position: int) -> tuple[object, int]:
        found: dict[str, object] = {}
        while True:
            count, position = _block(data, position)
            if not count:
                return found, position
            for _ in range(count):
                key, position = read_string(data, position)
                if key in found:
                    raise UndecodableError("stands twice in its map", key)
                try:
                    found[key], position = read_value(data, position)
                except UndecodableError as problem:
                    raise problem.within(key) from None

    return read


def record_reader(fields: Sequence[tuple[str, Read]], template: dict[str, object]) -> Read:
    """Reads fields in the order in which they are written; `template` has the values of the others."""

    def read(data: bytes, position: int) -> tuple[object, int]:
        found = template.copy()
        name = ""
        try:
            for name, read_field in fields:
                found[name], position = read_field(data, position)
        except UndecodableError as problem:
            raise problem.within(name) from None
        return found, position

    return read


def failing_reader(problem: str) -> Read:
    """Raises `problem`: for a branch of the writer that the reader's schema cannot take."""

    def read(_data: bytes, _position: int) -> tuple[object, int]:
        raise UndecodableError(problem)

    return read


def read_whole(read: Read, data: bytes, position: int) -> object:
    """The value from `position` to the end. Raises `UndecodableError`, also if bytes follow it."""
    value, end = read(data, position)
    if end != len(data):
        raise UndecodableError(f"ends at byte {end}, and {shown(len(data) - end)} bytes follow")
    return value


def _block(data: bytes, position: int) -> tuple[int, int]:
    """The number of items of a block; a negative one is followed by the block's size in bytes."""
    count, position = read_long(data, position)
    if count < 0:
        count = -count
        size, position = read_long(data, position)
        if not 0 <= size <= len(data) - position:
            raise UndecodableError(f"has a block of {size} bytes, and {len(data) - position} are left")
    if count > max(len(data) - position, _MAX_EMPTY_ITEMS):
        raise UndecodableError(f"has a block of {count} items, and {len(data) - position} bytes are left")
    return count, position


def _ends(data: bytes) -> UndecodableError:
    return UndecodableError(f"is cut off: the value has {len(data)} bytes, and more are needed")
