"""Building blocks of the custom resources' JSON Schemas, with Kubernetes' extensions."""

from collections.abc import Mapping, Sequence
from typing import Any

Schema = dict[str, Any]


def section(
    description: str,
    properties: Mapping[str, Schema],
    *,
    required_names: Sequence[str] = (),
    rules: Sequence[tuple[str, str]] = (),
) -> Schema:
    """An object. `rules`: CEL expressions over `self`, each with the message for a violation."""
    found: Schema = {"type": "object", "description": description, "properties": dict(properties)}
    if required_names:
        found["required"] = list(required_names)
    if rules:
        found["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return found


def text(
    description: str, *, pattern: str | None = None, max_length: int | None = None, default: str | None = None
) -> Schema:
    """Non-empty text."""
    found: Schema = {"type": "string", "description": description, "minLength": 1}
    if pattern is not None:
        found["pattern"] = pattern
    if max_length is not None:
        found["maxLength"] = max_length
    return _with_default(found, default)


def choice(description: str, options: Sequence[str], *, default: str | None = None) -> Schema:
    """One of the options."""
    return _with_default({"type": "string", "description": description, "enum": list(options)}, default)


def duration(description: str, *, default: str | None = None) -> Schema:
    """A time such as 90s, 15m, 24h or 7d."""
    return text(
        f"{description} A number with ms, s, m, h or d.",
        pattern=r"^[0-9]{1,12}(ms|s|m|h|d)$",
        default=default,
    )


def integer(description: str, low: int, high: int, *, default: int | None = None) -> Schema:
    """A whole number."""
    found = {
        "type": "integer",
        "format": "int64",
        "description": description,
        "minimum": low,
        "maximum": high,
    }
    return _with_default(found, default)


def truth(description: str, *, default: bool | None = None) -> Schema:
    """true or false."""
    return _with_default({"type": "boolean", "description": description}, default)


def list_of(items: Schema, *, min_items: int = 0) -> Schema:
    """A list; the items' description becomes the list's."""
    found: Schema = {"type": "array", "items": items}
    if "description" in items:
        found["description"] = items["description"]
    if min_items:
        found["minItems"] = min_items
    return found


def quantities() -> Schema:
    """A container's requests and limits, with Kubernetes' own pattern for quantities."""
    quantity: Schema = {
        "type": ["integer", "string"],
        "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    }
    return section(
        "As in a container.",
        {
            "requests": {
                "type": "object",
                "description": "Reserved cpu, memory and others, such as 500m and 4Gi.",
                "additionalProperties": quantity,
            },
            "limits": {
                "type": "object",
                "description": "Upper limits.",
                "additionalProperties": quantity,
            },
        },
    )


def free_form(description: str) -> Schema:
    """An object that is passed through; Kubernetes validates it where it is used."""
    return {"type": "object", "description": description, "x-kubernetes-preserve-unknown-fields": True}


def structural(schema: Any) -> Any:
    """The same as Kubernetes takes it: what may be a number or text has a word of its own there.

    Descriptions stay. `additionalProperties: false` is left out beside properties, as it may not stand there:
    Kubernetes drops what it does not know, and kubectl refuses it (field validation).
    """
    if isinstance(schema, list):
        return [structural(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: structural(value) for name, value in schema.items()}
    if found.get("type") == ["integer", "string"]:
        del found["type"]
        found["x-kubernetes-int-or-string"] = True
    if "properties" in found and found.get("additionalProperties") is False:
        del found["additionalProperties"]
    return found


def _with_default(schema: Schema, default: object) -> Schema:
    return schema if default is None else {**schema, "default": default}
