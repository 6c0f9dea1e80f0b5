"""Offsets of many partitions as a short text: what an export state of a large topic stores. Pure.

Columns of integers (differences from the partition before, seven bits to a byte), compressed, in base64: partitions
that advance alike take about four characters each. Format: docs/format/export-state.md.
"""

import base64
import binascii
import itertools
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from kafscale.lake.ranges import Ranges, union

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of the integers: a text that claims more is refused, whatever it is."""

_HIGHEST: Final = 2**63 - 1


def pack_offsets(starts: Mapping[int, int], *sets: Mapping[int, Ranges]) -> str:
    """The text for an offset per partition, and for sets of ranges per partition."""
    columns = [*_starts_columns(starts), *(column for one in sets for column in _ranges_columns(one))]
    raw = bytearray()
    for column in columns:
        _put(raw, len(column))
        for value in column:
            _put(raw, _zigzag(value))
    return base64.b64encode(zlib.compress(bytes(raw), 9)).decode("ascii")


def unpack_offsets(text: str, set_count: int) -> tuple[dict[int, int], list[dict[int, Ranges]]]:
    """The offsets and sets that were packed. Raises `ValueError` for every other text."""
    columns = _columns(_decompressed(text))
    try:
        starts = _starts_of(next(columns), next(columns))
        sets = [_ranges_of(next(columns), next(columns), next(columns)) for _ in range(set_count)]
    except StopIteration:
        raise ValueError("it ends too early") from None
    if next(columns, None) is not None:
        raise ValueError("there is more than was packed")
    return starts, sets


def _starts_columns(starts: Mapping[int, int]) -> Iterator[list[int]]:
    yield _differences(sorted(starts))
    yield _differences([starts[partition] for partition in sorted(starts)])


def _ranges_columns(by_partition: Mapping[int, Ranges]) -> Iterator[list[int]]:
    """Partitions; the number of ranges of each; and of all ranges what is before and how long they are.

    The first range of a partition counts from that of the partition before: they begin and end near each other.
    """
    partitions = sorted(partition for partition, ranges in by_partition.items() if ranges)
    yield _differences(partitions)
    yield [len(by_partition[partition]) for partition in partitions]
    lengths: list[int] = []
    before_first = before_length = 0
    for partition in partitions:
        position = before_first
        for number, (first, following) in enumerate(by_partition[partition]):
            length = following - first
            lengths += [first - position, length - before_length if number == 0 else length]
            if number == 0:
                before_first, before_length = first, length
            position = following
    yield lengths


def _starts_of(partitions: list[int], offsets: list[int]) -> dict[int, int]:
    if len(partitions) != len(offsets):
        raise ValueError(f"{len(partitions)} partitions and {len(offsets)} starts")
    found = dict(zip(_checked_partitions(partitions), _sums(offsets), strict=True))
    if any(not 0 <= offset <= _HIGHEST for offset in found.values()):
        raise ValueError("a start is not an offset")
    return found


def _ranges_of(partitions: list[int], counts: list[int], lengths: list[int]) -> dict[int, Ranges]:
    if (
        len(partitions) != len(counts)
        or any(count < 1 for count in counts)
        or 2 * sum(counts) != len(lengths)
    ):
        raise ValueError("its columns do not fit together")
    values = iter(lengths)
    found: dict[int, Ranges] = {}
    before_first = before_length = 0
    for partition, count in zip(_checked_partitions(partitions), counts, strict=True):
        position = before_first
        ranges = []
        for number in range(count):
            first = position + next(values)
            length = next(values) + (before_length if number == 0 else 0)
            if number == 0:
                before_first, before_length = first, length
            position = first + length
            ranges.append((first, position))
        pairs = tuple(ranges)
        if union(pairs) != pairs or pairs[0][0] < 0 or pairs[-1][1] > _HIGHEST:
            raise ValueError(f"ranges {pairs[:3]} of partition {partition}")
        found[partition] = pairs
    return found


def _checked_partitions(differences: list[int]) -> list[int]:
    partitions = list(_sums(differences))
    if any(later <= earlier for earlier, later in itertools.pairwise(partitions)) or (
        partitions and not 0 <= partitions[0] <= partitions[-1] < 2**31
    ):
        raise ValueError("its partitions do not ascend")
    return partitions


def _differences(values: Iterable[int]) -> list[int]:
    differences, before = [], 0
    for value in values:
        differences.append(value - before)
        before = value
    return differences


def _sums(differences: Iterable[int]) -> Iterator[int]:
    total = 0
    for one in differences:
        total += one
        yield total


def _zigzag(value: int) -> int:
    return value * 2 if value >= 0 else -value * 2 - 1


def _put(raw: bytearray, value: int) -> None:
    while value > 0x7F:
        raw.append(value & 0x7F | 0x80)
        value >>= 7
    raw.append(value)


def _decompressed(text: str) -> bytes:
    try:
        packed = base64.b64decode(text.encode("ascii"), validate=True)
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(packed, MOST_BYTES)
    except (UnicodeEncodeError, binascii.Error, zlib.error) as problem:
        raise ValueError(str(problem)) from None
    if not unpacking.eof or unpacking.unused_data:
        raise ValueError("it is cut off, too large, or followed by more")
    return raw


def _columns(raw: bytes) -> Iterator[list[int]]:
    values = _integers(raw)
    for count in values:
        if count > len(raw):
            raise ValueError(f"a column of {count} integers")
        column = []
        for _ in range(count):
            value = next(values, None)
            if value is None:
                raise ValueError("it ends within a column")
            column.append(value >> 1 if value & 1 == 0 else -((value + 1) >> 1))
        yield column


def _integers(raw: bytes) -> Iterator[int]:
    value = shift = 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield value
            value = shift = 0
        elif shift > 70:
            raise ValueError("an integer of more than ten bytes")
    if shift:
        raise ValueError("it ends within an integer")
