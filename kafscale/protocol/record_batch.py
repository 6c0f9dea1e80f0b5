"""The header of a record batch (magic 2): read, checked, stamped and walked without a look at the records."""

import struct
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import CODECS, Codec, compress_into_room
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.types import Buffer

HEADER_SIZE = 61
"""Bytes from the base offset to the first record."""

LOG_OVERHEAD = 12
"""Bytes that `batch_length` does not count: the base offset and the length itself."""

MIN_BATCH_LENGTH = HEADER_SIZE - LOG_OVERHEAD
MIN_RECORD_BYTES = 7
"""The smallest record: length, attributes, two deltas, two null lengths and a header count of a byte each."""

MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_PARTITION_LEADER_EPOCH = -1
MAX_SEQUENCE = 2**31 - 1

CODEC_MASK = 0x07
LOG_APPEND_TIME_FLAG = 0x08
TRANSACTIONAL_FLAG = 0x10
CONTROL_FLAG = 0x20
DELETE_HORIZON_FLAG = 0x40

LENGTH_POSITION = 8
LEADER_EPOCH_POSITION = 12
MAGIC_POSITION = 16
CRC_POSITION = 17
ATTRIBUTES_POSITION = 21
MAX_TIMESTAMP_POSITION = 35

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH = struct.Struct(">i")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_OFFSET = struct.Struct(">q")
_TIMESTAMP = struct.Struct(">q")

_MAX_CODEC = max(Codec)
# Clients may set neither: Kafka sets both itself.
_FLAGS_OF_THE_BROKER = LOG_APPEND_TIME_FLAG | CONTROL_FLAG


class InvalidBatchError(KafkaError):
    """A client's record batch is refused; `code` is what Kafka answers for the same fault."""


class BatchHeader(NamedTuple):
    """The header's fields, in the order of the bytes and by Kafka's names."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> Codec:
        """The records' compression. Raises CorruptDataError for codec bits that Kafka does not know."""
        bits = self.attributes & CODEC_MASK
        if bits > _MAX_CODEC:
            raise CorruptDataError(
                "record batch", f"compression codec {bits} is not one of 0 to {_MAX_CODEC}"
            )
        return CODECS[bits]

    @property
    def is_log_append_time(self) -> bool:
        """True if all records have the time `max_timestamp`, set by a broker."""
        return self.attributes & LOG_APPEND_TIME_FLAG != 0

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def has_delete_horizon(self) -> bool:
        """True if `base_timestamp` is the time after which compaction may drop the batch (KIP-534)."""
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def size_bytes(self) -> int:
        """The whole batch: header and records."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number, or NO_SEQUENCE for a batch without one."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return sequence_after(self.base_sequence, self.last_offset_delta)


def sequence_after(sequence: int, increment: int) -> int:
    """The sequence number `increment` records later; after 2^31-1 comes 0 (Kafka's incrementSequence)."""
    return (sequence + increment) & MAX_SEQUENCE


def sequence_before(sequence: int, decrement: int) -> int:
    """The sequence number `decrement` records earlier; before 0 comes 2^31-1 (Kafka's decrementSequence)."""
    return (sequence - decrement) & MAX_SEQUENCE


def read_header(buffer: Buffer, position: int) -> BatchHeader:
    """The header at `position`, unchecked. Raises CorruptDataError when fewer than 61 bytes are there."""
    try:
        return BatchHeader._make(_HEADER.unpack_from(buffer, position))
    except struct.error:
        remaining = len(buffer) - position
        raise CorruptDataError(
            "record batch",
            f"{remaining} bytes at position {position} are shorter than the header's {HEADER_SIZE}",
        ) from None


def magic_at(buffer: Buffer, position: int, end: int) -> int | None:
    """The magic byte of what lies at `position` in any of Kafka's formats; None when it ends before that."""
    if end - position <= MAGIC_POSITION:
        return None
    magic = buffer[position + MAGIC_POSITION]
    return magic if magic < 128 else magic - 256


def validate_batch(view: memoryview, position: int, end: int, max_message_bytes: int) -> BatchHeader:
    """The header of a client's batch that fills `view` from `position` to `end`, checked.

    The checks are those of Kafka's ProduceRequest, UnifiedLog and LogValidator that need no look at the
    records, in their order. Three differ: what follows the batch is always refused, even what Kafka cuts off
    because it is no whole batch, the timestamp type LogAppendTime, too, and the base offset may be anything,
    since it is overwritten. Raises InvalidBatchError with Kafka's code. Nothing is copied.
    """
    if end - position < HEADER_SIZE:
        raise _refusal_of_cut_batch(view, position, end)
    header = BatchHeader._make(_HEADER.unpack_from(view, position))
    _, length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, _, base_sequence, count = (
        header
    )
    batch_end = position + length + LOG_OVERHEAD
    if (
        magic != MAGIC
        or length < MIN_BATCH_LENGTH
        or length + LOG_OVERHEAD > max_message_bytes
        or batch_end != end
        or crc32c(view[position + ATTRIBUTES_POSITION : batch_end]) != crc
        or attributes & _FLAGS_OF_THE_BROKER
        or attributes & CODEC_MASK > _MAX_CODEC
        or count <= 0
        or count != last_offset_delta + 1
        or (count * MIN_RECORD_BYTES > length - MIN_BATCH_LENGTH and not attributes & CODEC_MASK)
        or length == MIN_BATCH_LENGTH
        or (producer_id >= 0 and base_sequence < 0)
    ):
        raise _refusal(view, position, end, header, max_message_bytes)
    return header


def _refusal_of_cut_batch(view: memoryview, position: int, end: int) -> InvalidBatchError:
    magic = magic_at(view, position, end)
    if magic in (0, 1):
        return _refusal_of_magic(magic)
    return InvalidBatchError(
        ErrorCode.CORRUPT_MESSAGE, f"{end - position} bytes are shorter than a batch header's {HEADER_SIZE}"
    )


def _refusal_of_magic(magic: int) -> InvalidBatchError:
    if magic in (0, 1):
        # Kafka takes these in Produce v0-2 only, where they are converted (legacy_records.py).
        return InvalidBatchError(
            ErrorCode.INVALID_RECORD, f"magic {magic} where only magic {MAGIC} is allowed"
        )
    return InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, f"magic {magic} is not one of 0, 1 and {MAGIC}")


def _refusal(
    view: memoryview, position: int, end: int, header: BatchHeader, max_message_bytes: int
) -> InvalidBatchError:
    """Why validate_batch refuses: the first fault in the order in which Kafka looks for them."""
    size, count = header.size_bytes, header.record_count
    if header.magic != MAGIC:
        return _refusal_of_magic(header.magic)
    if header.batch_length < MIN_BATCH_LENGTH:
        return InvalidBatchError(
            ErrorCode.CORRUPT_MESSAGE, f"batch length {header.batch_length} is less than {MIN_BATCH_LENGTH}"
        )
    if position + size < end:
        return InvalidBatchError(
            ErrorCode.INVALID_RECORD,
            f"{end - position - size} bytes follow the batch; a request carries exactly one for a partition",
        )
    if size > max_message_bytes:
        return InvalidBatchError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"batch of {size} bytes is larger than max.message.bytes {max_message_bytes}",
        )
    if position + size > end:
        return InvalidBatchError(
            ErrorCode.CORRUPT_MESSAGE, f"batch of {size} bytes is cut after {end - position} bytes"
        )
    computed = crc32c(view[position + ATTRIBUTES_POSITION : position + size])
    if computed != header.crc:
        return InvalidBatchError(ErrorCode.CORRUPT_MESSAGE, crc_problem(computed, header.crc))
    if header.attributes & CODEC_MASK > _MAX_CODEC:
        problem = f"compression codec {header.attributes & CODEC_MASK} is not one of 0 to {_MAX_CODEC}"
    elif count <= 0:
        problem = f"record count {count} is not positive"
    elif count != header.last_offset_delta + 1:
        problem = f"record count {count} does not fit the last offset delta {header.last_offset_delta}"
    elif header.is_control:
        problem = "clients are not allowed to write control batches"
    elif header.producer_id >= 0 and header.base_sequence < 0:
        problem = f"base sequence {header.base_sequence} of producer id {header.producer_id} is negative"
    elif header.is_log_append_time:
        return InvalidBatchError(
            ErrorCode.INVALID_TIMESTAMP, "a producer must not set the timestamp type LogAppendTime"
        )
    else:
        problem = f"{count} records cannot lie in {header.batch_length - MIN_BATCH_LENGTH} bytes"
    return InvalidBatchError(ErrorCode.INVALID_RECORD, problem)


def stamp(buffer: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Write what the leader decides into the batch at `position`; neither field is covered by the CRC."""
    _OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Give all records of the batch at `position` the time `timestamp_ms`, as `message.timestamp.type` says.

    Sets the timestamp type and the max timestamp and rewrites the CRC; the base timestamp and the records'
    deltas stay, as in Kafka (DefaultRecordBatch.setMaxTimestamp).
    """
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes | LOG_APPEND_TIME_FLAG)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    write_crc(buffer, position)


def write_crc(buffer: bytearray | memoryview, position: int) -> None:
    """Compute the CRC-32C of the batch at `position`, whose length field is right, and write it there."""
    (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_POSITION)
    covered = memoryview(buffer)[position + ATTRIBUTES_POSITION : position + length + LOG_OVERHEAD]
    _CRC.pack_into(buffer, position + CRC_POSITION, crc32c(covered))


def write_header(buffer: bytearray | memoryview, position: int, header: BatchHeader) -> None:
    """Write all fields of `header` at `position`, its CRC included as it stands."""
    _HEADER.pack_into(buffer, position, *header)


def crc_problem(computed: int, stored: int) -> str:
    """The text for a CRC-32C that is not what the header says."""
    return f"CRC-32C is {computed:#010x}, the header says {stored:#010x}"


def walk(buffer: Buffer, start: int, end: int, name: str) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch between `start` and `end` of `buffer`: see `walk_headers`."""
    return walk_headers(partial(read_header, buffer), start, end, name)


def walk_headers(
    header_at: Callable[[int], BatchHeader], start: int, end: int, name: str
) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch between `start` and `end` as (position, header), CRCs and the order of offsets unchecked.

    `header_at` reads the header at a position. Raises CorruptDataError, saying `name`, at a batch that is cut or
    whose header cannot be true. A record count below the offset range is legal: compaction leaves such batches.
    """
    position = start
    while position < end:
        room_bytes = end - position
        if room_bytes < HEADER_SIZE:
            raise CorruptDataError(
                name,
                f"batch at position {position}: {room_bytes} bytes are shorter than a header's {HEADER_SIZE}",
            )
        header = header_at(position)
        problem = absurdity(header, room_bytes)
        if problem:
            raise CorruptDataError(name, f"batch at position {position}: {problem}")
        yield position, header
        position += header.batch_length + LOG_OVERHEAD


def absurdity(header: BatchHeader, room_bytes: int) -> str:
    """The problem of a header that no stored batch can have, or nothing. `room_bytes`: up to the body's end."""
    if header.magic != MAGIC:
        return f"magic {header.magic} is not {MAGIC}"
    if header.batch_length < MIN_BATCH_LENGTH:
        return f"batch length {header.batch_length} is less than {MIN_BATCH_LENGTH}"
    if header.size_bytes > room_bytes:
        return f"its {header.size_bytes} bytes are cut after {room_bytes}"
    if header.base_offset < 0:
        return f"base offset {header.base_offset} is negative"
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta} is negative"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        delta = header.last_offset_delta
        return f"record count {header.record_count} does not fit the last offset delta {delta}"
    return ""


# Of the records: with less saved every reader's decompression costs more than the bytes.
_LEAST_SAVED_PART = 16


def compress_into(
    batch: memoryview, header: BatchHeader, codec: Codec, output: memoryview, level: int | None = None
) -> int:
    """Write `batch` with its records compressed into `output` (at least as long as the batch).

    `level`: the codec's, None for Kafka's default. Returns the length of what was written; or 0, with `output`
    undefined, when the batch is compressed already, is a control batch (Kafka leaves those as they are) or its
    records would not shrink by a sixteenth, which would cost every reader more than it saves. Length, attributes
    and CRC are rewritten, all other fields kept.
    """
    if codec is Codec.NONE or header.attributes & (CODEC_MASK | CONTROL_FLAG):
        return 0
    size = header.batch_length + LOG_OVERHEAD
    # So much less room than the records have: what fits is smaller.
    least_saving = max(1, (size - HEADER_SIZE) // _LEAST_SAVED_PART)
    written = compress_into_room(
        codec, batch[HEADER_SIZE:size], output[HEADER_SIZE : size - least_saving], level
    )
    if not written:
        return 0
    output[:HEADER_SIZE] = batch[:HEADER_SIZE]
    _LENGTH.pack_into(output, LENGTH_POSITION, MIN_BATCH_LENGTH + written)
    _ATTRIBUTES.pack_into(output, ATTRIBUTES_POSITION, header.attributes | codec)
    _CRC.pack_into(output, CRC_POSITION, crc32c(output[ATTRIBUTES_POSITION : HEADER_SIZE + written]))
    return HEADER_SIZE + written
