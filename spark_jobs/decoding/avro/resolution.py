"""Schema resolution: a reader for what one schema wrote, with the types of another.

Source: https://avro.apache.org/docs/1.12.0/specification/#schema-resolution
"""

from kafscale.errors import SettingError
from spark_jobs.decoding.avro import reading
from spark_jobs.decoding.avro.defaults import default_value
from spark_jobs.decoding.avro.logical import MismatchError, conversion
from spark_jobs.decoding.avro.model import (
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    described,
)
from spark_jobs.decoding.avro.reading import Read
from spark_jobs.decoding.avro.types import is_one_column, present_branches

_PRIMITIVES: dict[str, Read] = {
    "null": reading.read_null,
    "boolean": reading.read_boolean,
    "int": reading.read_int,
    "long": reading.read_long,
    "float": reading.read_float,
    "double": reading.read_double,
    "bytes": reading.read_bytes,
    "string": reading.read_string,
}
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def reader_of(writer: AvroType, reader: AvroType, what: str) -> Read:
    """A function that reads a value of `writer` as `pyarrow.array` takes it for the column of `reader`.

    Raises `SettingError`, beginning with `what`, if no value could ever be read.
    """
    try:
        return _resolve(writer, reader)
    except MismatchError as mismatch:
        raise SettingError(f"{what}: value{mismatch.path}: {mismatch.problem}") from None


def _resolve(writer: AvroType, reader: AvroType) -> Read:
    if isinstance(writer, Union):
        return _from_union(writer, reader)
    if isinstance(reader, Union):
        return _to_union(writer, reader)
    match writer, reader:
        case (Record(), Record()):
            return _record(writer, reader)
        case (Array(), Array()):
            return reading.array_reader(_inside("[]", writer.items, reader.items))
        case (Map(), Map()):
            return reading.map_reader(_inside("{}", writer.values, reader.values))
        case (Enumeration(), Enumeration()):
            return _enumeration(writer, reader)
        case (Primitive(), Primitive()) if reader.kind in (writer.kind, *_PROMOTIONS.get(writer.kind, ())):
            return _converted(_promoted(writer.kind, reader.kind), writer, reader)
        case (Fixed(), Fixed()) if writer.size == reader.size:
            return _converted(reading.fixed_reader(writer.size), writer, reader)
        case _:
            raise MismatchError(f"{described(writer)} cannot be read as {described(reader)}")


def _from_union(writer: Union, reader: AvroType) -> Read:
    """A branch that the reader cannot take is a problem of the values that use it, not of the schema."""
    readers: list[Read] = []
    problems: list[str] = []
    for branch in writer.branches:
        try:
            readers.append(_resolve(branch, reader))
        except MismatchError as mismatch:
            problems.append(f"{mismatch.path}: {mismatch.problem}" if mismatch.path else mismatch.problem)
            readers.append(reading.failing_reader(f"is {described(branch)}: {problems[-1]}"))
    if len(problems) == len(writer.branches):
        raise MismatchError("; ".join(problems) or "the union is empty")
    return reading.choice_reader(readers, "union branch")


def _to_union(writer: AvroType, reader: Union) -> Read:
    branches = present_branches(reader)
    if writer == Primitive(kind="null"):
        if len(branches) == len(reader.branches):
            raise MismatchError(f"null cannot be read as {described(reader)}")
        return reading.read_null
    chosen = _best_branch(writer, branches)
    if chosen is None:
        raise MismatchError(f"{described(writer)} cannot be read as {described(reader)}")
    read = _resolve(writer, branches[chosen])
    if is_one_column(branches):
        return read
    member = f"member{chosen}"
    return reading.mapped_reader(read, lambda value: {member: value})


def _best_branch(writer: AvroType, branches: list[AvroType]) -> int | None:
    """The index of the branch of the same type and name; else of the first that can read the writer's type."""
    readable = []
    for index, branch in enumerate(branches):
        try:
            _resolve(writer, branch)
        except MismatchError:
            continue
        if _is_same_kind(writer, branch):
            return index
        readable.append(index)
    return readable[0] if readable else None


def _is_same_kind(writer: AvroType, reader: AvroType) -> bool:
    if isinstance(writer, Primitive) and isinstance(reader, Primitive):
        return writer.kind == reader.kind
    if isinstance(writer, Record | Enumeration | Fixed) and isinstance(reader, Record | Enumeration | Fixed):
        names = {reader.name, *reader.aliases}
        return writer.name in names or _simple(writer.name) in {_simple(name) for name in names}
    return type(writer) is type(reader)


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _inside(step: str, writer: AvroType, reader: AvroType) -> Read:
    try:
        return _resolve(writer, reader)
    except MismatchError as mismatch:
        raise mismatch.within(step) from None


def _record(writer: Record, reader: Record) -> Read:
    """Fields by name or by the reader's aliases; a field that only the reader has needs a default."""
    by_written_name: dict[str, Field] = {}
    missing: list[Field] = []
    written = {field.name for field in writer.fields}
    for field in reader.fields:
        source = next((name for name in (field.name, *field.aliases) if name in written), None)
        if source is None or source in by_written_name:
            missing.append(field)
        else:
            by_written_name[source] = field
    template: dict[str, object] = {}
    for field in missing:
        if not field.has_default:
            raise MismatchError("is not written, and has no default to read instead", f".{field.name}")
        template[field.name] = default_value(field.type, field.default)
    readers: list[tuple[str, Read]] = []
    for field in writer.fields:
        wanted = by_written_name.get(field.name)
        if wanted is None:
            # Read only to find its end. pyarrow.array ignores names that a struct does not have.
            readers.append((_unused(field.name, reader), _resolve(field.type, field.type)))
        else:
            readers.append((wanted.name, _inside(f".{field.name}", field.type, wanted.type)))
    return reading.record_reader(readers, template)


def _unused(name: str, reader: Record) -> str:
    taken = {field.name for field in reader.fields}
    while name in taken:
        name = f"{name}'"
    return name


def _enumeration(writer: Enumeration, reader: Enumeration) -> Read:
    def symbol(name: str) -> Read:
        known = name if name in reader.symbols else reader.default
        if known is None:
            return reading.failing_reader(f"is the symbol {name}, which {described(reader)} does not have")
        return lambda _data, position: (known, position)

    return reading.choice_reader([symbol(name) for name in writer.symbols], "symbol")


def _promoted(written: str, wanted: str) -> Read:
    if {written, wanted} == {"string", "bytes"}:
        return _PRIMITIVES[wanted]
    if wanted in ("float", "double") and written in ("int", "long"):
        return reading.mapped_reader(_PRIMITIVES[written], float)  # type: ignore[arg-type]
    return _PRIMITIVES[written]


def _converted(read: Read, writer: Primitive | Fixed, reader: Primitive | Fixed) -> Read:
    convert = conversion(writer, reader)
    return read if convert is None else reading.mapped_reader(read, convert)
