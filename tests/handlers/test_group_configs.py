"""Configs of groups by DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafscale.cluster.config_kinds import ConfigSource, ConfigType
from kafscale.cluster.group_configs import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, GroupConfigs
from kafscale.handlers import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from kafscale.handlers.incremental_alter_configs import Operation
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.protocol.api_messages import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
)
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving.config_resources import ResourceType
from kafscale.settings.broker import Settings
from tests.support.control_plane import ControlPlane, ask, control_plane

GROUP = ResourceType.GROUP
Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
Altered = AlterConfigsRequest.AlterConfigsResource


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    settings = Settings(group_consumer_session_timeout_ms=50_000)
    async with control_plane(settings=settings) as plane:
        yield plane


async def change(
    plane: ControlPlane, group: str, *changes: tuple[str, int, str | None], validate_only: bool = False
) -> tuple[int, str | None]:
    configs = [
        Changed.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    resource = Changed(resource_type=GROUP, resource_name=group, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    ((response),) = (await ask(plane, incremental_alter_configs.handle, 1, request)).responses
    return response.error_code, response.error_message


async def set_timeout(plane: ControlPlane, value: str, group: str = "g") -> tuple[int, str | None]:
    return await change(plane, group, (SESSION_TIMEOUT, Operation.SET, value))


async def describe(plane: ControlPlane, group: str = "g") -> Any:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    (result,) = (await ask(plane, describe_configs.handle, 4, request)).results
    return result


async def listed(plane: ControlPlane) -> list[str]:
    request = ListConfigResourcesRequest(resource_types=[GROUP])
    reply = await ask(plane, list_config_resources.handle, 1, request)
    return [one.resource_name for one in reply.config_resources]


async def test_a_group_without_configs_has_those_of_the_broker(plane: ControlPlane) -> None:
    result = await describe(plane)
    assert (result.error_code, result.resource_name) == (0, "g")
    assert [one.name for one in result.configs] == sorted(one.name for one in result.configs)
    interval, timeout, *shares = result.configs
    assert (interval.name, interval.value, timeout.name, timeout.value) == (
        HEARTBEAT_INTERVAL,
        "5000",
        SESSION_TIMEOUT,
        "50000",
    )
    assert interval.config_source == ConfigSource.DEFAULT_CONFIG
    assert [(one.name, one.value, one.source) for one in timeout.synonyms] == [
        (SESSION_TIMEOUT, "50000", ConfigSource.DEFAULT_CONFIG)
    ]
    assert (timeout.read_only, timeout.config_type) == (False, ConfigType.INT)
    assert timeout.documentation
    assert {one.name: (one.value, one.config_type) for one in shares} == {
        "share.auto.offset.reset": ("latest", ConfigType.STRING),
        "share.heartbeat.interval.ms": ("5000", ConfigType.INT),
        "share.isolation.level": ("read_uncommitted", ConfigType.STRING),
        "share.record.lock.duration.ms": ("30000", ConfigType.INT),
        "share.session.timeout.ms": ("45000", ConfigType.INT),
    }
    assert await listed(plane) == []


@pytest.mark.parametrize("group", ["g", "a/b ä"])
async def test_a_config_is_set_and_deleted(plane: ControlPlane, group: str) -> None:
    configs = GroupConfigs(plane.view, plane.settings)
    assert await set_timeout(plane, "55000", group) == (0, None)
    assert configs.get(group).session_timeout_ms == 55_000
    timeout = (await describe(plane, group)).configs[1]
    assert (timeout.value, timeout.config_source) == ("55000", ConfigSource.GROUP_CONFIG)
    assert (timeout.synonyms[0].name, timeout.synonyms[0].source) == (SESSION_TIMEOUT, 8)
    assert await listed(plane) == [group]
    assert await set_timeout(plane, "55000", group) == (0, None)  # a change that changes nothing
    assert await change(plane, group, (SESSION_TIMEOUT, Operation.DELETE, None)) == (0, None)
    assert configs.get(group).session_timeout_ms == 50_000
    assert await plane.keys_under(keys.GROUP_CONFIGS) == []


async def test_all_configs_are_replaced(plane: ControlPlane) -> None:
    assert await set_timeout(plane, "55000") == (0, None)
    configs = [Altered.AlterableConfig(name=HEARTBEAT_INTERVAL, value="6000")]
    resource = Altered(resource_type=GROUP, resource_name="g", configs=configs)
    reply = await ask(plane, alter_configs.handle, 2, AlterConfigsRequest(resources=[resource]))
    assert reply.responses[0].error_code == 0
    assert [one.value for one in (await describe(plane)).configs[:2]] == ["6000", "50000"]


async def test_configs_of_share_groups_are_texts_and_numbers(plane: ControlPlane) -> None:
    configs = GroupConfigs(plane.view, plane.settings)
    reset, lock = "share.auto.offset.reset", "share.record.lock.duration.ms"
    assert await change(plane, "g", (reset, 0, "by_duration:PT1H"), (lock, 0, "20000")) == (0, None)
    in_effect = configs.sharing("g")
    assert (in_effect.offset_reset.duration_ms, in_effect.record_lock_duration_ms) == (3_600_000, 20_000)
    shown = {one.name: (one.value, one.config_source) for one in (await describe(plane)).configs}
    assert shown[reset] == ("by_duration:PT1H", ConfigSource.GROUP_CONFIG)
    assert shown[lock] == ("20000", ConfigSource.GROUP_CONFIG)
    assert await change(plane, "g", (reset, Operation.DELETE, None), (lock, Operation.DELETE, None)) == (
        0,
        None,
    )
    assert configs.sharing("g").record_lock_duration_ms == 30_000
    code, message = await change(plane, "g", (reset, 0, "by_duration:-PT1H"))
    assert (code, "Invalid value by_duration:-PT1H" in str(message)) == (ErrorCode.INVALID_CONFIG, True)


async def test_a_validated_change_is_not_made(plane: ControlPlane) -> None:
    setting = (SESSION_TIMEOUT, int(Operation.SET), "55000")
    assert await change(plane, "g", setting, validate_only=True) == (0, None)
    assert await listed(plane) == []


async def test_what_is_not_legal_is_refused(plane: ControlPlane) -> None:
    for group, changes, code, words in (
        ("g", (SESSION_TIMEOUT, 0, "1"), ErrorCode.INVALID_CONFIG, "greater than or equal to"),
        ("g", ("retention.ms", 0, "1"), ErrorCode.INVALID_CONFIG, "Unknown group config name: retention.ms"),
        ("g", ("cleanup.policy", 2, "compact"), ErrorCode.INVALID_CONFIG, "its type is not LIST"),
        ("", (SESSION_TIMEOUT, 0, "55000"), ErrorCode.INVALID_REQUEST, "Default group resources"),
    ):
        got, message = await change(plane, group, changes)
        assert got == code
        assert words in str(message)
    assert (await describe(plane, "")).error_code == ErrorCode.INVALID_REQUEST
    assert await plane.keys_under(keys.GROUP_CONFIGS) == []


async def test_groups_with_configs_are_counted(plane: ControlPlane) -> None:
    for group in "abc":
        assert await set_timeout(plane, "55000", group) == (0, None)
    code, message = await set_timeout(plane, "55000", "d")
    assert (code, message) == (ErrorCode.POLICY_VIOLATION, "There are configs of 3 groups already.")
    assert await set_timeout(plane, "51000", "a") == (0, None)


async def test_a_damaged_record_is_replaced_and_a_later_one_kept(plane: ControlPlane) -> None:
    key = keys.group_configs("g")
    await plane.store.transact([], [Put(key, b"?")])
    assert await set_timeout(plane, "55000") == (0, None)
    result = await plane.store.transact([], [Put(key, b'{"version":2,"of":"tomorrow"}')])
    assert result.succeeded
    code, _ = await set_timeout(plane, "51000")
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
