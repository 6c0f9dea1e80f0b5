"""The walk over JSON texts, compiled: which values a block could not be read with.

Theory of operation. Arrow's reader refuses a block for one value. `mark_suspects` walks each value beside its type,
as a table of nodes (`suspects`), and marks what Arrow refuses or reads otherwise than `values` does. It may mark
without need: such a value is decoded by itself, which gives the same. What it does not mark is JSON, with no name
twice in an object of ANYTHING; but it may be unlike the type: then Arrow refuses the block, which is divided.
Everything is addresses, as in `kafscale.arrow`; every read is checked against the value's end first.
"""

from kafscale.arrow.compiled import compiled, inlined
from kafscale.arrow.raw_memory import byte_at, int64_at, put_byte, put_int64

# The kinds of nodes. ANYTHING: a field that is dropped; NOTHING: one that only null, [] and {} may stand in.
ANYTHING, NOTHING, STRUCT, LIST, BOOLEAN, WHOLE, REAL, DECIMAL, TEXT, DATE, TIMESTAMP, TIMESTAMP_NTZ = range(
    12
)

# A node, int64 each: its kind and three numbers. STRUCT: first field, number of fields, mask of the required ones.
# LIST: node of its elements, 1 if they are required. WHOLE: least and largest value. REAL: most digits before the
# point. DECIMAL: most digits before and behind it.
NODE_BYTES = 32
# A field, int64 each: address and length of its name, its node, 1 if it is required.
FIELD_BYTES = 32
# An open object or list, int64 each: its node, 1 for an object, mask of the fields seen, the field likely to be next.
# Of an object of ANYTHING: the number of the names before its own instead of the last two, and that of its own.
LEVEL_BYTES = 32
MAX_LEVELS = 64
# A name of an open object of ANYTHING, int64 each, behind the levels: its address and length.
NAME_BYTES = 16
MAX_NAMES = 256
MASKED_FIELDS = 62
"""Of a struct; of the fields behind them it is not seen that they are repeated or missing."""

_BROKEN = 0
"""Instead of an address: the value is suspect."""

_VALUE, _NAME, _AFTER = range(3)
_QUOTE, _BACKSLASH, _COMMA, _COLON, _MINUS, _PLUS, _POINT = 34, 92, 44, 58, 45, 43, 46
_OPEN_BRACE, _CLOSE_BRACE, _OPEN_BRACKET, _CLOSE_BRACKET = 123, 125, 91, 93
_ZERO, _NINE, _UPPER_E, _LOWER_E, _LOWER_T, _LOWER_F, _LOWER_N, _LOWER_U = 48, 57, 69, 101, 116, 102, 110, 117
_UPPER_T, _UPPER_Z = 84, 90
_MOST_DIGITS = 18
MOST_DECIMAL_DIGITS = 38


@inlined
def _skipped(at: int, end: int) -> int:
    """The address behind white space."""
    while at < end:
        byte = byte_at(at)
        if byte != 32 and byte != 10 and byte != 13 and byte != 9:
            break
        at += 1
    return at


@inlined
def _escaped(at: int, end: int) -> int:
    """The address behind an escape whose backslash is before `at`. Surrogates are suspect."""
    if at >= end:
        return _BROKEN
    byte = byte_at(at)
    if byte != _LOWER_U:
        # " \ / b f n r t
        is_known = byte == 34 or byte == 92 or byte == 47 or byte == 98 or byte == 102
        return at + 1 if is_known or byte == 110 or byte == 114 or byte == 116 else _BROKEN
    if end - at < 5:
        return _BROKEN
    for place in range(1, 5):
        digit = byte_at(at + place)
        is_letter = digit | 32 >= 97 and digit | 32 <= 102
        if not is_letter and (digit < _ZERO or digit > _NINE):
            return _BROKEN
    # \ud8.. to \udf..
    if byte_at(at + 1) | 32 == 100 and byte_at(at + 2) >= 56:
        return _BROKEN
    return at + 5


@inlined
def _after_letter(at: int, end: int, byte: int) -> int:
    """The address behind a letter of two to four bytes in UTF-8, the first of them `byte`."""
    if byte < 0xC2 or byte > 0xF4:
        return _BROKEN
    more = 1 if byte < 0xE0 else (2 if byte < 0xF0 else 3)
    if end - at <= more:
        return _BROKEN
    second = byte_at(at + 1)
    low = 0xA0 if byte == 0xE0 else (0x90 if byte == 0xF0 else 0x80)
    high = 0x9F if byte == 0xED else (0x8F if byte == 0xF4 else 0xBF)
    if second < low or second > high:
        return _BROKEN
    for place in range(2, more + 1):
        if byte_at(at + place) & 0xC0 != 0x80:
            return _BROKEN
    return at + more + 1


@inlined
def _after_string(at: int, end: int) -> int:
    """The address behind the closing quote of a string whose first letter is at `at`."""
    while at < end:
        byte = byte_at(at)
        if byte == _QUOTE:
            return at + 1
        if byte < 32:
            return _BROKEN
        if byte == _BACKSLASH:
            at = _escaped(at + 1, end)
        elif byte >= 0x80:
            at = _after_letter(at, end, byte)
        else:
            at += 1
        if at == _BROKEN:
            return _BROKEN
    return _BROKEN


@inlined
def _number(at: int, end: int, node: int) -> int:
    """The address behind a number that the node takes."""
    kind = int64_at(node)
    is_negative = byte_at(at) == _MINUS
    if is_negative:
        at += 1
    start, whole = at, 0
    while at < end and byte_at(at) >= _ZERO and byte_at(at) <= _NINE:
        if at - start < _MOST_DIGITS:
            whole = 10 * whole + byte_at(at) - _ZERO
        at += 1
    digits = at - start
    if digits == 0 or (digits > 1 and byte_at(start) == _ZERO):
        return _BROKEN
    behind = 0
    if at < end and byte_at(at) == _POINT:
        start = at + 1
        at += 1
        while at < end and byte_at(at) >= _ZERO and byte_at(at) <= _NINE:
            at += 1
        behind = at - start
        if behind == 0:
            return _BROKEN
    exponent = 0
    has_exponent = at < end and byte_at(at) | 32 == _LOWER_E
    if has_exponent:
        at += 1
        is_small = at < end and byte_at(at) == _MINUS
        if at < end and (is_small or byte_at(at) == _PLUS):
            at += 1
        start = at
        while at < end and byte_at(at) >= _ZERO and byte_at(at) <= _NINE:
            exponent = min(10 * exponent + byte_at(at) - _ZERO, 1_000_000)
            at += 1
        if at == start:
            return _BROKEN
        exponent = -exponent if is_small else exponent
    if kind == WHOLE:
        value = -whole if is_negative else whole
        if behind or has_exponent or digits > _MOST_DIGITS:
            return _BROKEN
        return at if int64_at(node + 8) <= value and value <= int64_at(node + 16) else _BROKEN
    if kind == REAL:
        return at if digits + max(exponent, 0) <= int64_at(node + 8) and exponent > -250 else _BROKEN
    if kind == DECIMAL:
        fits = digits <= int64_at(node + 8) or (digits == 1 and whole == 0)
        return at if fits and behind <= int64_at(node + 16) and not has_exponent else _BROKEN
    # What a variant holds: decimals of up to 38 digits, and doubles.
    is_plain = digits <= MOST_DECIMAL_DIGITS and exponent > -250 and exponent < 250
    return at if kind == ANYTHING and is_plain else _BROKEN


@inlined
def _two_digits(at: int, low: int, high: int) -> bool:
    first, second = byte_at(at) - _ZERO, byte_at(at + 1) - _ZERO
    value = 10 * first + second
    return first >= 0 and first <= 9 and second >= 0 and second <= 9 and low <= value and value <= high


@inlined
def _is_date(at: int, end: int) -> bool:
    """True for a text that begins with a date; 30 February is one."""
    return (
        end - at >= 10
        and _two_digits(at, 0, 99)
        and _two_digits(at + 2, 0, 99)
        and byte_at(at + 4) == _MINUS
        and _two_digits(at + 5, 1, 12)
        and byte_at(at + 7) == _MINUS
        and _two_digits(at + 8, 1, 31)
    )


@inlined
def _after_time(at: int, end: int) -> int:
    """The address behind hours, minutes, and seconds with a fraction of up to six digits."""
    if (
        end - at < 5
        or not _two_digits(at, 0, 23)
        or byte_at(at + 2) != _COLON
        or not _two_digits(at + 3, 0, 59)
    ):
        return _BROKEN
    at += 5
    if end - at >= 3 and byte_at(at) == _COLON:
        if not _two_digits(at + 1, 0, 59):
            return _BROKEN
        at += 3
        if at < end and byte_at(at) == _POINT:
            start = at + 1
            at += 1
            while at < end and byte_at(at) >= _ZERO and byte_at(at) <= _NINE:
                at += 1
            if at == start or at - start > 6:
                return _BROKEN
    return at


@inlined
def _is_time(kind: int, at: int, end: int) -> bool:
    """True for a text of a date or a timestamp, as far as one can see."""
    if not _is_date(at, end):
        return False
    at += 10
    if at == end:
        return True
    if kind == DATE or (byte_at(at) != _UPPER_T and byte_at(at) != 32):
        return False
    at = _after_time(at + 1, end)
    if at == _BROKEN:
        return False
    if at == end:
        return True
    if kind == TIMESTAMP_NTZ:
        return False
    if byte_at(at) == _UPPER_Z:
        return at + 1 == end
    is_offset = byte_at(at) == _PLUS or byte_at(at) == _MINUS
    # +02, +0200, +02:00
    is_sized = end - at == 3 or end - at == 5 or (end - at == 6 and byte_at(at + 3) == _COLON)
    return (
        is_offset
        and is_sized
        and _two_digits(at + 1, 0, 23)
        and (end - at == 3 or _two_digits(end - 2, 0, 59))
    )


@inlined
def _is_word(at: int, end: int, second: int, third: int, fourth: int) -> bool:
    return (
        end - at >= 4 and byte_at(at + 1) == second and byte_at(at + 2) == third and byte_at(at + 3) == fourth
    )


@inlined
def _scalar(at: int, end: int, node: int, is_required: bool) -> int:
    """The address behind a value that is no object and no list."""
    kind, byte = int64_at(node), byte_at(at)
    if byte == _QUOTE:
        after = _after_string(at + 1, end)
        if after == _BROKEN or kind in (ANYTHING, TEXT):
            return after
        if kind >= DATE:
            return after if _is_time(kind, at + 1, after - 1) else _BROKEN
        # Arrow takes decimals in quotes, too.
        is_decimal = kind == DECIMAL and after - at > 2 and _number(at + 1, after - 1, node) == after - 1
        return after if is_decimal else _BROKEN
    if byte == _LOWER_N:
        return at + 4 if _is_word(at, end, 117, 108, 108) and not is_required else _BROKEN
    if byte in (_LOWER_T, _LOWER_F):
        if kind != BOOLEAN and kind != ANYTHING:
            return _BROKEN
        if byte == _LOWER_T:
            return at + 4 if _is_word(at, end, 114, 117, 101) else _BROKEN
        is_false = end - at >= 5 and _is_word(at + 1, end, 108, 115, 101) and byte_at(at + 1) == 97
        return at + 5 if is_false else _BROKEN
    if byte == _MINUS or (byte >= _ZERO and byte <= _NINE):
        return _number(at, end, node)
    return _BROKEN


@inlined
def _is_same(at: int, name: int, length: int) -> bool:
    for place in range(length):  # noqa: SIM110 - numba compiles no generators
        if byte_at(at + place) != byte_at(name + place):
            return False
    return True


@inlined
def _is_same_but_for_case(at: int, name: int, length: int) -> bool:
    for place in range(length):
        left, right = byte_at(at + place), byte_at(name + place)
        is_letter = left | 32 >= 97 and left | 32 <= 122
        if left != right and not (is_letter and left | 32 == right | 32):
            return False
    return True


@inlined
def _is_new(levels: int, level: int, at: int, length: int) -> bool:
    """True if the name is new in its object of ANYTHING, and there is room to remember it."""
    before, count = int64_at(level + 16), int64_at(level + 24)
    if before + count >= MAX_NAMES:
        return False
    names = levels + LEVEL_BYTES * MAX_LEVELS + NAME_BYTES * before
    for place in range(count):
        name = names + NAME_BYTES * place
        if int64_at(name + 8) == length and _is_same(at, int64_at(name), length):
            return False
    put_int64(names + NAME_BYTES * count, at)
    put_int64(names + NAME_BYTES * count + 8, length)
    put_int64(level + 24, count + 1)
    return True


@inlined
def _names_before(levels: int, depth: int, nodes: int) -> int:
    """The number of names of the open objects of ANYTHING outside of this depth."""
    for outer in range(depth - 1, -1, -1):
        level = levels + LEVEL_BYTES * outer
        if int64_at(level + 8) == 1 and int64_at(nodes + NODE_BYTES * int64_at(level)) == ANYTHING:
            return int64_at(level + 16) + int64_at(level + 24)
    return 0


@inlined
def _field(level: int, at: int, length: int, nodes: int, fields: int, unknown: int) -> int:
    """The number of the struct's field of that name, -1 if it has none, -2 if the name is suspect."""
    node = nodes + NODE_BYTES * int64_at(level)
    if int64_at(node) != STRUCT:
        return -1
    first, count, guess = int64_at(node + 8), int64_at(node + 16), int64_at(level + 24)
    for tried in range(count):
        number = guess + tried
        number = number - count if number >= count else number
        field = fields + FIELD_BYTES * (first + number)
        if int64_at(field + 8) != length:
            continue
        if _is_same(at, int64_at(field), length):
            put_int64(level + 24, number + 1 if number + 1 < count else 0)
            if number < MASKED_FIELDS:
                seen = int64_at(level + 16)
                if seen >> number & 1:
                    return -2
                put_int64(level + 16, seen | 1 << number)
            return first + number
        if unknown == NOTHING and _is_same_but_for_case(at, int64_at(field), length):
            return -2
    return -1


@inlined
def _is_complete(level: int, nodes: int) -> bool:
    """True if the object that ends has all required fields."""
    node = nodes + NODE_BYTES * int64_at(level)
    if int64_at(node) != STRUCT:
        return True
    required = int64_at(node + 24)
    return int64_at(level + 16) & required == required


@inlined
def _is_suspect(at: int, end: int, nodes: int, fields: int, levels: int) -> bool:
    """Walks one value. Node 0 is that of unknown fields, node 1 that of the value."""
    unknown = int64_at(nodes)
    depth, state, number, is_required = 0, _VALUE, 1, False
    while True:
        at = _skipped(at, end)
        level = levels + LEVEL_BYTES * (depth - 1)
        if state == _AFTER and depth == 0:
            return at != end
        if at >= end:
            return True
        byte = byte_at(at)
        if state == _VALUE:
            node = nodes + NODE_BYTES * number
            kind = int64_at(node)
            state = _AFTER
            if byte != _OPEN_BRACE and byte != _OPEN_BRACKET:
                at = _scalar(at, end, node, is_required)
                if at == _BROKEN:
                    return True
                continue
            is_object = byte == _OPEN_BRACE
            is_wanted = kind == STRUCT if is_object else kind == LIST
            if depth == MAX_LEVELS or not (is_wanted or kind in (ANYTHING, NOTHING)):
                return True
            level = levels + LEVEL_BYTES * depth
            put_int64(level, number)
            put_int64(level + 8, 1 if is_object else 0)
            put_int64(level + 16, _names_before(levels, depth, nodes) if kind == ANYTHING else 0)
            put_int64(level + 24, 0)
            depth += 1
            at = _skipped(at + 1, end)
            if at < end and byte_at(at) == (_CLOSE_BRACE if is_object else _CLOSE_BRACKET):
                if is_object and not _is_complete(level, nodes):
                    return True
                depth -= 1
                at += 1
            elif is_object:
                state = _NAME
            else:
                state = _VALUE
                is_required = kind == LIST and int64_at(node + 16) != 0
                number = int64_at(node + 8) if kind == LIST else number
        elif state == _NAME:
            if byte != _QUOTE:
                return True
            start = at + 1
            at = _after_string(start, end)
            if at == _BROKEN:
                return True
            length = at - 1 - start
            for place in range(length):
                if byte_at(start + place) == _BACKSLASH:
                    return True
            is_anything = int64_at(nodes + NODE_BYTES * int64_at(level)) == ANYTHING
            if is_anything and not _is_new(levels, level, start, length):
                return True
            found = -1 if is_anything else _field(level, start, length, nodes, fields, unknown)
            if found == -2:
                return True
            at = _skipped(at, end)
            if at >= end or byte_at(at) != _COLON:
                return True
            at += 1
            inherited = int64_at(level) if int64_at(nodes + NODE_BYTES * int64_at(level)) != STRUCT else 0
            number = int64_at(fields + FIELD_BYTES * found + 16) if found >= 0 else inherited
            is_required = found >= 0 and int64_at(fields + FIELD_BYTES * found + 24) != 0
            state = _VALUE
        else:
            is_object = int64_at(level + 8) == 1
            if byte == _COMMA:
                state = _NAME if is_object else _VALUE
                if not is_object:
                    number = int64_at(level)
                    node = nodes + NODE_BYTES * number
                    is_list = int64_at(node) == LIST
                    is_required = is_list and int64_at(node + 16) != 0
                    number = int64_at(node + 8) if is_list else number
            elif byte != (_CLOSE_BRACE if is_object else _CLOSE_BRACKET):
                return True
            else:
                if is_object and not _is_complete(level, nodes):
                    return True
                depth -= 1
            at += 1


@compiled("int64(int64, int64, int64, int64, int64, int64, int64)")
def mark_suspects(
    data: int, bounds: int, count: int, nodes: int, fields: int, levels: int, marks: int
) -> int:
    """Write a byte for each of the values, 1 for a suspect one; returns their number.

    `bounds`: two integers for each value, its first byte and the one behind its last, from `data` on. `levels`:
    memory for `MAX_LEVELS` levels and `MAX_NAMES` names.
    """
    found = 0
    for row in range(count):
        start, end = int64_at(bounds + 16 * row), int64_at(bounds + 16 * row + 8)
        is_suspect = _is_suspect(data + start, data + end, nodes, fields, levels)
        put_byte(marks + row, 1 if is_suspect else 0)
        found += 1 if is_suspect else 0
    return found
