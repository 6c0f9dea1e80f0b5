"""Casts the table of Arrow's JSON reader to a column of the wanted type, or refuses."""

import numpy as np
import pyarrow as pa
from pyspark.sql import types as st

from spark_jobs.decoding.types import arrow_type, folded

_AS_TEXT = (st.DateType, st.TimestampNTZType)
_NOT_READ = (st.BinaryType, st.MapType, st.NullType)


def reading_schema(data_type: st.DataType) -> pa.Schema | None:
    """The schema to read objects with; None if Arrow's reader cannot be used for such a type."""
    if not isinstance(data_type, st.StructType):
        return None
    fields = [(field.name, _reading_type(field.dataType)) for field in data_type.fields]
    return None if any(kind is None for _, kind in fields) else pa.schema(fields)


def _reading_type(data_type: st.DataType) -> pa.DataType | None:
    match data_type:
        case st.StructType():
            schema = reading_schema(data_type)
            return None if schema is None else pa.struct(list(schema))
        case st.ArrayType():
            element = _reading_type(data_type.elementType)
            return None if element is None else pa.list_(element)
        case _ if isinstance(data_type, _NOT_READ):
            return None
        case _:
            return pa.string() if isinstance(data_type, _AS_TEXT) else arrow_type(data_type)


def shaped(table: pa.Table, data_type: st.StructType) -> pa.Array | None:
    """The table's rows as structs of `data_type`.

    None where a field beyond the type holds something, a required one is null, or a text is no date: there
    every row is looked at by itself.
    """
    columns = [
        column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in table.columns
    ]
    rows = pa.StructArray.from_arrays(columns, fields=list(table.schema))
    found = _shaped(rows, data_type)
    if found is None:
        return None
    try:
        return found.cast(arrow_type(data_type))
    except pa.ArrowException:
        return None


def _shaped(array: pa.Array, data_type: st.DataType) -> pa.Array | None:
    match data_type:
        case st.StructType():
            return _shaped_struct(array, data_type)
        case st.ArrayType():
            values = _shaped(array.values, data_type.elementType)
            if values is None or (values.null_count and not data_type.containsNull):
                return None
            return array if values.type == array.type.value_type else _list_like(array, values)
        case _:
            return array


def _shaped_struct(array: pa.Array, data_type: st.StructType) -> pa.Array | None:
    kind = array.type
    if _has_more(kind, data_type):
        return None
    children = []
    for field in data_type.fields:
        child = _shaped(array.field(field.name), field.dataType)
        if child is None or (child.null_count and not field.nullable):
            return None
        children.append(child)
    mask = array.is_null() if array.null_count else None
    fields = [pa.field(name, child.type) for name, child in zip(data_type.names, children, strict=True)]
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _has_more(kind: pa.DataType, data_type: st.StructType) -> bool:
    """True if a field beyond the type has a value, or has a name of the type's in another case."""
    wanted = set(data_type.names)
    but_for_case = set(map(folded, wanted))
    others = [field for field in kind if field.name not in wanted]
    return any(is_informative(field.type) or folded(field.name) in but_for_case for field in others)


def _list_like(array: pa.Array, values: pa.Array) -> pa.Array:
    mask = array.is_null() if array.null_count else None
    offsets = pa.array(np.asarray(array.offsets), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def is_informative(kind: pa.DataType) -> bool:
    """True if an inferred type is more than null, empty arrays and empty objects."""
    if pa.types.is_struct(kind):
        return any(is_informative(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return is_informative(kind.value_type)
    return not pa.types.is_null(kind)
