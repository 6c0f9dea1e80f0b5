"""Joins the known type of a table's values with the types observed in a batch."""

import re
from collections.abc import Mapping
from functools import reduce

from pyspark.sql import types as st

from spark_jobs.decoding.json import observed as seen
from spark_jobs.decoding.json.observed import Observed, join
from spark_jobs.decoding.types import folded, nullable

_MAX_PRECISION = 38
_MAX_NAME_CHARACTERS = 255
_NO_NAME = re.compile("[\0\ud800-\udfff]")
_WHOLE = frozenset({seen.INT, seen.LONG, seen.DECIMAL})
_NUMBERS = _WHOLE | {seen.DOUBLE}


def evolved(known: st.DataType | None, observed: Observed, max_fields: int) -> st.DataType:
    """The type to decode with: `known` with new fields and with Iceberg's promotions.

    What Iceberg cannot promote stays. New fields come behind the known ones, in the order of their names, up to
    `max_fields` in all, nested ones included. NullType: nothing says a type yet.
    """
    if known is None or isinstance(known, st.NullType):
        kinds = observed.kinds
        # A single other value beside objects must not turn a whole topic into text.
        root = (
            Observed(kinds=frozenset({seen.STRUCT}), fields=observed.fields)
            if seen.STRUCT in kinds
            else observed
        )
        return _Evolution(max_fields).new(root) or st.NullType()
    budget = _Evolution(max_fields - _field_count(known))
    return budget.known(nullable(known), observed)


class _Evolution:
    def __init__(self, fields_left: int) -> None:
        self._fields_left = fields_left

    def known(self, known: st.DataType, observed: Observed) -> st.DataType:
        match known:
            case st.StructType():
                return self._struct(known, observed.fields)
            case st.ArrayType() if observed.element is not None:
                return st.ArrayType(self.known(known.elementType, observed.element), True)
            case st.MapType():
                value = reduce(join, observed.fields.values(), seen.NOTHING)
                return st.MapType(known.keyType, self.known(known.valueType, value), True)
            case st.IntegerType() if seen.LONG in observed.kinds:
                return st.LongType()
            case st.FloatType() if seen.DOUBLE in observed.kinds:
                return st.DoubleType()
            case st.DecimalType() if observed.kinds & _WHOLE:
                precision = max(known.precision, observed.digits + known.scale)
                return st.DecimalType(min(precision, _MAX_PRECISION), known.scale)
            case _:
                return known

    def new(self, observed: Observed) -> st.DataType | None:
        """None if nothing indicates a type, or no more fields may be added."""
        kinds = observed.kinds
        if kinds == {seen.STRUCT}:
            struct = self._struct(st.StructType(), observed.fields)
            return struct if struct.fields else None
        if kinds == {seen.ARRAY}:
            element = None if observed.element is None else self.new(observed.element)
            return None if element is None else st.ArrayType(element, True)
        return None if observed.is_untyped else _scalar(observed)

    def _struct(self, known: st.StructType, observed: Mapping[str, Observed]) -> st.StructType:
        by_name = _by_name_but_for_case(observed)
        fields = []
        for field in known.fields:
            _, found = by_name.pop(folded(field.name), (field.name, seen.NOTHING))
            fields.append(st.StructField(field.name, self.known(field.dataType, found), True))
        for name, found in _new_fields(by_name):
            if self._fields_left <= 0:
                break
            self._fields_left -= 1
            data_type = self.new(found)
            if data_type is None:
                self._fields_left += 1
            else:
                fields.append(st.StructField(name, data_type, True))
        return st.StructType(fields)


def _new_fields(by_name: Mapping[str, tuple[str, Observed]]) -> list[tuple[str, Observed]]:
    usable = [item for item in by_name.values() if _can_be_a_column(item[0])]
    return sorted(usable, key=lambda item: item[0])


def _can_be_a_column(name: str) -> bool:
    """True if the name is neither empty nor too long, and has no half of a surrogate pair and no NUL."""
    return 0 < len(name) <= _MAX_NAME_CHARACTERS and _NO_NAME.search(name) is None


def _scalar(observed: Observed) -> st.DataType:
    kinds = observed.kinds
    if kinds == {seen.BOOLEAN}:
        return st.BooleanType()
    if kinds <= _NUMBERS:
        if seen.DOUBLE in kinds:
            return st.DoubleType()
        return st.DecimalType(observed.digits, 0) if seen.DECIMAL in kinds else st.LongType()
    return st.StringType()


def _by_name_but_for_case(observed: Mapping[str, Observed]) -> dict[str, tuple[str, Observed]]:
    """Fields by folded name, with the spelling that sorts first."""
    by_name: dict[str, tuple[str, Observed]] = {}
    for name in sorted(observed):
        spelling, found = by_name.get(folded(name), (name, seen.NOTHING))
        by_name[folded(name)] = spelling, join(found, observed[name])
    return by_name


def _field_count(data_type: st.DataType) -> int:
    match data_type:
        case st.StructType():
            return len(data_type.fields) + sum(_field_count(field.dataType) for field in data_type.fields)
        case st.ArrayType():
            return _field_count(data_type.elementType)
        case st.MapType():
            return _field_count(data_type.valueType)
        case _:
            return 0
