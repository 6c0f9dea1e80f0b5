"""Avro schemas for Hypothesis, each with a strategy for its values, as fastavro writes and reads them."""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st


@dataclass(frozen=True)
class Case:
    """`schema` in JSON; names in it are unique by the number they get."""

    schema: Any
    values: st.SearchStrategy[Any]


_SCALARS = [
    Case("boolean", st.booleans()),
    Case("int", st.integers(-(2**31), 2**31 - 1)),
    Case("long", st.integers(-(2**63), 2**63 - 1)),
    Case("float", st.floats(width=32)),
    Case("double", st.floats()),
    Case("bytes", st.binary(max_size=5)),
    Case("string", st.text(max_size=5)),
]


@st.composite
def cases(draw: st.DrawFn, depth: int = 2, number: str = "r") -> Case:
    """A schema that a column can be made of."""
    kinds = ["scalar", "enum", "fixed"] + (["array", "map", "record", "optional", "union"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    if kind == "array":
        item = draw(cases(depth - 1, number + "i"))
        return Case({"type": "array", "items": item.schema}, st.lists(item.values, max_size=3))
    if kind == "map":
        item = draw(cases(depth - 1, number + "v"))
        return Case(
            {"type": "map", "values": item.schema},
            st.dictionaries(st.text(max_size=3), item.values, max_size=3),
        )
    if kind == "record":
        return draw(records(depth - 1, number))
    if kind == "optional":
        item = draw(cases(0, number + "o"))
        nulls = ["null", item.schema] if draw(st.booleans()) else [item.schema, "null"]
        return Case(nulls, st.none() | item.values)
    if kind == "union":
        return Case(
            ["null", "string", "long", "double"], st.none() | st.text(max_size=3) | st.floats(allow_nan=False)
        )
    if kind == "enum":
        return Case(
            {"type": "enum", "name": f"E{number}", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")
        )
    if kind == "fixed":
        return Case({"type": "fixed", "name": f"F{number}", "size": 3}, st.binary(min_size=3, max_size=3))
    return draw(st.sampled_from(_SCALARS))


@st.composite
def records(draw: st.DrawFn, depth: int = 2, number: str = "r") -> Case:
    """A record of one to four fields."""
    names = draw(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True))
    fields = {name: draw(cases(depth, number + name)) for name in names}
    schema = {
        "type": "record",
        "name": f"R{number}",
        "fields": [{"name": name, "type": field.schema} for name, field in fields.items()],
    }
    return Case(schema, st.fixed_dictionaries({name: field.values for name, field in fields.items()}))
