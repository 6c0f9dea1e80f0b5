"""A schema with everything that it refers to, and its stored form. Pure. Format: docs/format/schema-cache.md."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kafscale.errors import KafscaleError

VERSION: Final = 1
MAX_ID: Final = 2**31 - 1
MAX_SCHEMA_CHARACTERS: Final = 4 * 1024 * 1024
MAX_REFERENCES: Final = 200


class SchemaType(StrEnum):
    """The kinds of schemas, as registries name them."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class SchemaDocumentError(KafscaleError):
    """A text is not what a registry or the cache should have there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The name that a schema uses for a version of another subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSchema:
    """A schema as a registry answers, its references by name only. `schema_id` is None where the answer has none."""

    schema_id: int | None
    schema_type: SchemaType
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDocument:
    """A schema by its id. `references`: the texts of all that it refers to, by name, each after what it needs."""

    schema_id: int
    schema_type: SchemaType
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


def read_answer(fields: Any, schema_id: int | None) -> FoundSchema:
    """The schema in an answer's JSON. `schema_id`: the one that was asked for, None if the answer says which it is.

    Raises `SchemaDocumentError`.
    """
    if not isinstance(fields, dict) or not isinstance(fields.get("schema"), str):
        raise SchemaDocumentError("has no text `schema`")
    if len(fields["schema"]) > MAX_SCHEMA_CHARACTERS:
        raise SchemaDocumentError(f"has a schema of more than {MAX_SCHEMA_CHARACTERS:,} characters")
    found_id = schema_id if schema_id is not None else fields.get("id")
    if found_id is not None and not _is_number(found_id, MAX_ID):
        raise SchemaDocumentError(f"has the id {_cut(found_id)}, and ids are whole numbers")
    references = fields.get("references") or []
    if not isinstance(references, list) or len(references) > MAX_REFERENCES:
        raise SchemaDocumentError(f"has references that are no list of at most {MAX_REFERENCES}")
    return FoundSchema(
        schema_id=found_id,
        schema_type=_schema_type(fields.get("schemaType") or SchemaType.AVRO),
        text=fields["schema"],
        references=tuple(map(_reference, references)),
    )


def _schema_type(text: object) -> SchemaType:
    try:
        return SchemaType(str(text))
    except ValueError:
        raise SchemaDocumentError(f"has the type {_cut(text)}; known are {', '.join(SchemaType)}") from None


def _reference(fields: object) -> Reference:
    if isinstance(fields, dict):
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return Reference(name=name, subject=subject, version=version)
    raise SchemaDocumentError("has a reference without name, subject and version")


def encode_document(document: SchemaDocument) -> bytes:
    """The stored bytes."""
    return json.dumps(
        {
            "version": VERSION,
            "id": document.schema_id,
            "type": document.schema_type.value,
            "schema": document.text,
            "references": [[name, text] for name, text in document.references.items()],
        },
        indent=1,
    ).encode()


def decode_document(data: bytes, key: str) -> SchemaDocument:
    """The document that the cache has under `key`. Raises `SchemaDocumentError`, which names it."""
    try:
        fields = json.loads(data)
        if fields["version"] != VERSION:
            raise SchemaDocumentError(
                f"{key} has version {_cut(fields['version'])}; this program knows {VERSION}: use the version of "
                "Kafscale that wrote it, or a newer one"
            )
        pairs = [(_text(name), _text(text)) for name, text in fields["references"]]
        return SchemaDocument(
            schema_id=int(fields["id"]),
            schema_type=SchemaType(fields["type"]),
            text=_text(fields["schema"]),
            references=dict(pairs),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise SchemaDocumentError(
            f"{key} is no cached schema ({problem!r:.200}): delete it, to have it asked for"
        ) from None


def encode_ids(ids: Mapping[str, Any]) -> bytes:
    """The stored bytes of what a topic or subject used last: `ids` and `latest`."""
    return json.dumps({"version": VERSION, **ids}).encode()


def decode_ids(data: bytes, name: str) -> list[int]:
    """The ids under `name`. Anything else counts as none: they are only a hint to what is needed."""
    try:
        fields = json.loads(data)
        found = fields[name] if fields["version"] == VERSION else []
        return [one for one in found if _is_number(one, MAX_ID)]
    except (ValueError, KeyError, TypeError):
        return []


_UNSAFE = re.compile(r"[^a-zA-Z0-9._-]")


def file_name(text: str) -> str:
    """`text` as one part of a key: other characters as `=` and their bytes in hex. Distinct for distinct texts."""
    return _UNSAFE.sub(lambda found: "".join(f"={byte:02x}" for byte in found[0].encode()), text)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r:.60} is no text")
    return value


def _is_number(value: object, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def _cut(value: object) -> str:
    return f"{value!r:.60}"
