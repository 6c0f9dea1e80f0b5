"""The schemas of an export: from the cache in the object store, else from the registry, asked once for each."""

import hashlib
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from kafscale.errors import KafscaleError
from kafscale.lake.registry.client import RegistryClient, RegistryError, RegistryUnavailableError
from kafscale.lake.registry.documents import (
    MAX_REFERENCES,
    FoundSchema,
    SchemaDocument,
    decode_document,
    decode_ids,
    encode_document,
    encode_ids,
    file_name,
)

logger = logging.getLogger(__name__)

MAX_IDS_OF_TOPIC: Final = 10_000


class SchemaStore(Protocol):
    """The folder of cached schemas, by the rest of the key."""

    def get(self, name: str) -> bytes | None:
        """The object, None if there is none. Raises `StoreError`."""
        ...

    def put(self, name: str, data: bytes) -> None:
        """Create or replace the object. Raises `StoreError`."""
        ...


class UnknownSubjectError(KafscaleError):
    """The registry has no such subject: nothing says which columns the table gets."""


@dataclass(slots=True)
class RegistrySchemas:
    """Schemas by id and by subject. `client`: opened when something is not cached. Use from one thread."""

    url: str
    store: SchemaStore
    open_client: Callable[[], RegistryClient]
    _known: dict[int, SchemaDocument] = field(default_factory=dict)
    _client: RegistryClient | None = None

    def close(self) -> None:
        """Close the connections to the registry."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def schema(self, schema_id: int) -> SchemaDocument | None:
        """The schema of this id; None if the registry has none, which is not remembered.

        Raises `RegistryError`, `SchemaDocumentError`, `StoreError`.
        """
        known = self._known.get(schema_id)
        if known is not None:
            return known
        name = self._name(f"ids/{schema_id}.json")
        data = self.store.get(name)
        if data is not None:
            self._known[schema_id] = decode_document(data, name)
        else:
            found = self._asked().schema(schema_id)
            if found is None:
                return None
            self._keep(found, schema_id)
        return self._known[schema_id]

    def latest(self, subject: str) -> SchemaDocument:
        """The newest schema of a subject; the newest known one while the registry does not answer.

        Raises `UnknownSubjectError`, `RegistryError`, `SchemaDocumentError`, `StoreError`.
        """
        name = self._name(f"subjects/{file_name(subject)}.json")
        try:
            found = self._asked().version(subject, None)
        except RegistryUnavailableError as problem:
            data = self.store.get(name)
            ids = [] if data is None else decode_ids(data, "latest")
            known = self.schema(ids[0]) if ids else None
            if known is None:
                raise
            logger.warning("%s; going on with schema %d of %s, which is cached", problem, ids[0], subject)
            return known
        if found is None or found.schema_id is None:
            raise UnknownSubjectError(
                f"the schema registry {self.url} has no subject {subject!r}: name the right one with "
                "--schema-subject, or give the schema to read with as --schema-file"
            )
        if (
            found.schema_id not in self._known
            and self.store.get(self._name(f"ids/{found.schema_id}.json")) is None
        ):
            self._keep(found, found.schema_id)
        self.store.put(name, encode_ids({"subject": subject, "latest": [found.schema_id]}))
        document = self.schema(found.schema_id)
        assert document is not None, "it is cached"
        return document

    def ids_of(self, topic: str) -> list[int]:
        """The ids that values of the topic had so far. Raises `StoreError`."""
        data = self.store.get(self._name(f"topics/{topic}.json"))
        return [] if data is None else decode_ids(data, "ids")

    def remember(self, topic: str, ids: Collection[int]) -> None:
        """Keep the ids for the next run, which then has their schemas from the start. Raises `StoreError`."""
        kept = sorted(ids)[-MAX_IDS_OF_TOPIC:]
        self.store.put(self._name(f"topics/{topic}.json"), encode_ids({"topic": topic, "ids": kept}))

    def _name(self, rest: str) -> str:
        """Ids mean something else in another registry, so each has a folder of its own."""
        return f"{hashlib.sha256(self.url.rstrip('/').encode()).hexdigest()[:16]}/{rest}"

    def _asked(self) -> RegistryClient:
        if self._client is None:
            self._client = self.open_client()
        return self._client

    def _keep(self, found: FoundSchema, schema_id: int) -> None:
        references: dict[str, str] = {}
        self._collect(found, references, ())
        document = SchemaDocument(
            schema_id=schema_id, schema_type=found.schema_type, text=found.text, references=references
        )
        self.store.put(self._name(f"ids/{schema_id}.json"), encode_document(document))
        self._known[schema_id] = document

    def _collect(self, found: FoundSchema, into: dict[str, str], within: tuple[str, ...]) -> None:
        """Put the texts of everything that `found` refers to into `into`, each after what it needs."""
        for one in found.references:
            if one.name in within:
                raise RegistryError(
                    f"the schema registry {self.url} has a schema that refers to itself by {one.name!r}: register it "
                    "without the circle"
                )
            if one.name in into:
                continue
            if len(within) + len(into) >= MAX_REFERENCES:
                raise RegistryError(f"a schema of {self.url} has more than {MAX_REFERENCES} references")
            referred = self._asked().version(one.subject, one.version)
            if referred is None:
                raise RegistryError(
                    f"the schema registry {self.url} has no version {one.version} of subject {one.subject!r}, which "
                    "one of its schemas refers to: register it again"
                )
            self._collect(referred, into, (*within, one.name))
            into[one.name] = referred.text


def known_schemas(schemas: RegistrySchemas, ids: Iterable[int]) -> dict[int, SchemaDocument]:
    """Those of the ids that there are. Raises `RegistryError`, `SchemaDocumentError`, `StoreError`."""
    found = {number: schemas.schema(number) for number in ids}
    return {number: document for number, document in found.items() if document is not None}
