"""The fields of the custom resources as rows of a table: path, type, default, meaning, legal values."""

from collections.abc import Iterator

from kafscale.operator.schema import cluster_schema, export_schema, topic_schema, user_schema
from kafscale.operator.schema.schema_parts import Schema

Row = tuple[str, ...]


def cluster_fields() -> Iterator[Row]:
    """The fields of KafscaleCluster's `spec`; docs/settings.md has the settings under `config`."""
    yield from _fields(cluster_schema.spec(), "", without=frozenset({"config"}))


def topic_fields() -> Iterator[Row]:
    """The fields of KafscaleTopic's `spec`."""
    yield from _fields(topic_schema.spec(), "")


def user_fields() -> Iterator[Row]:
    """The fields of KafscaleUser's `spec`."""
    yield from _fields(user_schema.spec(), "")


def export_fields() -> Iterator[Row]:
    """The fields of KafscaleExport's `spec`."""
    yield from _fields(export_schema.spec(), "")


def _fields(schema: Schema, above: str, without: frozenset[str] = frozenset()) -> Iterator[Row]:
    for name, field in schema["properties"].items():
        path = above + name
        required = name in schema.get("required", ())
        yield f"`{path}`", _type(field), _default(field, required), _meaning(field), _legal(field)
        if "properties" in field and path not in without:
            yield from _fields(field, f"{path}.")
        if "properties" in field.get("items", {}):
            yield from _fields(field["items"], f"{path}[].")


def _type(field: Schema) -> str:
    kind = field["type"]
    return f"list of {field['items']['type']}s" if kind == "array" else str(kind)


def _default(field: Schema, required: bool) -> str:
    if "default" in field:
        return (
            f"`{str(field['default']).lower() if isinstance(field['default'], bool) else field['default']}`"
        )
    return "required" if required else ""


def _meaning(field: Schema) -> str:
    rules = [f"({rule['message']})" for rule in field.get("x-kubernetes-validations", ())]
    return " ".join([field.get("description", ""), *rules]).strip()


def _legal(field: Schema) -> str:
    of = field["items"] if field["type"] == "array" else field
    if "enum" in of:
        return ", ".join(f"`{word}`" for word in of["enum"])
    if "minimum" in of:
        return f"{of['minimum']} to {of['maximum']}"
    if "pattern" in of:
        return f"`{of['pattern']}`"
    return f"up to {of['maxLength']} characters" if "maxLength" in of else ""
