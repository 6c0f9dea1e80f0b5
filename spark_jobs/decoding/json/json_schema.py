"""JSON Schema as Spark's type: what says which columns there are. What no column can hold becomes JSON text.

Source: https://json-schema.org/draft/2020-12/json-schema-validation, drafts 4 to 2020-12, and the `connect.type` of
Confluent's JSON Schema converter.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import types as st

from kafscale.errors import SettingError
from kafscale.lake.registry.documents import SchemaDocument, SchemaType
from spark_jobs.decoding.types import require_usable, same_but_for_case

_MAX_DEPTH: Final = 32
_SCALARS: dict[str, st.DataType] = {
    "string": st.StringType(),
    "integer": st.LongType(),
    "number": st.DoubleType(),
    "boolean": st.BooleanType(),
}
_CONNECT: dict[str, st.DataType] = {
    "int8": st.ByteType(),
    "int16": st.ShortType(),
    "int32": st.IntegerType(),
    "int64": st.LongType(),
    "float32": st.FloatType(),
    "float64": st.DoubleType(),
    "bytes": st.BinaryType(),
}
_FORMATS: dict[str, st.DataType] = {"date-time": st.TimestampType(), "date": st.DateType()}
_TEXT: Final = st.StringType()


def json_schema_type(document: SchemaDocument, what: str) -> st.DataType:
    """The type of values of the schema, every level optional: a record that lacks a field is the schema's affair.

    Raises `SettingError`, naming `what`, for a schema that is none or that has no columns.
    """
    if document.schema_type is not SchemaType.JSON:
        raise SettingError(f"{what}: is of type {document.schema_type}, and values are of format json")
    files = {
        name: _parsed(text, f"{what}, reference {name[:100]!r}") for name, text in document.references.items()
    }
    root = _parsed(document.text, what)
    found = _Reader(files, what).read(root, root, ())
    if not isinstance(found, st.StructType | st.MapType | st.ArrayType):
        raise SettingError(
            f"{what}: describes no object with properties; give the columns with --schema, or leave the registry out"
        )
    require_usable(found, what)
    return found


def title_of(text: str) -> str | None:
    """The title of a schema, which is the name of its type to serializers; None without one."""
    try:
        title = json.loads(text).get("title")
    except (ValueError, AttributeError, RecursionError):
        return None
    return title if isinstance(title, str) and title else None


def _parsed(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise SettingError(f"{what}: is no JSON Schema: {problem!s:.200}") from None


class _Reader:
    def __init__(self, files: Mapping[str, Any], what: str) -> None:
        self._files = files
        self._what = what

    def read(self, schema: Any, root: Any, within: tuple[str, ...]) -> st.DataType:
        """The type of a schema of the file `root`. `within`: the references that led here."""
        if not isinstance(schema, dict) or len(within) > _MAX_DEPTH:
            return _TEXT
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"], root, within)
        schema = _without_null(schema)
        if isinstance(schema.get("$ref"), str):
            return self._referred(schema["$ref"], root, within)
        kind = schema.get("type")
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, root, within)
        if kind == "array":
            items = schema.get("items")
            return (
                st.ArrayType(self.read(items, root, (*within, "[]")), True)
                if isinstance(items, dict)
                else _TEXT
            )
        return _scalar(schema, kind)

    def _object(self, schema: Mapping[str, Any], root: Any, within: tuple[str, ...]) -> st.DataType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            if len(properties) > 1 and same_but_for_case(list(properties)) and within:
                return _TEXT
            return st.StructType(
                [
                    st.StructField(name, self.read(one, root, (*within, name)), True)
                    for name, one in sorted(properties.items(), key=_place)
                ]
            )
        more = schema.get("additionalProperties")
        if isinstance(more, dict) and more:
            return st.MapType(st.StringType(), self.read(more, root, (*within, "{}")), True)
        return _TEXT

    def _referred(self, reference: str, root: Any, within: tuple[str, ...]) -> st.DataType:
        file, _, pointer = reference.partition("#")
        target_root = root if not file else self._files.get(file)
        step = f"{file}#{pointer}" if file else f"{id(root)}#{pointer}"
        if target_root is None or step in within:
            return _TEXT  # another registry's file, or a type that contains itself
        target = target_root
        for part in pointer.strip("/").split("/") if pointer.strip("/") else []:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or part not in target:
                raise SettingError(f"{self._what}: refers to {reference[:100]!r}, which is not there")
            target = target[part]
        return self.read(target, target_root, (*within, step))


def _place(item: tuple[str, Any]) -> tuple[float, str]:
    """Connect's order of fields, else by name, so that the same properties give the same columns."""
    index = item[1].get("connect.index") if isinstance(item[1], dict) else None
    return (index if isinstance(index, int) else float("inf"), item[0])


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The one branch beside null of `oneOf`, `anyOf`, `allOf` or a list of types; {} for more than one."""
    for name in ("oneOf", "anyOf", "allOf"):
        branches = schema.get(name)
        if isinstance(branches, list) and "properties" not in schema:
            present = [one for one in branches if one != {"type": "null"}]
            return present[0] if len(present) == 1 and isinstance(present[0], dict) else {}
    kinds = schema.get("type")
    if isinstance(kinds, list):
        present = [one for one in kinds if one != "null"]
        if set(present) == {"integer", "number"}:
            present = ["number"]
        return {**schema, "type": present[0]} if len(present) == 1 else {}
    return schema


def _scalar(schema: Mapping[str, Any], kind: object) -> st.DataType:
    connect = schema.get("connect.type")
    if isinstance(connect, str) and connect in _CONNECT and "title" not in schema:
        return _CONNECT[connect]
    if kind == "string" and isinstance(schema.get("format"), str):
        return _FORMATS.get(schema["format"], _TEXT)
    return _SCALARS.get(kind, _TEXT) if isinstance(kind, str) else _TEXT
