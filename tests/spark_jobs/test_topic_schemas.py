"""The registry's schemas of a topic from batch to batch: what is learned, refused, waited for and remembered."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kafscale.lake.registry.client import RegistryAccess, RegistryClient
from kafscale.lake.registry.schemas import RegistrySchemas
from spark_jobs.decoding.options import ValueOptions
from spark_jobs.job import topic_schemas
from spark_jobs.job.topic_schemas import TopicSchemas, UnknownSchemaError, reads_latest
from spark_jobs.registry_options import OnUnknownSchema, RegistryOptions
from tests.support.schema_registry import SchemaRegistry, schema_registry


class MemoryStore(dict[str, bytes]):
    def put(self, name: str, data: bytes) -> None:
        self[name] = data


class StandInAccumulator:
    """Adds as Spark's does, in this process."""

    def __init__(self, value: frozenset[int], param: Any) -> None:
        self.value = value
        self._param = param

    def add(self, more: frozenset[int]) -> None:
        self.value = self._param.addInPlace(self.value, more)


SPARK: Any = SimpleNamespace(sparkContext=SimpleNamespace(accumulator=StandInAccumulator))


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    with schema_registry() as found:
        yield found


def schemas_of(registry: SchemaRegistry, store: MemoryStore) -> RegistrySchemas:
    access = RegistryAccess(url=registry.url)
    return RegistrySchemas(registry.url, store, lambda: RegistryClient(access, sleep=lambda _: None))


def topic_schemas_of(
    registry: SchemaRegistry,
    store: MemoryStore,
    on_unknown: OnUnknownSchema = OnUnknownSchema.DEAD_LETTER,
    wait_sec: float = 60,
    **more: Any,
) -> TopicSchemas:
    options = RegistryOptions(
        url=registry.url,
        user_info=None,
        token=None,
        ca_file=None,
        timeout_sec=5,
        subject=None,
        on_unknown=on_unknown,
        wait_sec=wait_sec,
    )
    return TopicSchemas(SPARK, "orders", schemas_of(registry, store), options, **more)


def test_missing_schemas_are_learned_and_remembered(registry: SchemaRegistry) -> None:
    store = MemoryStore()
    registry.register("orders-value", '"int"')
    registry.register("orders-value", '"long"')
    first = topic_schemas_of(registry, store)
    source = first.source(reads_latest=True, type_name=None)
    assert source.reader is not None
    assert (source.reader.text, source.writers) == ('"long"', {})
    assert source.report_unknown is not None
    assert not first.learn(), "nothing was missing"

    registry.register("orders-value", '"double"')
    for number in (1, 9, 1):
        source.report_unknown(number)
    assert first.learn()
    again = first.source(reads_latest=True, type_name=None)
    assert again.reader is not None
    assert (again.reader.text, list(again.writers)) == ('"double"', [1]), "a new id may be a new version"
    asked = len(registry.asked)
    first.report(9)
    first.report(1)
    assert not first.learn()
    assert len(registry.asked) == asked, "an id that is unknown is asked for once in a round"

    registry.fault = lambda _: (503, b"", {})
    second = topic_schemas_of(registry, store)
    found = second.source(reads_latest=False, type_name=None)
    assert (found.reader, list(found.writers)) == (None, [1])


def test_an_unknown_schema_stops_the_topic(registry: SchemaRegistry) -> None:
    schemas = topic_schemas_of(registry, MemoryStore(), OnUnknownSchema.STOP)
    for number in range(20):
        schemas.report(number)
    with pytest.raises(
        UnknownSchemaError, match=r"does not have: 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, \.\.\.; register"
    ):
        schemas.learn()


def test_an_unknown_schema_is_waited_for(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_schemas, "_ASK_AGAIN_SEC", 0.01)
    checks: list[None] = []

    def check() -> None:
        checks.append(None)
        if len(checks) == 3:
            registry.register("orders-value", '"int"')

    waiting = topic_schemas_of(registry, MemoryStore(), OnUnknownSchema.WAIT, check=check)
    waiting.report(1)
    assert waiting.learn()
    assert len(checks) == 3, "the lease is looked at while it waits"

    short = topic_schemas_of(registry, MemoryStore(), OnUnknownSchema.WAIT, wait_sec=0.05)
    short.report(7)
    with pytest.raises(UnknownSchemaError, match="does not have: 7;"):
        short.learn()
    stopped = topic_schemas_of(registry, MemoryStore(), OnUnknownSchema.WAIT, stopping=lambda: True)
    stopped.report(7)
    with pytest.raises(UnknownSchemaError):
        stopped.learn()


def test_any_number_of_ids_has_a_bound(registry: SchemaRegistry) -> None:
    schemas = topic_schemas_of(registry, MemoryStore())
    for number in range(1_500):
        schemas.report(number)
    assert not schemas.learn()
    assert len(registry.asked) <= 1_000


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (ValueOptions(), True),
        (ValueOptions(schema_files=("7=a.avsc", "8=b=c.avsc")), True),
        (ValueOptions(schema_files=("7=a.avsc", "reader.avsc")), False),
        (ValueOptions(schema_files=("a=b.avsc",)), False),
        (ValueOptions(schema="{}"), False),
    ],
)
def test_a_reader_in_a_file_goes_before_the_registrys(values: ValueOptions, expected: bool) -> None:
    assert reads_latest(values) is expected


def test_subjects_have_the_names_of_the_usual_strategies() -> None:
    def subject(template: str | None, type_name: str | None) -> str:
        options = RegistryOptions(
            url="http://r",
            user_info="me:secret",
            token=None,
            ca_file=None,
            timeout_sec=1,
            subject=template,
            on_unknown=OnUnknownSchema.STOP,
            wait_sec=1,
        )
        assert "secret" not in repr(options)
        return options.subject_of("orders", type_name)

    assert subject(None, None) == "orders-value"
    assert subject(None, "shop.Order") == "orders-shop.Order"
    assert subject("{type}", "shop.Order") == "shop.Order"
    assert subject("all-{topic}", None) == "all-orders"
