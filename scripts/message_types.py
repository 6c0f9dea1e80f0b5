"""The types of the messages that handlers take and give: a `.pyi` file, from kafka-python's schemas.

kafka-python has type stubs of its own, but they take any name of a field where a message is built, and its zero
UUID is typed as one.
"""

from collections.abc import Iterator
from typing import Any, Final

from kafscale.protocol import api_messages

PATH: Final = "kafscale/protocol/api_messages.pyi"

_TYPES: Final = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes",
    "uuid": "UUID | None",
    "bitfield": "Set[int] | None",
}
_BASES: Final = ("Request", "Response", "Struct")

_HEAD: Final = '''\
"""Written by `python -m scripts.generate_docs`, from the schemas of the messages."""

from collections.abc import Set
from typing import ClassVar, dataclass_transform
from uuid import UUID

@dataclass_transform(kw_only_default=True)
class Struct: ...

class Request(Struct):
    API_KEY: ClassVar[int]

class Response(Struct):
    API_KEY: ClassVar[int]
    @classmethod
    def flexible_version_q(cls, version: int) -> bool: ...
    def encode(self, version: int) -> bytes: ...
'''


def message_types() -> str:
    """The whole file."""
    names = [name for name in vars(api_messages)["__all__"] if name not in _BASES]
    classes = ("\n".join(_class(getattr(api_messages, name), name, _base(name))) for name in names)
    return _HEAD + "".join(f"\n{lines}\n" for lines in classes)


def _base(name: str) -> str:
    return "Request" if name.endswith("Request") else "Response"


def _class(message_class: Any, name: str, base: str) -> Iterator[str]:
    """The lines of a class: those of its structs, then a line for each field."""
    fields = message_class._struct.fields.values()
    if not fields:
        yield f"class {name}({base}): ..."
        return
    yield f"class {name}({base}):"
    shared: set[str] = set()
    for field in fields:
        struct = field.array_of if field.is_array() else field
        if struct.is_struct() and struct.data_class.__name__ not in shared:
            shared.add(struct.data_class.__name__)
            for line in _class(struct.data_class, struct.data_class.__name__, "Struct"):
                yield f"    {line}" if line else line
            yield ""
    for field in fields:
        yield f"    {field.name}: {_type(field)} = ..."


def _type(field: Any) -> str:
    """As the decoder gives it and the encoder takes it; null in one version makes it so in all."""
    if field.is_array():
        element = field.array_of
        written = f"list[{_name(element)}]"
    else:
        written = _name(field)
    return f"{written} | None" if field._nullable_versions and not written.endswith("None") else written


def _name(field: Any) -> str:
    if field.is_struct():
        return str(field.data_class.__name__)
    return _TYPES[field.type_str]
