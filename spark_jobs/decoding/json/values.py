"""Converts parsed JSON to the values of a Spark type: without loss, or with a reason why not."""

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from decimal import Context, Decimal, InvalidOperation

import pyarrow as pa
from pyspark.sql import types as st

from spark_jobs.decoding.json.parser import AmbiguousObject, Number, ambiguous, text_of
from spark_jobs.decoding.json.structs import is_untyped, struct_of
from spark_jobs.decoding.problems import UndecodableError, shown

Convert = Callable[[object], object]

_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,6})?")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9:]{1,8})?(?:\.[0-9]{1,6})?)[0-9]*(Z|[+-][0-9:]{2,5})?"
)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_MAX_WHOLE_DIGITS = 40
_EXACT = Context(prec=50)  # more than any column has
_WHOLE_BITS: dict[type[st.DataType], int] = {
    st.ByteType: 8,
    st.ShortType: 16,
    st.IntegerType: 32,
    st.LongType: 64,
}


def converter(data_type: st.DataType, *, drop_unknown: bool) -> Convert:
    """A function from parsed JSON to what `pyarrow.array` takes for `data_type`. It raises `UndecodableError`.

    `drop_unknown`: fields that the type does not name are dropped, as a given schema wants it; without it they are
    a problem, as nothing may get lost where the schema was inferred.
    """
    match data_type:
        case st.StructType():
            fields = [
                (field.name, _required(field.dataType, field.nullable, drop_unknown=drop_unknown))
                for field in data_type.fields
            ]
            return struct_of(fields, drop_unknown=drop_unknown)
        case st.ArrayType():
            return _list_of(
                _required(data_type.elementType, data_type.containsNull, drop_unknown=drop_unknown)
            )
        case st.MapType():
            return _map_of(
                _required(data_type.valueType, data_type.valueContainsNull, drop_unknown=drop_unknown)
            )
        case st.DecimalType():
            return _decimal(data_type.precision, data_type.scale)
        case _ if type(data_type) in _WHOLE_BITS:
            return _whole(_WHOLE_BITS[type(data_type)])
        case _:
            return _SCALARS[type(data_type)]


def _required(data_type: st.DataType, nullable: bool, *, drop_unknown: bool) -> Convert:
    convert = converter(data_type, drop_unknown=drop_unknown)

    def optional(value: object) -> object:
        return None if value is None else convert(value)

    def required(value: object) -> object:
        if value is None:
            raise UndecodableError("is null or missing, and the schema says NOT NULL")
        return convert(value)

    return optional if nullable else required


def _list_of(convert: Convert) -> Convert:
    def of(value: object) -> object:
        if not isinstance(value, list):
            raise _mismatch(value, "an array")
        converted: list[object] = []
        try:
            converted.extend(map(convert, value))
        except UndecodableError as problem:
            raise problem.within(len(converted)) from None
        return converted

    return of


def _map_of(convert: Convert) -> Convert:
    def of(value: object) -> object:
        if not isinstance(value, dict):
            raise _mismatch(value, "an object")
        if isinstance(value, AmbiguousObject):
            raise ambiguous(value)
        converted: dict[str, object] = {}
        for key, item in value.items():
            try:
                converted[unicode_text(key)] = convert(item)
            except UndecodableError as problem:
                raise problem.within(key) from None
        return converted

    return of


def _whole(bits: int) -> Convert:
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def of(value: object) -> object:
        number = _exact_whole(value) if type(value) is Number else value
        if type(number) is not int or not low <= number <= high:
            raise _mismatch(value, f"a whole number from {low} to {high}")
        return number

    return of


def _exact_whole(number: str) -> int | None:
    """1.0 and 1e3 are whole numbers, too."""
    exact = _exact(number)
    if exact is None or exact.adjusted() > _MAX_WHOLE_DIGITS or exact != exact.to_integral_value():
        return None
    return int(exact)


def _exact(text: str) -> Decimal | None:
    if not _DECIMAL.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def _double(value: object) -> object:
    return _floating(value, float, "a number that a double can hold")


def _float(value: object) -> object:
    return _floating(value, _single, "a number that a float can hold")


def _single(value: int | str) -> float:
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


def _floating(value: object, nearest: Callable[[int | str], float], wanted: str) -> object:
    """The nearest value of a number with fraction or exponent; a whole number must be represented exactly."""
    try:
        if type(value) is int:
            if nearest(value) == value:
                return float(value)
        elif type(value) is Number and value not in _NOT_FINITE:
            found = nearest(value)
            if math.isfinite(found):
                return found
        elif isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
    except OverflowError:
        pass  # beyond the largest one: said below
    raise _mismatch(value, wanted)


def _decimal(precision: int, scale: int) -> Convert:
    unit = Decimal((0, (1,), -scale))
    wanted = f"a number of at most {precision - scale} digits before and {scale} behind the point"

    def of(value: object) -> object:
        whole = Decimal(value) if type(value) is int else None
        exact = _exact(value) if isinstance(value, str) else whole
        if exact is None or not _fits(exact, precision, scale):
            raise _mismatch(value, wanted)
        return exact.quantize(unit, context=_EXACT)

    return of


def _fits(exact: Decimal, precision: int, scale: int) -> bool:
    if not exact:
        return True
    if exact.adjusted() >= precision - scale:
        return False
    digits, exponent = exact.as_tuple().digits, int(exact.as_tuple().exponent)
    excess = -exponent - scale
    return excess <= 0 or (excess < len(digits) and not any(digits[-excess:]))


def _boolean(value: object) -> object:
    if type(value) is not bool:
        raise _mismatch(value, "true or false")
    return value


def _string(value: object) -> object:
    return unicode_text(text_of(value))


def unicode_text(text: str) -> str:
    """The text itself. Raises `UndecodableError` for one that UTF-8 cannot have."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UndecodableError(f"has half a surrogate pair at character {error.start}") from None
    return text


def _binary(value: object) -> object:
    if type(value) is not str:
        raise _mismatch(value, "a string in Base64")
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _mismatch(value, "a string in Base64") from None


def _date(value: object) -> object:
    return _from_text(value, value, pa.date32(), "a date such as 2024-05-31")


def _timestamp(value: object) -> object:
    """Microseconds since 1970 in UTC. A text without offset is UTC; digits behind microseconds are cut off."""
    found = _TIMESTAMP.fullmatch(value) if type(value) is str else None
    text = (found[1] + (found[2] or "")) if found else None
    arrow_type = pa.timestamp("us", "UTC" if found and found[2] else None)
    return _from_text(value, text, arrow_type, "a timestamp such as 2024-05-31T10:00:00.000Z")


def _timestamp_ntz(value: object) -> object:
    found = _TIMESTAMP.fullmatch(value) if type(value) is str else None
    text = found[1] if found and not found[2] else None
    wanted = "a timestamp without offset such as 2024-05-31T10:00:00.000"
    return _from_text(value, text, pa.timestamp("us"), wanted)


def _from_text(value: object, text: object, arrow_type: pa.DataType, wanted: str) -> object:
    """Arrow parses dates and times here as in the fast reader, so that both agree."""
    if type(text) is not str:
        raise _mismatch(value, wanted)
    try:
        return pa.scalar(text).cast(arrow_type).value
    except (pa.ArrowInvalid, UnicodeEncodeError):
        raise _mismatch(value, wanted) from None


def _nothing(value: object) -> object:
    if not is_untyped(value):
        raise UndecodableError(f"{shown(value)} has no type that a column could have")
    return None


def _mismatch(value: object, wanted: str) -> UndecodableError:
    match value:
        case None | bool():
            found = {None: "null", True: "true", False: "false"}[value]
        case dict():
            found = "an object"
        case list():
            found = "an array"
        case Number():
            found = shown(value)[1:].rstrip("'")
        case _:
            found = shown(value)
    return UndecodableError(f"is {found}, and not {wanted}")


_SCALARS: dict[type[st.DataType], Convert] = {
    st.NullType: _nothing,
    st.BooleanType: _boolean,
    st.FloatType: _float,
    st.DoubleType: _double,
    st.StringType: _string,
    st.BinaryType: _binary,
    st.DateType: _date,
    st.TimestampType: _timestamp,
    st.TimestampNTZType: _timestamp_ntz,
}
