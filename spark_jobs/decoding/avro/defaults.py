"""Defaults of Avro schemas as the values that `pyarrow.array` takes for their column."""

from typing import Any

from spark_jobs.decoding.avro.logical import conversion
from spark_jobs.decoding.avro.model import Array, AvroType, Enumeration, Fixed, Map, Primitive, Record, Union
from spark_jobs.decoding.avro.types import is_one_column, present_branches


def default_value(avro_type: AvroType, default: Any) -> object:
    """The value that the JSON `default` stands for; fastavro has checked that it fits its type."""
    match avro_type:
        case Union():
            return _of_union(avro_type, default)
        case Record():
            return {
                field.name: default_value(field.type, default.get(field.name, field.default))
                for field in avro_type.fields
            }
        case Array():
            return [default_value(avro_type.items, item) for item in default]
        case Map():
            return {key: default_value(avro_type.values, item) for key, item in default.items()}
        case Enumeration():
            return default
        case Primitive() | Fixed():
            return _of_scalar(avro_type, default)


def _of_scalar(avro_type: Primitive | Fixed, default: Any) -> object:
    value = default
    if isinstance(avro_type, Fixed) or avro_type.kind == "bytes":
        value = default.encode("latin-1")
    elif avro_type.kind in ("float", "double"):
        value = float(default)
    convert = conversion(avro_type, avro_type)
    return value if convert is None else convert(value)


def _of_union(union: Union, default: Any) -> object:
    """The first branch that can have such a default (before Avro 1.12 it had to be the first of all)."""
    if default is None:
        return None
    branches = present_branches(union)
    index = next(index for index, branch in enumerate(branches) if _can_have(branch, default))
    value = default_value(branches[index], default)
    return value if is_one_column(branches) else {f"member{index}": value}


def _can_have(avro_type: AvroType, default: Any) -> bool:
    match avro_type:
        case Primitive(kind="boolean"):
            return isinstance(default, bool)
        case Primitive(kind="int" | "long"):
            return type(default) is int
        case Primitive(kind="float" | "double"):
            return type(default) in (int, float)
        case Record():
            return isinstance(default, dict) and all(
                field.name in default or field.has_default for field in avro_type.fields
            )
        case Map():
            return isinstance(default, dict)
        case Array():
            return isinstance(default, list)
        case Enumeration():
            return default in avro_type.symbols
        case _:
            return isinstance(default, str)
