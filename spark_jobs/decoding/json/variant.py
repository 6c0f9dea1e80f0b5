"""JSON for a column of variants: checked here, so that Spark's own parser, which is lenient, cannot lose anything.

`parse_json` ignores what follows a value, makes infinity of 1e400, a double of a number of 39 digits, and a question
mark of half a surrogate pair.
"""

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import types as st

from spark_jobs.decoding.columns import DecodedColumn, decode_each
from spark_jobs.decoding.json.column import taken, unframed
from spark_jobs.decoding.json.parser import AmbiguousObject, Number, ambiguous, parse
from spark_jobs.decoding.json.suspects import Suspects
from spark_jobs.decoding.json.text_walk import MOST_DECIMAL_DIGITS
from spark_jobs.decoding.json.values import unicode_text
from spark_jobs.decoding.options import Framing
from spark_jobs.decoding.problems import UndecodableError, shown


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantFormat:
    """JSON of any type. The decoded column has the texts, of which Spark makes variants."""

    framing: Framing

    @property
    def value_type(self) -> st.DataType:
        """String."""
        return st.StringType()

    def open(self) -> "VariantDecoder":
        """A decoder for this process."""
        return VariantDecoder(self.framing)


class VariantDecoder:
    """Checks columns of JSON values."""

    def __init__(self, framing: Framing) -> None:
        self._framing = framing
        self._suspects = Suspects(None, keeps_unknown=False)

    def decode(self, column: pa.Array) -> DecodedColumn:
        """See `ColumnDecoder`."""
        column, errors = unframed(column, self._framing)
        rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        odd = rows[self._suspects.among(column, rows)]
        if not len(odd):
            return DecodedColumn(values=column.cast(pa.string()), errors=errors)
        found = decode_each(taken(column, odd), _checked, pa.binary())
        for row, error in zip(odd.tolist(), found.errors, strict=True):
            errors[row] = error
        values = column.to_pylist()
        for row, value in zip(odd.tolist(), found.values.to_pylist(), strict=True):
            values[row] = value
        return DecodedColumn(values=pa.array(values, pa.binary()).cast(pa.string()), errors=errors)


def _checked(data: bytes) -> bytes:
    """The text itself. Raises `UndecodableError` for what is no JSON, or what a variant would have otherwise."""
    _check(parse(data))
    return data


def _check(value: object) -> None:
    match value:
        case AmbiguousObject():
            raise ambiguous(value)
        case dict():
            for name, item in value.items():
                try:
                    unicode_text(name)
                    _check(item)
                except UndecodableError as problem:
                    raise problem.within(name) from None
        case list():
            for place, item in enumerate(value):
                try:
                    _check(item)
                except UndecodableError as problem:
                    raise problem.within(place) from None
        case Number():
            _check_number(value)
        case str():
            unicode_text(value)
        case int() if not isinstance(value, bool) and abs(value) >= 10**MOST_DECIMAL_DIGITS:
            raise UndecodableError(f"is {shown(value)}, and a variant holds whole numbers of up to 38 digits")
        case _:
            pass


def _check_number(number: str) -> None:
    if number in ("NaN", "Infinity", "-Infinity"):
        raise UndecodableError(f"is {number}, which is no JSON")
    if not math.isfinite(float(number)):
        raise UndecodableError(f"is {shown(str(number))}, and not a number that a double can hold")
