"""Avro's logical types: the conversion from the written value to the column's."""

import uuid
from collections.abc import Callable
from decimal import Decimal

from spark_jobs.decoding.avro.model import Fixed, Primitive
from spark_jobs.decoding.avro.types import is_decimal, is_uuid
from spark_jobs.decoding.problems import UndecodableError

Convert = Callable[[object], object]

_LONG_LIMIT = 1 << 63
_UNITS_PER_SEC = {
    "timestamp-millis": 10**3,
    "timestamp-micros": 10**6,
    "timestamp-nanos": 10**9,
    "local-timestamp-millis": 10**3,
    "local-timestamp-micros": 10**6,
    "local-timestamp-nanos": 10**9,
    "time-millis": 10**3,
    "time-micros": 10**6,
}
# Spark's timestamps are in microseconds; other logical types stay numbers in their own unit.
_MICROSECONDS = frozenset(
    {"timestamp-millis", "timestamp-micros", "local-timestamp-millis", "local-timestamp-micros"}
)


class MismatchError(Exception):
    """The writer's type cannot be read as the reader's: `problem`, at `path` below the value."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path

    def within(self, step: str) -> "MismatchError":
        """The same mismatch with `step` in front of its path."""
        return MismatchError(self.problem, step + self.path)


def conversion(written: Primitive | Fixed, wanted: Primitive | Fixed) -> Convert | None:
    """From an encoded value to the one that `pyarrow.array` takes; None if they are the same.

    If both types have a unit of time, the number is in the written one. Raises `MismatchError`.
    """
    if is_decimal(wanted):
        if is_decimal(written) and written.scale != wanted.scale:
            raise MismatchError(
                f"a decimal of scale {written.scale} cannot be read with scale {wanted.scale}"
            )
        return _decimal(wanted.precision, wanted.scale)
    if is_uuid(wanted):
        return _uuid
    if (
        isinstance(wanted, Fixed)
        or wanted.kind not in ("int", "long")
        or wanted.logical not in _UNITS_PER_SEC
    ):
        return None
    source = _UNITS_PER_SEC.get(written.logical, _UNITS_PER_SEC[wanted.logical])
    target = 10**6 if wanted.logical in _MICROSECONDS else _UNITS_PER_SEC[wanted.logical]
    return None if source == target else _scaled(source, target)


def _uuid(data: object) -> object:
    return str(uuid.UUID(bytes=data))  # type: ignore[arg-type]


def _scaled(source: int, target: int) -> Convert:
    def convert(value: object) -> object:
        number = value * target // source  # type: ignore[operator]
        if not -_LONG_LIMIT <= number < _LONG_LIMIT:
            raise UndecodableError(f"is {value}, which a timestamp cannot hold")
        return number

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    limit = 10**precision

    def convert(data: object) -> object:
        unscaled = int.from_bytes(data, "big", signed=True)  # type: ignore[arg-type]
        if not -limit < unscaled < limit:
            raise UndecodableError(f"is a decimal of more than {precision} digits")
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return convert
