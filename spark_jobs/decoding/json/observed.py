"""The observed types of JSON values: a join of kinds that does not depend on their order."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from spark_jobs.decoding.json.parser import Number

MAX_TYPE_DEPTH = 32
"""Deeper levels stay JSON text: neither Spark nor a reader of the table copes with more."""
MAX_FIELDS_SEEN = 10_000
"""Per object; far above a table's limit, and a bound for topics that use keys as field names."""

BOOLEAN, INT, LONG, DECIMAL, DOUBLE, STRING, ARRAY, STRUCT = (
    "boolean",
    "int",
    "long",
    "decimal",
    "double",
    "string",
    "array",
    "struct",
)
_MAX_DECIMAL_DIGITS = 38
_LIMITS = ((INT, 1 << 31), (LONG, 1 << 63))


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The kinds of the values at one place. Empty for null. `digits`: of the longest whole number."""

    kinds: frozenset[str] = frozenset()
    digits: int = 0
    element: "Observed | None" = None
    fields: Mapping[str, "Observed"] = field(default_factory=dict)

    @property
    def is_untyped(self) -> bool:
        """True if only null, empty arrays and empty objects were observed."""
        return (
            self.kinds <= {ARRAY, STRUCT}
            and (self.element is None or self.element.is_untyped)
            and all(item.is_untyped for item in self.fields.values())
        )


NOTHING = Observed()
_ARRAY, _STRUCT, _DECIMAL = frozenset({ARRAY}), frozenset({STRUCT}), frozenset({DECIMAL})
_SEEN = {kind: Observed(kinds=frozenset({kind})) for kind in (BOOLEAN, DOUBLE, STRING)}


def observe(value: object, depth: int = 0) -> Observed:
    """The observed types of one parsed value."""
    match value:
        case None:
            return NOTHING
        case bool():
            return _SEEN[BOOLEAN]
        case int():
            return observed_whole(value)
        case Number():
            # No column can store a number beyond a double's range; NaN and Infinity are doubles.
            return _SEEN[DOUBLE] if value in ("Infinity", "-Infinity") or _is_double(value) else NOTHING
        case str():
            return _SEEN[STRING]
        case _ if depth >= MAX_TYPE_DEPTH:
            return _SEEN[STRING]
        case list():
            element = reduce(join, (observe(item, depth + 1) for item in value), NOTHING)
            return Observed(kinds=_ARRAY, element=element)
        case dict():
            fields = {name: observe(item, depth + 1) for name, item in value.items()}
            return Observed(kinds=_STRUCT, fields=_bounded(fields))
        case _:
            raise TypeError(type(value))


def join(one: Observed, other: Observed) -> Observed:
    """The join of both; commutative, associative and idempotent."""
    if one is other or other is NOTHING:
        return one
    if one is NOTHING:
        return other
    return Observed(
        kinds=one.kinds | other.kinds,
        digits=max(one.digits, other.digits),
        element=_join_elements(one.element, other.element),
        fields=_join_fields(one.fields, other.fields),
    )


def to_plain(observed: Observed) -> dict[str, Any]:
    """As JSON; `from_plain` is the inverse."""
    plain: dict[str, Any] = {"kinds": sorted(observed.kinds), "digits": observed.digits}
    if observed.element is not None:
        plain["element"] = to_plain(observed.element)
    if observed.fields:
        plain["fields"] = {name: to_plain(item) for name, item in observed.fields.items()}
    return plain


def from_plain(plain: dict[str, Any]) -> Observed:
    """The inverse of `to_plain`."""
    element = plain.get("element")
    return Observed(
        kinds=frozenset(plain["kinds"]),
        digits=plain["digits"],
        element=None if element is None else from_plain(element),
        fields={name: from_plain(item) for name, item in plain.get("fields", {}).items()},
    )


def observed_whole(number: int) -> Observed:
    """The kind of a whole number: the smallest type that can store it, if a column can."""
    digits = len(str(abs(number)))
    for kind, limit in _LIMITS:
        if -limit <= number < limit:
            return Observed(kinds=frozenset({kind}), digits=digits)
    return NOTHING if digits > _MAX_DECIMAL_DIGITS else Observed(kinds=_DECIMAL, digits=digits)


def _is_double(number: str) -> bool:
    return not math.isinf(float(number))


def _join_elements(one: Observed | None, other: Observed | None) -> Observed | None:
    if one is None or other is None:
        return one or other
    return join(one, other)


def _join_fields(one: Mapping[str, Observed], other: Mapping[str, Observed]) -> Mapping[str, Observed]:
    if one is other or not other:
        return one
    joined = dict(one)
    for name, item in other.items():
        mine = joined.get(name)
        joined[name] = item if mine is None else join(mine, item)
    return _bounded(joined)


def _bounded(fields: dict[str, Observed]) -> dict[str, Observed]:
    """The names that sort first: the same ones, in whatever order objects with ever new names are joined."""
    if len(fields) <= MAX_FIELDS_SEEN:
        return fields
    return {name: fields[name] for name in sorted(fields)[:MAX_FIELDS_SEEN]}
