"""Avro schemas as immutable values: names are resolved, recursive types are refused."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafscale.errors import SettingError

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Primitive:
    """One of `PRIMITIVES`. `logical` is the logical type's name or empty."""

    kind: str
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """`size` bytes."""

    name: str
    aliases: tuple[str, ...]
    size: int
    logical: str = ""
    precision: int = 0
    scale: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Enumeration:
    """One of the symbols; `default` (or None) replaces a writer's symbol that the reader does not know."""

    name: str
    aliases: tuple[str, ...]
    symbols: tuple[str, ...]
    default: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """A list of items of one type."""

    items: "AvroType"


@dataclass(frozen=True, slots=True, kw_only=True)
class Map:
    """Values of one type, each with a string as its key."""

    values: "AvroType"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A record's field. `default` is JSON and valid if `has_default`."""

    name: str
    aliases: tuple[str, ...]
    type: "AvroType"
    has_default: bool
    default: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Fields in the order in which they are written."""

    name: str
    aliases: tuple[str, ...]
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """A value of one of the branches."""

    branches: tuple["AvroType", ...]


AvroType = Primitive | Fixed | Enumeration | Array | Map | Record | Union


def model_of(parsed: Any, named: Mapping[str, Any], source: str) -> AvroType:
    """The model of a schema that fastavro has parsed. `named`: its named types by full name.

    Raises `SettingError`, naming `source`, if a type is recursive: no column can store it.
    """
    return _Reader(named, source).read(parsed, ())


def described(avro_type: AvroType) -> str:
    """The type for messages: `long (timestamp-millis)`."""
    match avro_type:
        case Primitive():
            return f"{avro_type.kind} ({avro_type.logical})" if avro_type.logical else avro_type.kind
        case Fixed() | Enumeration() | Record():
            return f"{type(avro_type).__name__.lower()} {avro_type.name}"
        case Union():
            return "union of " + ", ".join(map(described, avro_type.branches))
        case _:
            return type(avro_type).__name__.lower()


class _Reader:
    def __init__(self, named: Mapping[str, Any], source: str) -> None:
        self._named = named
        self._source = source

    def read(self, schema: Any, within: tuple[str, ...]) -> AvroType:
        if isinstance(schema, str):
            return Primitive(kind=schema) if schema in PRIMITIVES else self.read(self._named[schema], within)
        if isinstance(schema, list):
            return Union(branches=tuple(self.read(branch, within) for branch in schema))
        kind = schema["type"]
        match kind:
            case "array":
                return Array(items=self.read(schema["items"], within))
            case "map":
                return Map(values=self.read(schema["values"], within))
            case "record" | "error":
                return self._record(schema, within)
            case "enum":
                symbols = tuple(schema["symbols"])
                return Enumeration(**_names(schema), symbols=symbols, default=schema.get("default"))
            case "fixed":
                return Fixed(**_names(schema), size=schema["size"], **_logical(schema))
            case str() if kind in PRIMITIVES:
                return Primitive(kind=kind, **_logical(schema))
            case _:
                return self.read(kind, within)

    def _record(self, schema: Any, within: tuple[str, ...]) -> Record:
        name = schema["name"]
        if name in within:
            raise SettingError(f"{self._source}: record {name} contains itself, which no column can hold")
        names = [field["name"] for field in schema["fields"]]
        if len(set(names)) != len(names):
            raise SettingError(f"{self._source}: record {name} has two fields of one name")
        fields = [
            Field(
                name=field["name"],
                aliases=tuple(field.get("aliases", ())),
                type=self.read(field["type"], (*within, name)),
                has_default="default" in field,
                default=field.get("default"),
            )
            for field in schema["fields"]
        ]
        return Record(**_names(schema), fields=tuple(fields))


def _names(schema: Any) -> dict[str, Any]:
    return {"name": schema["name"], "aliases": tuple(schema.get("aliases", ()))}


def _logical(schema: Any) -> dict[str, Any]:
    logical = schema.get("logicalType")
    if not isinstance(logical, str):
        return {}
    return {"logical": logical, "precision": schema.get("precision", 0), "scale": schema.get("scale", 0)}
