"""Zigzag varints, the integers inside record batches (not the unsigned ones of flexible messages)."""

MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10


def append_varint(output: bytearray, value: int) -> None:
    """Append `value`, a signed integer of at most 64 bits."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    while zigzag > 0x7F:
        output.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    output.append(zigzag)


def varint_size(value: int) -> int:
    """The bytes that append_varint appends."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    return (zigzag.bit_length() + 6) // 7 or 1


def read_varint(
    data: bytes | bytearray | memoryview, position: int, max_bytes: int = MAX_VARINT_BYTES
) -> tuple[int, int]:
    """The value at `position` and the position after it.

    Raises IndexError when `data` ends first and ValueError when the value takes more than `max_bytes`.
    """
    byte = data[position]
    if byte < 0x80:
        return byte >> 1 ^ -(byte & 1), position + 1
    zigzag = byte & 0x7F
    shift = 7
    for next_position in range(position + 1, position + max_bytes):
        byte = data[next_position]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return zigzag >> 1 ^ -(zigzag & 1), next_position + 1
        shift += 7
    raise ValueError(f"the varint at position {position} is longer than {max_bytes} bytes")
