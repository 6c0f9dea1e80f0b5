"""Schemas with a cache: each is asked for once, and a registry that is away is not missed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.lake.registry.client import (
    RegistryAccess,
    RegistryClient,
    RegistryError,
    RegistryUnavailableError,
)
from kafscale.lake.registry.documents import SchemaDocumentError, SchemaType, file_name
from kafscale.lake.registry.object_cache import ObjectSchemaStore
from kafscale.lake.registry.schemas import RegistrySchemas, UnknownSubjectError, known_schemas
from kafscale.settings.broker import Settings
from tests.support.schema_registry import SchemaRegistry, schema_registry


class MemorySchemaStore:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def put(self, name: str, data: bytes) -> None:
        self.objects[name] = data


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


@pytest.fixture
def store() -> MemorySchemaStore:
    return MemorySchemaStore()


def schemas_of(registry: SchemaRegistry, store: object) -> RegistrySchemas:
    access = RegistryAccess(url=registry.url)
    return RegistrySchemas(registry.url, store, lambda: RegistryClient(access, sleep=lambda _: None))  # type: ignore[arg-type]


def away(registry: SchemaRegistry) -> None:
    registry.fault = lambda _: (503, b"", {})


def test_a_schema_is_asked_for_once_in_the_life_of_an_export(
    registry: SchemaRegistry, store: MemorySchemaStore
) -> None:
    registry.register("city", '"string"')
    registry.register("address", '"int"', references=[("City", "city", 1)])
    number = registry.register(
        "orders-value", '"long"', references=[("Address", "address", 1), ("City", "city", 1)]
    )
    found = schemas_of(registry, store).schema(number)
    assert found is not None
    assert found.schema_type is SchemaType.AVRO
    assert list(found.references.items()) == [("City", '"string"'), ("Address", '"int"')], (
        "each after what it needs"
    )
    asked = len(registry.asked)
    away(registry)
    assert schemas_of(registry, store).schema(number) == found
    assert len(registry.asked) == asked


def test_an_id_that_is_unknown_is_asked_for_again(registry: SchemaRegistry, store: MemorySchemaStore) -> None:
    schemas = schemas_of(registry, store)
    assert known_schemas(schemas, [1]) == {}
    assert store.objects == {}
    registry.register("orders-value", '"long"')
    assert list(known_schemas(schemas, [1, 2])) == [1]


def test_the_latest_schema_is_the_known_one_while_it_is_away(
    registry: SchemaRegistry, store: MemorySchemaStore
) -> None:
    registry.register("orders-value", '"int"')
    registry.register("orders-value", '"long"')
    assert schemas_of(registry, store).latest("orders-value").text == '"long"'
    away(registry)
    assert schemas_of(registry, store).latest("orders-value").text == '"long"'
    with pytest.raises(RegistryUnavailableError):
        schemas_of(registry, store).latest("other-value")
    registry.fault = lambda _: None
    registry.register("orders-value", '"double"')
    assert schemas_of(registry, store).latest("orders-value").text == '"double"'
    with pytest.raises(
        UnknownSubjectError, match="no subject 'none': name the right one with --schema-subject"
    ):
        schemas_of(registry, store).latest("none")


def test_references_in_a_circle_end_with_an_error(registry: SchemaRegistry, store: MemorySchemaStore) -> None:
    registry.register("a", '"int"', references=[("B", "b", 1)])
    registry.register("b", '"int"', references=[("A", "a", 1)])
    with pytest.raises(RegistryError, match="refers to itself by"):
        schemas_of(registry, store).schema(1)
    registry.register("c", '"int"', references=[("D", "d", 7)])
    with pytest.raises(RegistryError, match="has no version 7 of subject 'd'"):
        schemas_of(registry, store).schema(3)


def test_another_registry_has_other_schemas(store: MemorySchemaStore, registry: SchemaRegistry) -> None:
    registry.register("orders-value", '"int"')
    assert schemas_of(registry, store).schema(1) is not None
    with schema_registry() as other:
        other.register("orders-value", '"string"')
        found = schemas_of(other, store).schema(1)
    assert found is not None
    assert found.text == '"string"'


def test_a_broken_cache_is_named(registry: SchemaRegistry, store: MemorySchemaStore) -> None:
    registry.register("orders-value", '"int"')
    schemas_of(registry, store).schema(1)
    (key,) = store.objects
    store.objects[key] = b"{"
    with pytest.raises(SchemaDocumentError, match=f"{key} is no cached schema .*: delete it"):
        schemas_of(registry, store).schema(1)
    store.objects[key] = b'{"version": 9}'
    with pytest.raises(SchemaDocumentError, match="has version 9; this program knows 1"):
        schemas_of(registry, store).schema(1)


def test_the_cache_lies_in_the_folder_of_exports(registry: SchemaRegistry, tmp_path: Path) -> None:
    registry.register("orders-value", '"int"')
    settings = Settings(data_dir=tmp_path)
    for _ in range(2):
        with contextlib.closing(ObjectSchemaStore(settings)) as store:
            schemas = schemas_of(registry, store)
            assert schemas.schema(1) is not None
            assert schemas.ids_of("orders") in ([], [1, 7])
            schemas.remember("orders", {7, 1})
            schemas.close()
    assert len(registry.asked) == 1
    assert [one.name for one in (tmp_path / "exports").iterdir()] == ["+objects"]


def test_names_of_files_are_distinct() -> None:
    names = ["a", "a/b", "a=2fb", "ä", "..", ".", "A"]
    assert len({file_name(name) for name in names}) == len(names)
    assert file_name("a/b") == "a=2fb"
