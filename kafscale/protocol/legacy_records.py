"""Message sets of magic 0 and 1, which old producers send, made into one record batch of magic 2.

    message   offset int64, size int32 (of what follows), CRC-32 uint32 (from the magic to the end),
              magic int8, attributes int8, timestamp int64 (only in magic 1),
              key length int32 (-1 = null), key, value length int32 (-1 = null), value

A message with a codec in its attributes is a wrapper: its value is a compressed message set.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import Codec, DecompressedTooLargeError, decompress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_FLAG,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    InvalidBatchError,
)
from kafscale.protocol.record_builder import RecordBatchBuilder

_OVERHEAD = struct.Struct(">qi")
_CRC_MAGIC_ATTRIBUTES = struct.Struct(">Ibb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_MIN_SIZE = {0: 14, 1: 22}
"""The smallest message by magic, without offset and size: a null key and a null value."""


class _Message(NamedTuple):
    magic: int
    codec: Codec
    timestamp_ms: int
    key: memoryview | None
    value: memoryview | None


def convert_message_set(view: memoryview, max_message_bytes: int, opened_limit_bytes: int) -> bytes:
    """The batch with the messages of `view` in their order, as Kafka converts them (LogValidator).

    `view` is messages that are not compressed, or one compressed set, whose codec the batch keeps. The base
    offset is 0, to be stamped; the old offsets, absolute or relative, mean nothing in a produce request.
    Messages of magic 0 have no timestamp (-1). Raises InvalidBatchError: CORRUPT_MESSAGE for a message that
    is cut or breaks its CRC, INVALID_TIMESTAMP for one that says LogAppendTime, MESSAGE_TOO_LARGE as soon as
    the batch exceeds `max_message_bytes`, or the compressed set holds more than `opened_limit_bytes`, else
    INVALID_RECORD. The work is bounded by these limits, whatever the length of `view`.
    """
    builder = RecordBatchBuilder()
    first_magic: int | None = None
    for message, end in _walk(view):
        first_magic = message.magic if first_magic is None else first_magic
        if message.magic != first_magic:
            raise _invalid(f"a message of magic {message.magic} follows one of magic {first_magic}")
        if message.codec is not Codec.NONE:
            if builder.record_count or end < len(view):
                raise _invalid("a compressed message set is not the only one for its partition")
            return _convert_inner(_decompress(message, opened_limit_bytes), message)
        builder.append(message.timestamp_ms, message.key, message.value)
        if builder.size_bytes > max_message_bytes:
            raise InvalidBatchError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"the messages make a batch larger than max.message.bytes {max_message_bytes}",
            )
    if not builder.record_count:
        raise _invalid("the message set is empty")
    return builder.build()


def _decompress(wrapper: _Message, limit_bytes: int) -> memoryview:
    if wrapper.value is None:
        raise _invalid("a compressed message set is null")
    if wrapper.codec is Codec.ZSTD:
        raise _invalid(f"zstd cannot occur in magic {wrapper.magic}")
    try:
        return memoryview(decompress(wrapper.codec, wrapper.value, limit_bytes, magic=wrapper.magic))
    except DecompressedTooLargeError as error:
        raise InvalidBatchError(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from error
    except CorruptDataError as error:
        raise _invalid(str(error)) from error


def _convert_inner(inner: memoryview, wrapper: _Message) -> bytes:
    builder = RecordBatchBuilder()
    for message, _ in _walk(inner):
        if message.magic != wrapper.magic:
            raise _invalid(f"a message of magic {message.magic} lies in a set of magic {wrapper.magic}")
        if message.codec is not Codec.NONE:
            raise _invalid("a message inside a compressed set is compressed itself")
        builder.append(message.timestamp_ms, message.key, message.value)
    if not builder.record_count:
        raise _invalid("a compressed message set is empty")
    return builder.build(codec=wrapper.codec)


def _walk(view: memoryview) -> Iterator[tuple[_Message, int]]:
    """Each message with the position after it."""
    position = 0
    while position < len(view):
        # Up to the magic a message looks like a batch, so that other magics can be distinguished from noise.
        if len(view) - position <= MAGIC_POSITION:
            raise _corrupt(f"{len(view) - position} bytes at position {position} are shorter than a message")
        _, size = _OVERHEAD.unpack_from(view, position)
        magic = view[position + MAGIC_POSITION]
        start = position + _OVERHEAD.size
        if magic not in _MIN_SIZE:
            raise _invalid(f"magic {magic} at position {position} is neither 0 nor 1")
        if not _MIN_SIZE[magic] <= size <= len(view) - start:
            raise _corrupt(
                f"message size {size} at position {position} where {len(view) - start} bytes are left"
            )
        position = start + size
        yield _read(view[start:position]), position


def _read(message: memoryview) -> _Message:
    """The message without offset and size, its CRC checked."""
    crc, magic, attributes = _CRC_MAGIC_ATTRIBUTES.unpack_from(message, 0)
    computed = zlib.crc32(message[4:])
    if computed != crc:
        raise _corrupt(f"CRC-32 is {computed:#010x}, the message says {crc:#010x}")
    codec = attributes & CODEC_MASK
    if codec > max(Codec):
        raise _invalid(f"compression codec {codec} is not one of 0 to {max(Codec)}")
    position = _CRC_MAGIC_ATTRIBUTES.size
    timestamp_ms = NO_TIMESTAMP
    if magic == 1:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(message, position)
        position += _TIMESTAMP.size
        if attributes & LOG_APPEND_TIME_FLAG:
            raise InvalidBatchError(
                ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime"
            )
        if timestamp_ms < NO_TIMESTAMP:
            raise InvalidBatchError(ErrorCode.INVALID_TIMESTAMP, f"timestamp {timestamp_ms} is negative")
    key, position = _read_bytes(message, position)
    value, position = _read_bytes(message, position)
    if position != len(message):
        raise _corrupt(f"{len(message) - position} bytes follow a message's value")
    return _Message(magic, Codec(codec), timestamp_ms, key, value)


def _read_bytes(message: memoryview, position: int) -> tuple[memoryview | None, int]:
    if len(message) - position < _LENGTH.size:
        raise _corrupt("a message ends in a length")
    (length,) = _LENGTH.unpack_from(message, position)
    position += _LENGTH.size
    if length == -1:
        return None, position
    if not 0 <= length <= len(message) - position:
        raise _corrupt(f"a length of {length} where {len(message) - position} bytes are left")
    return message[position : position + length], position + length


def _corrupt(problem: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, problem)


def _invalid(problem: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.INVALID_RECORD, problem)
