"""How many records a compressed batch can hold: by its size and codec, and counted where the claim is unlikely.

A batch's header says how many records it has, and the log end moves by as many. Uncompressed records of seven
bytes or more bound the number by the size (record_batch.py). Compressed ones are not opened on the way in, but for
batches that claim more records than compress to so few bytes in practice: an attack, or a freak of its data.
"""

from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import Codec, DecompressedTooLargeError, decompress
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.record_batch import (
    CODEC_MASK,
    HEADER_SIZE,
    MIN_BATCH_LENGTH,
    MIN_RECORD_BYTES,
    BatchHeader,
    InvalidBatchError,
)
from kafscale.protocol.varint import read_varint

LIKELY_RECORDS_PER_BYTE = 4
"""Of compressed records. If they differ in their offsets alone, zstd reaches 2.4, and the other codecs less."""

# What one byte of a codec's data becomes at most: deflate's longest match in 2 bits, a snappy copy of 64 bytes in 3,
# a byte of an lz4 match length, a zstd block of 128 KiB in 4 bytes.
_MAX_RATIO = {Codec.GZIP: 1032, Codec.SNAPPY: 22, Codec.LZ4: 255, Codec.ZSTD: 32 * 1024}

# Beside the length, which takes a byte more.
_MIN_RECORD_LENGTH = MIN_RECORD_BYTES - 1


def claims_unlikely_count(header: BatchHeader) -> bool:
    """True if the batch is compressed and claims so many records that `count_records` should look."""
    return (
        header.attributes & CODEC_MASK != 0
        and header.record_count > (header.batch_length - MIN_BATCH_LENGTH) * LIKELY_RECORDS_PER_BYTE
    )


def check_claim(header: BatchHeader, opened_limit_bytes: int) -> None:
    """Refuse a compressed batch whose records cannot lie in its bytes, or not in `opened_limit_bytes` when opened.

    Raises InvalidBatchError: INVALID_RECORD, MESSAGE_TOO_LARGE. Looks at the header alone.
    """
    size_bytes = header.batch_length - MIN_BATCH_LENGTH
    least_bytes = header.record_count * MIN_RECORD_BYTES
    if least_bytes > size_bytes * _MAX_RATIO[header.codec]:
        raise _invalid(
            f"{header.record_count} records cannot lie in {size_bytes} bytes of {header.codec.type_name}"
        )
    if least_bytes > opened_limit_bytes:
        raise _too_large(header, opened_limit_bytes)


def count_records(batch: memoryview, header: BatchHeader, opened_limit_bytes: int) -> None:
    """Decompress the batch and refuse it if it does not hold as many records as it claims.

    Takes up to `opened_limit_bytes` of memory and a second for each 25 MB: not for the event loop. Raises
    InvalidBatchError: INVALID_RECORD, MESSAGE_TOO_LARGE.
    """
    try:
        data = decompress(header.codec, batch[HEADER_SIZE:], opened_limit_bytes)
    except DecompressedTooLargeError as error:
        raise _too_large(header, opened_limit_bytes) from error
    except CorruptDataError as error:
        raise _invalid(str(error)) from error
    if not _holds(data, header.record_count):
        raise _invalid(f"the batch does not hold the {header.record_count} records that it claims")


def _holds(data: bytes | memoryview, count: int) -> bool:
    """True if `data` is `count` records by their lengths, and nothing else."""
    position, end = 0, len(data)
    for _ in range(count):
        if position >= end:
            return False
        byte = data[position]
        if byte < 0x80:
            length, position = byte >> 1 ^ -(byte & 1), position + 1
        else:
            try:
                length, position = read_varint(data, position)
            except (IndexError, ValueError):
                return False
        if length < _MIN_RECORD_LENGTH:
            return False
        position += length
    return position == end


def _invalid(problem: str) -> InvalidBatchError:
    return InvalidBatchError(ErrorCode.INVALID_RECORD, problem)


def _too_large(header: BatchHeader, opened_limit_bytes: int) -> InvalidBatchError:
    return InvalidBatchError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"{header.record_count} records in {header.size_bytes} compressed bytes are to be counted, and take more "
        f"than {opened_limit_bytes} bytes uncompressed",
    )
