"""DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, in every version."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.admin import (
    AlterConfigsRequest,
    CreateTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from kafscale.cluster.broker_configs import describe_broker
from kafscale.cluster.config_kinds import ConfigSource, ConfigType
from kafscale.cluster.feature_updates import FeatureUpdate
from kafscale.cluster.new_topic import NewTopic
from kafscale.cluster.topic_config_table import TOPIC_CONFIGS
from kafscale.formats.features import SEGMENT_FORMAT
from kafscale.handlers import alter_configs, create_topics, describe_configs, incremental_alter_configs
from kafscale.handlers.incremental_alter_configs import Operation
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.config_resources import ResourceType
from kafscale.settings.broker import Settings, load_settings
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask, by_name, control_plane
from tests.support.loop_turns import turns_beside

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
CLIENT_METRICS = 16
Asked = DescribeConfigsRequest.DescribeConfigsResource
Altered = AlterConfigsRequest.AlterConfigsResource
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(settings=Settings(broker_id=3, segment_bytes=2**21)) as plane:
        topic = NewTopic(name="t", partition_count=1, configs={"retention.ms": "5"})
        await plane.topics.create(topic, timeout_ms=TIMEOUT_MS)
        yield plane


async def describe(plane: ControlPlane, version: int, *resources: Any, **fields: bool) -> list[Any]:
    request = DescribeConfigsRequest(resources=list(resources), **fields)
    return list((await ask(plane, describe_configs.handle, version, request)).results)


def asked(kind: int, name: str, keys: list[str] | None = None) -> Any:
    return Asked(resource_type=kind, resource_name=name, configuration_keys=keys)


def altered(kind: int, name: str, configs: dict[str, str | None]) -> Any:
    return Altered(
        resource_type=kind,
        resource_name=name,
        configs=[Altered.AlterableConfig(name=key, value=value) for key, value in configs.items()],
    )


async def alter(
    plane: ControlPlane, version: int, *resources: Any, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = AlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = (await ask(plane, alter_configs.handle, version, request)).responses
    assert [(one.resource_type, one.resource_name) for one in responses] == [
        (resource.resource_type, resource.resource_name) for resource in resources
    ]
    return [(one.error_code, one.error_message) for one in responses]


def changed(kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    return Changed(
        resource_type=kind,
        resource_name=name,
        configs=[
            Changed.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )


async def change(
    plane: ControlPlane, version: int, *resources: Any, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    request = IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    responses = (await ask(plane, incremental_alter_configs.handle, version, request)).responses
    return [(one.error_code, one.error_message) for one in responses]


def configs_of(plane: ControlPlane, name: str = "t") -> dict[str, str]:
    record = plane.view.topic(name)
    assert record is not None
    return dict(record.configs)


@pytest.mark.parametrize("version", range(1, 5))
async def test_a_topic_in_every_version(plane: ControlPlane, version: int) -> None:
    (result,) = await describe(plane, version, asked(TOPIC, "t"), include_synonyms=True)
    assert (result.error_code, result.resource_type, result.resource_name) == (0, TOPIC, "t")
    configs = by_name(result.configs)
    assert list(configs) == [row.name for row in TOPIC_CONFIGS]
    own = configs["retention.ms"]
    assert (own.value, own.config_source, own.read_only) == ("5", ConfigSource.TOPIC_CONFIG, False)
    assert [(one.name, one.value, one.source) for one in own.synonyms] == [
        ("retention.ms", "5", ConfigSource.TOPIC_CONFIG),
        ("log.retention.ms", "604800000", ConfigSource.DEFAULT_CONFIG),
    ]
    assert configs["segment.bytes"].value == str(2**21)
    assert configs["segment.bytes"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    if version >= 3:
        assert own.config_type == ConfigType.LONG
        assert own.documentation is None


async def test_documentation_and_synonyms_only_when_asked_for(plane: ControlPlane) -> None:
    (result,) = await describe(plane, 4, asked(TOPIC, "t"), include_documentation=True)
    assert all(config.documentation for config in result.configs)
    assert all(config.synonyms == [] for config in result.configs)


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
async def test_only_the_keys_asked_for(plane: ControlPlane, kind: int) -> None:
    name, key = ("t", "retention.ms") if kind == TOPIC else ("3", "num.partitions")
    (result,) = await describe(plane, 4, asked(kind, name, [key, "no.such.key"]))
    assert [config.name for config in result.configs] == [key]


async def test_this_broker(plane: ControlPlane) -> None:
    (result,) = await describe(plane, 4, asked(BROKER, "3"), include_synonyms=True)
    assert result.error_code == 0
    configs = by_name(result.configs)
    assert list(configs) == sorted(configs)
    assert {name: configs[name].value for name in ("broker.id", "log.segment.bytes", "compression.type")} == {
        "broker.id": "3",
        "log.segment.bytes": str(2**21),
        "compression.type": "snappy",
    }
    assert configs["listeners"].value == "PLAINTEXT://127.0.0.1:9092"
    assert configs["advertised.listeners"].value == "PLAINTEXT://broker-3.test:9092"
    assert configs["auto.create.topics.enable"].config_type == ConfigType.BOOLEAN
    assert all(config.read_only for config in result.configs)
    assert configs["log.segment.bytes"].config_source == ConfigSource.STATIC_BROKER_CONFIG
    assert [(one.value, one.source) for one in configs["log.segment.bytes"].synonyms] == [
        (str(2**21), ConfigSource.STATIC_BROKER_CONFIG),
        (str(2**22), ConfigSource.DEFAULT_CONFIG),
    ]
    assert configs["num.partitions"].config_source == ConfigSource.DEFAULT_CONFIG


async def test_a_resource_named_again_is_described_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[object] = []
    monkeypatch.setattr(
        describe_configs,
        "describe_broker",
        lambda *given: described.append(given) or describe_broker(*given),  # type: ignore[func-returns-value]
    )
    resources = [asked(BROKER, "3"), asked(TOPIC, "t"), asked(TOPIC, "u")] * 1_000
    results = await describe(plane, 4, *resources)
    assert [(one.resource_type, one.resource_name) for one in results] == [
        (BROKER, "3"),
        (TOPIC, "t"),
        (TOPIC, "u"),
    ]
    assert len(described) == 1


async def test_keys_of_a_resource_named_again_are_joined(plane: ControlPlane) -> None:
    first, second = asked(TOPIC, "t", ["retention.ms"]), asked(TOPIC, "t", ["cleanup.policy"])
    (result,) = await describe(plane, 4, first, second)
    assert [config.name for config in result.configs] == ["cleanup.policy", "retention.ms"]
    for resources in ([first, asked(TOPIC, "t")], [asked(TOPIC, "t"), first]):
        (result,) = await describe(plane, 4, *resources)
        assert len(result.configs) == len(TOPIC_CONFIGS)


async def test_configs_of_many_topics_are_encoded_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    for index in range(3):
        await plane.topics.create(NewTopic(name=f"n{index}", partition_count=1), timeout_ms=TIMEOUT_MS)
    await describe(plane, 4, asked(TOPIC, "n0"), include_synonyms=True)
    monkeypatch.setattr(describe_configs, "describe_topic", lambda *given: pytest.fail("described again"))
    results = await describe(plane, 4, *(asked(TOPIC, f"n{i}") for i in range(3)), include_synonyms=True)
    assert all(result.configs == results[0].configs for result in results)


async def test_reply_beyond_its_bound_names_what_is_left_out(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    await plane.topics.create(NewTopic(name="n", partition_count=1), timeout_ms=TIMEOUT_MS)
    monkeypatch.setattr(describe_configs, "MAX_REPLY_BYTES", 2_000)
    results = await describe(plane, 1, asked(TOPIC, "t"), asked(TOPIC, "n"))
    assert [one.error_code for one in results] == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert len(results[0].configs) == len(TOPIC_CONFIGS)
    assert "fewer resources" in results[1].error_message


async def test_others_run_while_many_resources_are_described(plane: ControlPlane) -> None:
    turns = await turns_beside(describe(plane, 4, *(asked(TOPIC, f"missing{i}") for i in range(800))))
    assert turns >= 99


async def test_what_a_broker_is_set_to_is_static_whatever_the_value() -> None:
    environment = {
        "KAFSCALE_BROKER_ID": "0",
        "KAFSCALE_BROKER_ADDR": "127.0.0.1:9092",
        "KAFSCALE_RETENTION_MS": "604800000",
    }
    async with control_plane(settings=load_settings(environment)) as plane:
        await plane.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
        broker, topic = await describe(plane, 4, asked(BROKER, "0"), asked(TOPIC, "t"), include_synonyms=True)
    static = {
        config.name for config in broker.configs if config.config_source == ConfigSource.STATIC_BROKER_CONFIG
    }
    assert static == {"advertised.listeners", "broker.id", "listeners", "log.retention.ms", "node.id"}
    configs = by_name(broker.configs)
    assert [one.source for one in configs["advertised.listeners"].synonyms] == [
        ConfigSource.STATIC_BROKER_CONFIG
    ]
    assert [one.source for one in configs["listeners"].synonyms] == [
        ConfigSource.STATIC_BROKER_CONFIG,
        ConfigSource.DEFAULT_CONFIG,
    ]
    assert by_name(topic.configs)["retention.ms"].config_source == ConfigSource.STATIC_BROKER_CONFIG


async def test_what_cannot_be_described(plane: ControlPlane) -> None:
    results = await describe(
        plane,
        4,
        asked(TOPIC, "unknown"),
        asked(TOPIC, "a/b"),
        asked(TOPIC, ""),
        asked(BROKER, ""),
        asked(BROKER, "4"),
        asked(BROKER, "x"),
        asked(CLIENT_METRICS, "m"),
    )
    assert [result.error_code for result in results] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert all(result.configs == [] for result in results)
    assert results[4].error_message == "Unexpected broker id, expected 3, but received 4"


@pytest.mark.parametrize("version", range(3))
async def test_altering_replaces_all(plane: ControlPlane, version: int) -> None:
    assert await alter(plane, version, altered(TOPIC, "t", {"segment.ms": "7"})) == [(0, None)]
    assert configs_of(plane) == {"segment.ms": "7"}
    assert await alter(plane, version, altered(TOPIC, "t", {})) == [(0, None)]
    assert configs_of(plane) == {}


@pytest.mark.parametrize("version", range(3))
async def test_validating_an_alteration(plane: ControlPlane, version: int) -> None:
    resources = altered(TOPIC, "t", {"segment.ms": "7"}), altered(TOPIC, "unknown", {})
    results = await alter(plane, version, *resources, validate_only=True)
    assert [code for code, _ in results] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert configs_of(plane) == {"retention.ms": "5"}


async def test_alterations_that_are_refused(plane: ControlPlane) -> None:
    duplicate = altered(TOPIC, "t", {"segment.ms": "1"})
    duplicate.configs = [*duplicate.configs, *duplicate.configs]
    for resource, code, words in (
        (altered(TOPIC, "t", {"a": "b"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: a"),
        (altered(TOPIC, "t", {"segment.ms": "0"}), ErrorCode.INVALID_CONFIG, "segment.ms"),
        (altered(TOPIC, "t", {"segment.ms": None}), ErrorCode.INVALID_REQUEST, "Null value"),
        (duplicate, ErrorCode.INVALID_REQUEST, "duplicate config keys"),
        (altered(TOPIC, "", {}), ErrorCode.INVALID_REQUEST, "Default topic resources"),
        (altered(TOPIC, "a/b", {}), ErrorCode.INVALID_TOPIC_EXCEPTION, "a/b"),
        (altered(BROKER, "3", {"log.segment.bytes": "1"}), ErrorCode.INVALID_REQUEST, "dynamically"),
        (altered(BROKER, "", {"log.segment.bytes": "1"}), ErrorCode.INVALID_REQUEST, "dynamically"),
        (altered(BROKER, "4", {}), ErrorCode.INVALID_REQUEST, "expected 3, but received 4"),
        (altered(CLIENT_METRICS, "m", {}), ErrorCode.INVALID_REQUEST, "Unknown resource type 16"),
    ):
        ((got, message),) = await alter(plane, 2, resource)
        assert got == code
        assert message is not None
        assert words in message
    assert configs_of(plane) == {"retention.ms": "5"}


async def test_a_resource_twice_is_refused_twice(plane: ControlPlane) -> None:
    resource = altered(TOPIC, "t", {"segment.ms": "7"})
    results = await alter(plane, 2, resource, resource)
    assert results == [(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")] * 2
    assert configs_of(plane) == {"retention.ms": "5"}


@pytest.mark.parametrize("version", range(2))
async def test_single_keys_change(plane: ControlPlane, version: int) -> None:
    assert await change(
        plane,
        version,
        changed(TOPIC, "t", ("segment.ms", Operation.SET, "7"), ("retention.ms", Operation.DELETE, None)),
    ) == [(0, None)]
    assert configs_of(plane) == {"segment.ms": "7"}


async def test_lists_grow_and_shrink(plane: ControlPlane) -> None:
    async def one(operation: Operation, value: str) -> str | None:
        results = await change(plane, 1, changed(TOPIC, "t", ("cleanup.policy", operation, value)))
        assert results == [(0, None)]
        return configs_of(plane)["cleanup.policy"]

    assert await one(Operation.APPEND, "compact") == "delete,compact"
    assert await one(Operation.APPEND, "compact") == "delete,compact"
    assert await one(Operation.SUBTRACT, "delete") == "compact"
    assert await one(Operation.SUBTRACT, "delete") == "compact"


async def test_a_list_may_be_emptied_and_filled_again(plane: ControlPlane) -> None:
    for operation, value, left in (
        (Operation.SUBTRACT, "delete", ""),
        (Operation.SUBTRACT, "compact", ""),
        (Operation.APPEND, "compact", "compact"),
        (Operation.SET, "", ""),
    ):
        resource = changed(TOPIC, "t", ("cleanup.policy", operation, value))
        assert await change(plane, 1, resource) == [(0, None)]
        (result,) = await describe(plane, 4, asked(TOPIC, "t", ["cleanup.policy"]))
        assert [(one.value, one.config_source) for one in result.configs] == [
            (left, ConfigSource.TOPIC_CONFIG)
        ]
    assert await alter(plane, 2, altered(TOPIC, "t", {"cleanup.policy": ""})) == [(0, None)]


async def test_changes_that_are_refused(plane: ControlPlane) -> None:
    for resource, code, words in (
        (changed(TOPIC, "t", ("a", Operation.SET, "b")), ErrorCode.INVALID_CONFIG, "Unknown topic config"),
        (
            changed(TOPIC, "t", ("retention.ms", Operation.APPEND, "1")),
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (changed(TOPIC, "t", ("retention.ms", 9, "1")), ErrorCode.INVALID_REQUEST, "operations type 9"),
        (changed(TOPIC, "t", ("retention.ms", Operation.SET, None)), ErrorCode.INVALID_REQUEST, "Null"),
        (changed(TOPIC, "u"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'u'"),
        (changed(BROKER, "3", ("a", Operation.SET, "b")), ErrorCode.INVALID_REQUEST, "dynamically"),
        (changed(BROKER, "4", ("a", Operation.DELETE, None)), ErrorCode.INVALID_REQUEST, "broker id"),
    ):
        ((got, message),) = await change(plane, 1, resource)
        assert got == code
        assert message is not None
        assert words in message
    assert configs_of(plane) == {"retention.ms": "5"}


async def test_deleting_a_key_that_is_not_set(plane: ControlPlane) -> None:
    assert await change(plane, 1, changed(TOPIC, "t", ("segment.ms", Operation.DELETE, None))) == [(0, None)]
    throttle = changed(BROKER, "3", ("leader.replication.throttled.rate", Operation.DELETE, None))
    assert await change(plane, 1, throttle) == [(0, None)]


async def test_validating_a_change(plane: ControlPlane) -> None:
    resource = changed(TOPIC, "t", ("segment.ms", Operation.SET, "7"))
    assert await change(plane, 1, resource, validate_only=True) == [(0, None)]
    assert configs_of(plane) == {"retention.ms": "5"}


LARGE = "3000000000"
COMMAND = "kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature kafscale.segment.format=2"


async def set_segment_bytes(
    plane: ControlPlane, api: str, value: str, *, validate_only: bool
) -> tuple[int, str | None]:
    if api == "CreateTopics":
        config = CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(name="segment.bytes", value=value)
        topic = CreateTopicsRequest.CreatableTopic(
            name="large", num_partitions=1, replication_factor=-1, assignments=[], configs=[config]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS, validate_only=validate_only)
        reply = (await ask(plane, create_topics.handle, 7, request)).topics[0]
        return reply.error_code, reply.error_message
    if api == "AlterConfigs":
        resource = altered(TOPIC, "t", {"segment.bytes": value})
        return (await alter(plane, 2, resource, validate_only=validate_only))[0]
    resource = changed(TOPIC, "t", ("segment.bytes", Operation.SET, value))
    return (await change(plane, 1, resource, validate_only=validate_only))[0]


@pytest.mark.parametrize("validate_only", [False, True])
@pytest.mark.parametrize("api", ["CreateTopics", "AlterConfigs", "IncrementalAlterConfigs"])
async def test_large_segments_are_refused_before_their_feature_level(
    plane: ControlPlane, api: str, validate_only: bool
) -> None:
    before = configs_of(plane)
    code, message = await set_segment_bytes(plane, api, LARGE, validate_only=validate_only)
    assert code == ErrorCode.INVALID_CONFIG
    assert message is not None
    assert LARGE in message
    assert COMMAND in message
    assert configs_of(plane) == before
    assert plane.view.topic("large") is None

    await plane.features.update([FeatureUpdate(feature=SEGMENT_FORMAT, level=2)], timeout_ms=TIMEOUT_MS)
    code, message = await set_segment_bytes(plane, api, LARGE, validate_only=validate_only)
    assert (code, message or None) == (0, None)
    if validate_only:
        assert configs_of(plane) == before
        assert plane.view.topic("large") is None
        return
    name = "large" if api == "CreateTopics" else "t"
    assert configs_of(plane, name)["segment.bytes"] == LARGE
    (result,) = await describe(plane, 4, asked(TOPIC, name, ["segment.bytes"]))
    (described,) = result.configs
    assert (described.value, described.config_type) == (LARGE, ConfigType.LONG)


async def test_configs_of_the_lake_are_altered_and_described(plane: ControlPlane) -> None:
    (answer,) = await change(
        plane,
        1,
        changed(
            TOPIC,
            "t",
            ("kafscale.iceberg.enable", Operation.SET, "TRUE"),
            ("kafscale.iceberg.partition.by", Operation.SET, "days(timestamp),bucket(16, key)"),
        ),
    )
    assert answer == (ErrorCode.NONE, None)
    (result,) = await describe(plane, 4, asked(TOPIC, "t"), include_documentation=True)
    configs = by_name(result.configs)
    enable, layout = configs["kafscale.iceberg.enable"], configs["kafscale.iceberg.partition.by"]
    assert (enable.value, enable.config_type) == ("true", ConfigType.BOOLEAN)
    assert "--topics-by-config" in enable.documentation
    assert (layout.value, layout.config_type) == (
        "days(timestamp), bucket(16, key)",
        ConfigType.STRING,
    )
    assert configs["kafscale.iceberg.table"].config_source == ConfigSource.DEFAULT_CONFIG
    for operation, value in ((Operation.SET, "days(x"), (Operation.APPEND, "topic")):
        (refusal,) = await change(
            plane, 1, changed(TOPIC, "t", ("kafscale.iceberg.partition.by", operation, value))
        )
        assert refusal[0] == ErrorCode.INVALID_CONFIG
        assert "kafscale.iceberg.partition.by" in str(refusal[1])
