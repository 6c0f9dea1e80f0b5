"""Sets of offsets as ascending ranges that do not touch: what of a partition a table has. Pure."""

from collections.abc import Iterable

Range = tuple[int, int]
"""The first offset and the one after the last."""

Ranges = tuple[Range, ...]


def union(*sets: Iterable[Range]) -> Ranges:
    """Every offset that is in one of them."""
    joined: list[Range] = []
    for first, following in sorted(one for ranges in sets for one in ranges):
        if following <= first:
            continue
        if joined and first <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], following))
        else:
            joined.append((first, following))
    return tuple(joined)


def difference(wanted: Iterable[Range], had: Iterable[Range]) -> Ranges:
    """The offsets of `wanted` that are not in `had`."""
    left: list[Range] = []
    there = union(had)
    for first, following in union(wanted):
        position = first
        for start, end in there:
            if end <= position:
                continue
            if start >= following:
                break
            if start > position:
                left.append((position, start))
            position = max(position, end)
        if position < following:
            left.append((position, following))
    return tuple(left)


def intersection(some: Iterable[Range], others: Iterable[Range]) -> Ranges:
    """The offsets that are in both."""
    wanted = union(some)
    return difference(wanted, difference(wanted, others))


def first_missing(ranges: Iterable[Range], offset: int) -> int:
    """The smallest offset from `offset` on that is in none of the ranges."""
    for first, following in union(ranges):
        if first > offset:
            break
        offset = max(offset, following)
    return offset


def size(ranges: Iterable[Range]) -> int:
    """The number of offsets in the ranges, which do not overlap."""
    return sum(following - first for first, following in ranges)
