"""The start and the end of a read, as a caller names them: offsets, times, and the log's edges. Pure."""

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from kafscale.errors import ReadOptionError as ReadOptionError

_MAX_OFFSET: Final = 2**63 - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_LEGAL: Final = "an offset, earliest, latest, or a time with its zone (2026-11-26T12:00:00Z)"
_LEGAL_VALUES: Final = f"{_LEGAL}; or a mapping of partitions to these"


class Edge(StrEnum):
    """The start or the end of a partition's log."""

    EARLIEST = "earliest"
    LATEST = "latest"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older (Unix milliseconds), as Kafka's `offsetsForTimes` finds it."""

    timestamp_ms: int

    def __str__(self) -> str:
        return f"Unix time {self.timestamp_ms} ms"


Point = int | Edge | AtTime
"""An offset, or what it follows from."""

PointLike = int | str | datetime
"""A point as callers give it; what behaves like an integer or a datetime (of numpy, of pandas) is one, too."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A point for each partition. `by_partition`: those that are named; `default`: all others."""

    default: Point
    by_partition: Mapping[int, Point] = field(default_factory=dict)

    def of(self, partition: int) -> Point:
        """The partition's point."""
        return self.by_partition.get(partition, self.default)


def parse_bound(name: str, value: PointLike | Mapping[int, PointLike] | None, default: Edge) -> Bound:
    """The bound that the parameter `name` gives. Raises `ReadOptionError`."""
    if value is None:
        return Bound(default)
    if not isinstance(value, Mapping):
        return Bound(_point(name, value))
    points: dict[int, Point] = {}
    for partition, point in value.items():
        if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
            raise ReadOptionError(
                f"{name} is not legal: {partition!r} is no partition; it must be a whole number from 0"
            )
        points[partition] = _point(f"{name}[{partition}]", point)
    return Bound(default, points)


def _point(name: str, value: object) -> Point:
    if isinstance(value, datetime):
        return _at_time(name, value)
    if isinstance(value, str):
        return _from_text(name, value)
    if not isinstance(value, bool):
        try:
            offset = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            pass
        else:
            if 0 <= offset <= _MAX_OFFSET:
                return offset
            raise ReadOptionError(f"{name}={offset} is not legal: an offset is 0 to {_MAX_OFFSET}")
    raise ReadOptionError(f"{name}={repr(value)[:80]} is not legal: it must be {_LEGAL_VALUES}")


def _from_text(name: str, text: str) -> Point:
    if text in (Edge.EARLIEST, Edge.LATEST):
        return Edge(text)
    try:
        return _at_time(name, datetime.fromisoformat(text))
    except ReadOptionError:
        raise
    except ValueError:
        raise ReadOptionError(f"{name}={text[:80]!r} is not legal: it must be {_LEGAL}") from None


def _at_time(name: str, time: datetime) -> AtTime:
    if time.tzinfo is None:
        raise ReadOptionError(
            f"{name}={time.isoformat()} is not legal: a time needs its zone, such as {time.isoformat()}Z for UTC"
        )
    # Up: of records with whole milliseconds those are wanted that are not older.
    return AtTime(-int((_EPOCH - time) // _MILLISECOND))
