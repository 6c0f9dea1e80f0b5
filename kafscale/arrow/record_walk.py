"""The walk over record batches and their records, compiled: from stored bytes to the columns' memory.

Theory of operation. Everything is addresses: `list_batches` writes a table of the batches with wanted records, the
caller decompresses the compressed ones and enters the addresses of the records into the table, and `append_records`
walks them and copies the columns' values. It stops when the columns are full, keeps its position in its state, and
continues with other columns. Every read is checked against the end of its bytes first: nothing else checks an index
here. The accepted records are those of `kafscale.protocol.records`, which also names the problem where this module
only finds that there is one.
"""

from kafscale.arrow.compiled import compiled, inlined
from kafscale.arrow.raw_memory import (
    big_endian_int32_at,
    big_endian_int64_at,
    byte_at,
    copy_bytes,
    int64_at,
    put_byte,
    put_int32,
    put_int64,
)

# The columns of the table of batches, int64 each: start of the batch (a position), start and end of its records
# (addresses), and fields of its header.
POSITION, RECORDS_START, RECORDS_END, BASE_OFFSET, LAST_DELTA, BASE_TIME, MAX_TIME, COUNT, ATTRIBUTES = range(
    9
)
TABLE_COLUMNS = 9

# The state of `append_records`, int64 each. The position: the row of the table, the address (0: before the batch's
# first record), and the number of its records before it.
AT_BATCH, AT_ADDRESS, AT_RECORD = range(3)
# The used room of the columns.
ROWS, KEY_BYTES, VALUE_BYTES, HEADERS, NAME_BYTES, HEADER_BYTES = range(3, 9)
# The needs of the record that did not fit; the number of rows whose time microseconds cannot represent; unused.
WANTED_BYTES, WANTED_HEADERS, ROWS_WITHOUT_TIME, _ = range(9, 13)
# The available room: rows, bytes of keys, values and headers together, headers.
MAX_ROWS, MAX_BYTES, MAX_HEADERS = range(13, 16)
# The addresses of the columns.
OFFSETS, TIMES, KINDS = range(16, 19)
KEY_ENDS, HAS_KEY, KEYS, VALUE_ENDS, HAS_VALUE, VALUES = range(19, 25)
HEADER_ENDS, NAME_ENDS, HAS_NAME, NAMES, HEADER_VALUE_ENDS, HAS_HEADER_VALUE, HEADER_VALUES = range(25, 32)
STATE_FIELDS = 32

# The results of a call of `append_records`.
DONE, FULL, BROKEN = range(3)

NO_TIME = -(2**63)
"""Instead of microseconds: they cannot represent the record's milliseconds."""

BROKEN_AT = -1
"""Instead of a position: the batch there is broken."""

_HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_MAGIC = 2
_LOG_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_MAX_INT64 = 2**63 - 1
_MAX_TIME_MS = _MAX_INT64 // 1000

_NOWHERE = 0
"""Instead of an address: the bytes there are broken."""


@inlined
def _is_batch(at: int, room_bytes: int) -> bool:
    """True if the bytes there can be a batch that ends within the room (`record_batch.absurdity`)."""
    if room_bytes < _HEADER_SIZE:
        return False
    base_offset, last_delta = big_endian_int64_at(at), big_endian_int32_at(at + 23)
    size_bytes, record_count = big_endian_int32_at(at + 8) + _LOG_OVERHEAD, big_endian_int32_at(at + 57)
    return (
        byte_at(at + 16) == _MAGIC
        and _HEADER_SIZE <= size_bytes <= room_bytes
        and last_delta >= 0
        and 0 <= base_offset <= _MAX_INT64 - last_delta
        and 0 <= record_count <= last_delta + 1
    )


@inlined
def _is_aborted(producer_id: int, offset: int, aborted: int, aborted_count: int) -> bool:
    """True if one of the rows at the address `aborted` has the producer's offset (`reader.aborted_batches`)."""
    low, high = 0, aborted_count
    while low < high:
        middle = (low + high) >> 1
        row = aborted + 24 * middle
        other_id = int64_at(row)
        if other_id < producer_id or (other_id == producer_id and int64_at(row + 8) <= offset):
            low = middle + 1
        else:
            high = middle
    row = aborted + 24 * (low - 1)
    return low > 0 and int64_at(row) == producer_id and offset <= int64_at(row + 16)


@compiled("int64(int64, int64, int64, int64, int64, int64, int64, int64, int64, int64)")
def list_batches(
    data: int,
    position: int,
    end: int,
    first_offset: int,
    next_offset: int,
    table: int,
    max_count: int,
    found: int,
    aborted: int,
    aborted_count: int,
) -> int:
    """Enter the batches from `position` on with records of the wanted offsets into `table`, up to `max_count`.

    `data`: the address of position 0; `end`: the position after the last byte. Control batches are skipped, and those
    of the aborted transactions, whose `aborted_count` rows are at the address `aborted`. Returns the position to
    continue at, `end` if nothing more is wanted, or `BROKEN_AT`. Writes three integers at `found`: the number of
    batches, the position of the last one that was read, and the records of those that were skipped.
    """
    count = 0
    skipped = 0
    while position < end and count < max_count:
        at = data + position
        put_int64(found + 8, position)
        if not _is_batch(at, end - position):
            return BROKEN_AT
        size_bytes = big_endian_int32_at(at + 8) + _LOG_OVERHEAD
        base_offset, last_delta = big_endian_int64_at(at), big_endian_int32_at(at + 23)
        attributes = byte_at(at + 22)
        if base_offset >= next_offset:
            position = end
            break
        if base_offset + last_delta < first_offset:
            position += size_bytes
            continue
        if attributes & _CONTROL != 0 or (
            attributes & _TRANSACTIONAL != 0
            and _is_aborted(big_endian_int64_at(at + 43), base_offset, aborted, aborted_count)
        ):
            skipped += big_endian_int32_at(at + 57)
        else:
            row = table + 8 * TABLE_COLUMNS * count
            put_int64(row + 8 * POSITION, position)
            put_int64(row + 8 * RECORDS_START, at + _HEADER_SIZE)
            put_int64(row + 8 * RECORDS_END, at + size_bytes)
            put_int64(row + 8 * BASE_OFFSET, base_offset)
            put_int64(row + 8 * LAST_DELTA, last_delta)
            put_int64(row + 8 * BASE_TIME, big_endian_int64_at(at + 27))
            put_int64(row + 8 * MAX_TIME, big_endian_int64_at(at + 35))
            put_int64(row + 8 * COUNT, big_endian_int32_at(at + 57))
            put_int64(row + 8 * ATTRIBUTES, attributes)
            count += 1
        position += size_bytes
    put_int64(found, count)
    put_int64(found + 16, skipped)
    return position


@inlined
def _varint(at: int, end: int) -> tuple[int, int]:
    """The integer and the address after it, `_NOWHERE` if it is cut off or takes more than five bytes."""
    if at >= end:
        return 0, _NOWHERE
    zigzag = byte_at(at)
    at += 1
    if zigzag >= 0x80:
        zigzag &= 0x7F
        byte = 0x80
        shift = 7
        while byte >= 0x80:
            if at >= end or shift > 28:
                return 0, _NOWHERE
            byte = byte_at(at)
            at += 1
            zigzag |= (byte & 0x7F) << shift
            shift += 7
    return zigzag >> 1 ^ -(zigzag & 1), at


@inlined
def _varlong(at: int, end: int) -> tuple[int, int, bool]:
    """The integer of up to ten bytes, and whether it fits 64 bits; if not, it is another one."""
    zigzag = 0
    shift = 0
    byte = 0x80
    fits = True
    while byte >= 0x80:
        if at >= end or shift > 63:
            return 0, _NOWHERE, False
        byte = byte_at(at)
        at += 1
        if shift == 63 and byte & 0x7F > 1:
            fits = False
        zigzag |= (byte & 0x7F) << shift
        shift += 7
    # The sign bit is a bit like any other here.
    return (zigzag >> 1 & _MAX_INT64) ^ -(zigzag & 1), at, fits


@inlined
def _times_add_up(base_ms: int, delta_ms: int) -> bool:
    """True if the sum is a legal timestamp, -(2^63-1) to 2^63-1."""
    if delta_ms > 0:
        return base_ms <= _MAX_INT64 - delta_ms
    return base_ms >= -_MAX_INT64 - delta_ms


@inlined
def _value(at: int, end: int) -> tuple[int, int, int]:
    """Start, length (negative: null) and end of a nullable value; an end of `_NOWHERE` if it is broken."""
    length, start = _varint(at, end)
    if start == _NOWHERE or length > end - start:
        return 0, 0, _NOWHERE
    return start, length, start + max(length, 0)


@inlined
def _record_start(at: int, end: int, batch: int) -> tuple[int, int, int, int]:
    """End, offset, time and key of the record; an end of `_NOWHERE` if it is broken."""
    nothing = (_NOWHERE, 0, 0, 0)
    length, at = _varint(at, end)
    if at == _NOWHERE or length < 0 or length > end - at:
        return nothing
    record_end = at + length
    # The attributes byte has no meaning yet.
    delta_ms, at, fits = _varlong(at + 1, record_end)
    if at == _NOWHERE:
        return nothing
    offset_delta, at = _varint(at, record_end)
    if at == _NOWHERE or offset_delta < 0 or offset_delta > int64_at(batch + 8 * LAST_DELTA):
        return nothing
    offset = int64_at(batch + 8 * BASE_OFFSET) + offset_delta
    if int64_at(batch + 8 * ATTRIBUTES) & _LOG_APPEND_TIME != 0:
        return record_end, offset, int64_at(batch + 8 * MAX_TIME), at
    base_ms = int64_at(batch + 8 * BASE_TIME)
    if not fits or not _times_add_up(base_ms, delta_ms):
        return nothing
    return record_end, offset, base_ms + delta_ms, at


@inlined
def _room(state: int, size_bytes: int, headers: int) -> int:
    """`DONE` if the columns have room for a record of that size, else `FULL`."""
    used_bytes = (
        int64_at(state + 8 * KEY_BYTES)
        + int64_at(state + 8 * VALUE_BYTES)
        + int64_at(state + 8 * NAME_BYTES)
        + int64_at(state + 8 * HEADER_BYTES)
    )
    if (
        int64_at(state + 8 * ROWS) < int64_at(state + 8 * MAX_ROWS)
        and size_bytes <= int64_at(state + 8 * MAX_BYTES) - used_bytes
        and headers <= int64_at(state + 8 * MAX_HEADERS) - int64_at(state + 8 * HEADERS)
    ):
        return DONE
    put_int64(state + 8 * WANTED_BYTES, size_bytes)
    put_int64(state + 8 * WANTED_HEADERS, headers)
    return FULL


@inlined
def _append_value(state: int, used: int, column: int, row: int, at: int, length: int) -> None:
    """`used`: the field that counts the bytes; `column`: the first of the three addresses of such a column."""
    size_bytes = int64_at(state + 8 * used)
    if length > 0:
        copy_bytes(int64_at(state + 8 * column + 16) + size_bytes, at, length)
        size_bytes += length
        put_int64(state + 8 * used, size_bytes)
    put_int32(int64_at(state + 8 * column) + 4 * row + 4, size_bytes)
    put_byte(int64_at(state + 8 * column + 8) + row, 1 if length >= 0 else 0)


@inlined
def _append_row(
    state: int,
    batch: int,
    offset: int,
    time_ms: int,
    key: int,
    key_length: int,
    value: int,
    value_length: int,
) -> None:
    row = int64_at(state + 8 * ROWS)
    is_append_time = int64_at(batch + 8 * ATTRIBUTES) & _LOG_APPEND_TIME != 0
    put_int64(int64_at(state + 8 * OFFSETS) + 8 * row, offset)
    if time_ms > _MAX_TIME_MS or time_ms < -_MAX_TIME_MS:
        put_int64(int64_at(state + 8 * TIMES) + 8 * row, NO_TIME)
        put_int64(state + 8 * ROWS_WITHOUT_TIME, int64_at(state + 8 * ROWS_WITHOUT_TIME) + 1)
    else:
        put_int64(int64_at(state + 8 * TIMES) + 8 * row, time_ms * 1000)
    put_int32(int64_at(state + 8 * KINDS) + 4 * row, 1 if is_append_time else 0)
    _append_value(state, KEY_BYTES, KEY_ENDS, row, key, key_length)
    _append_value(state, VALUE_BYTES, VALUE_ENDS, row, value, value_length)
    put_int32(int64_at(state + 8 * HEADER_ENDS) + 4 * row + 4, int64_at(state + 8 * HEADERS))
    put_int64(state + 8 * ROWS, row + 1)


@inlined
def _walk_headers(at: int, end: int, count: int, keeps: bool, state: int) -> int:
    """Skips the record's headers, and appends them if they are wanted; `_NOWHERE` if one is broken."""
    while count > 0:
        name, name_length, at = _value(at, end)
        if at == _NOWHERE or name_length < 0:
            return _NOWHERE
        value, value_length, at = _value(at, end)
        if at == _NOWHERE:
            return _NOWHERE
        if keeps:
            number = int64_at(state + 8 * HEADERS)
            _append_value(state, NAME_BYTES, NAME_ENDS, number, name, name_length)
            _append_value(state, HEADER_BYTES, HEADER_VALUE_ENDS, number, value, value_length)
            put_int64(state + 8 * HEADERS, number + 1)
        count -= 1
    return at


@inlined
def _append_batch(batch: int, first_offset: int, next_offset: int, keeps_headers: bool, state: int) -> int:
    at, done = int64_at(state + 8 * AT_ADDRESS), int64_at(state + 8 * AT_RECORD)
    if at == _NOWHERE:
        at, done = int64_at(batch + 8 * RECORDS_START), 0
    end, count = int64_at(batch + 8 * RECORDS_END), int64_at(batch + 8 * COUNT)
    result = DONE
    while done < count:
        start = at
        record_end, offset, time_ms, at = _record_start(at, end, batch)
        if record_end == _NOWHERE:
            return BROKEN
        key, key_length, at = _value(at, record_end)
        if at == _NOWHERE:
            return BROKEN
        value, value_length, at = _value(at, record_end)
        if at == _NOWHERE:
            return BROKEN
        headers, at = _varint(at, record_end)
        # Each header takes two bytes or more.
        if at == _NOWHERE or headers < 0 or headers > (record_end - at) >> 1:
            return BROKEN
        is_wanted = first_offset <= offset and offset < next_offset
        keeps = is_wanted and keeps_headers
        if is_wanted:
            result = _room(state, record_end - start, headers if keeps else 0)
            if result != DONE:
                at = start
                break
        at = _walk_headers(at, record_end, headers, keeps, state)
        if at != record_end:
            return BROKEN
        if is_wanted:
            _append_row(state, batch, offset, time_ms, key, key_length, value, value_length)
        done += 1
    if result == DONE:
        if at != end:
            return BROKEN
        at = _NOWHERE
    put_int64(state + 8 * AT_ADDRESS, at)
    put_int64(state + 8 * AT_RECORD, done)
    return result


@compiled("int64(int64, int64, int64, int64, boolean, int64)")
def append_records(
    table: int, batch_count: int, first_offset: int, next_offset: int, keeps_headers: bool, state: int
) -> int:
    """Append the wanted records of the table's first `batch_count` batches to the columns of `state`.

    Times are in microseconds, or `NO_TIME`. Returns `DONE`; `FULL` after as many rows as fit, to be called again with
    other columns, larger ones if no row fit; `BROKEN` at the batch in `state`.
    """
    for ends in (KEY_ENDS, VALUE_ENDS, HEADER_ENDS, NAME_ENDS, HEADER_VALUE_ENDS):
        # Behind it each value's end, which is where the next one starts.
        put_int32(int64_at(state + 8 * ends), 0)
    result = DONE
    batch_number = int64_at(state + 8 * AT_BATCH)
    while batch_number < batch_count and result == DONE:
        put_int64(state + 8 * AT_BATCH, batch_number)
        batch = table + 8 * TABLE_COLUMNS * batch_number
        result = _append_batch(batch, first_offset, next_offset, keeps_headers, state)
        batch_number += 1
    return result
