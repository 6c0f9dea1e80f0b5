"""Spark's types as Arrow's, and the types that a decoded value can have."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import types as st

from kafscale.errors import SettingError

_SCALARS: dict[type[st.DataType], pa.DataType] = {
    st.NullType: pa.null(),
    st.BooleanType: pa.bool_(),
    st.ByteType: pa.int8(),
    st.ShortType: pa.int16(),
    st.IntegerType: pa.int32(),
    st.LongType: pa.int64(),
    st.FloatType: pa.float32(),
    st.DoubleType: pa.float64(),
    st.StringType: pa.string(),
    st.BinaryType: pa.binary(),
    st.DateType: pa.date32(),
    st.TimestampType: pa.timestamp("us", "UTC"),
    st.TimestampNTZType: pa.timestamp("us"),
}

LEGAL = (
    "boolean, tinyint, smallint, int, bigint, float, double, decimal, string, binary, date, timestamp, "
    "timestamp_ntz, array, map<string, ...> and struct"
)


def arrow_type(data_type: st.DataType) -> pa.DataType:
    """The Arrow type that Spark takes for `data_type`; every level may be null."""
    match data_type:
        case st.StructType():
            return pa.struct([(field.name, arrow_type(field.dataType)) for field in data_type.fields])
        case st.ArrayType():
            return pa.list_(arrow_type(data_type.elementType))
        case st.MapType():
            return pa.map_(arrow_type(data_type.keyType), arrow_type(data_type.valueType))
        case st.DecimalType():
            return pa.decimal128(data_type.precision, data_type.scale)
        case _:
            return _SCALARS[type(data_type)]


def nullable(data_type: st.DataType) -> st.DataType:
    """`data_type` with every level optional, so that a table of that type can still evolve."""
    match data_type:
        case st.StructType():
            return st.StructType(
                [st.StructField(field.name, nullable(field.dataType), True) for field in data_type.fields]
            )
        case st.ArrayType():
            return st.ArrayType(nullable(data_type.elementType), True)
        case st.MapType():
            return st.MapType(nullable(data_type.keyType), nullable(data_type.valueType), True)
        case _:
            return data_type


def parts(data_type: st.DataType) -> Iterator[st.DataType]:
    """`data_type` and everything in it, outermost first."""
    yield data_type
    match data_type:
        case st.StructType():
            for field in data_type.fields:
                yield from parts(field.dataType)
        case st.ArrayType():
            yield from parts(data_type.elementType)
        case st.MapType():
            yield from parts(data_type.keyType)
            yield from parts(data_type.valueType)


def require_usable(data_type: st.DataType, source: str, *, text_keys: bool = True) -> None:
    """Raise `SettingError` if the schema from `source` has a type that values cannot have or tables cannot store.

    `text_keys`: maps have strings as keys.
    """
    for part in parts(data_type):
        problem = _problem(part, text_keys=text_keys)
        if problem:
            raise SettingError(f"{source}: {problem}; legal are {LEGAL}")


def folded(name: str) -> str:
    """The name as it is compared: names with the same result are one to Spark, which compares as Java's
    `equalsIgnoreCase` does, letter by letter.
    """
    return name.lower() if name.isascii() else "".join(map(_folded_letter, name))


def _folded_letter(letter: str) -> str:
    upper = letter.upper()
    return (upper if len(upper) == 1 else letter).lower()[0]


def same_but_for_case(names: list[str]) -> tuple[str, str] | None:
    """Two of `names` that Spark and Iceberg's catalogs cannot tell apart, or None."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(folded(name), name)
        if other is not name:
            return other, name
    return None


def _problem(part: st.DataType, *, text_keys: bool) -> str:
    match part:
        case st.StructType() if not part.fields:
            return "a struct without fields cannot be stored"
        case st.StructType():
            clash = same_but_for_case(part.names)
            return f"the fields {clash[0]!r} and {clash[1]!r} differ only in case" if clash else ""
        case st.MapType() if text_keys and not isinstance(part.keyType, st.StringType):
            return f"{part.simpleString()} has keys that are no strings"
        case st.ArrayType() | st.MapType() | st.DecimalType():
            return ""
        case st.NullType():
            return "the type void has no values"
        case _ if type(part) in _SCALARS:
            return ""
        case _:
            return f"the type {part.simpleString()} is not supported"
