"""Configs of groups: what is legal, and what is in effect."""

import pytest

from kafscale.cluster.group_configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    SHARE_SESSION_TIMEOUT,
    GroupConfig,
    GroupConfigs,
    check_group_configs,
)
from kafscale.cluster.view import ClusterView
from kafscale.formats.group_config_record import encode_group_configs
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, Snapshot
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings

SETTINGS = Settings()
WIDE = Settings(group_consumer_min_session_timeout_ms=1, group_consumer_max_heartbeat_interval_ms=100_000)


def in_effect(settings: Settings, **configs: str) -> GroupConfig:
    view = ClusterView("AAAAAAAAAAAAAAAAAAAAAA")
    named = {f"consumer.{name.replace('_', '.')}": value for name, value in configs.items()}
    if named:
        item = KeyValue(key=keys.group_configs("g"), value=encode_group_configs(named), mod_revision=1)
        view.apply(keys.GROUP_CONFIGS, Snapshot(items=(item,), revision=1))
    others = GroupConfigs(view, settings).get("another")
    assert others == GroupConfig(session_timeout_ms=45_000, heartbeat_interval_ms=5_000)
    return GroupConfigs(view, settings).get("g")


def test_settings_hold_for_a_group_without_configs() -> None:
    assert in_effect(SETTINGS) == GroupConfig(session_timeout_ms=45_000, heartbeat_interval_ms=5_000)


def test_configs_of_a_group_hold_for_it_alone() -> None:
    assert in_effect(SETTINGS, session_timeout_ms="50000", heartbeat_interval_ms=" 7000") == GroupConfig(
        session_timeout_ms=50_000, heartbeat_interval_ms=7_000
    )


def test_a_share_group_has_configs_of_its_own() -> None:
    view = ClusterView("AAAAAAAAAAAAAAAAAAAAAA")
    named = {SHARE_SESSION_TIMEOUT: "50000", HEARTBEAT_INTERVAL: "7000"}
    item = KeyValue(key=keys.group_configs("g"), value=encode_group_configs(named), mod_revision=1)
    view.apply(keys.GROUP_CONFIGS, Snapshot(items=(item,), revision=1))
    configs = GroupConfigs(view, SETTINGS)
    assert configs.share("g") == GroupConfig(session_timeout_ms=50_000, heartbeat_interval_ms=5_000)
    assert configs.get("g") == GroupConfig(session_timeout_ms=45_000, heartbeat_interval_ms=7_000)


@pytest.mark.parametrize(
    ("stored", "timeout_ms"), [("44999", 45_000), ("60001", 60_000), ("later", 45_000), ("-5", 45_000)]
)
def test_a_stored_value_that_is_not_legal_any_more(stored: str, timeout_ms: int) -> None:
    assert in_effect(SETTINGS, session_timeout_ms=stored).session_timeout_ms == timeout_ms


@pytest.mark.parametrize(
    ("configs", "settings"),
    [
        ({}, SETTINGS),
        ({SESSION_TIMEOUT: "45000", HEARTBEAT_INTERVAL: "15000"}, SETTINGS),
        ({SESSION_TIMEOUT: "60000"}, SETTINGS),
        ({SESSION_TIMEOUT: "5001"}, WIDE),
    ],
)
def test_legal_configs_pass(configs: dict[str, str], settings: Settings) -> None:
    check_group_configs({}, configs, settings)


@pytest.mark.parametrize(
    ("configs", "problem"),
    [
        (
            {SESSION_TIMEOUT: "44999"},
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms (45000)",
        ),
        ({SESSION_TIMEOUT: "60001"}, "less than or equal to group.consumer.max.session.timeout.ms (60000)"),
        (
            {SHARE_SESSION_TIMEOUT: "60001"},
            "share.session.timeout.ms must be less than or equal to group.share.max.session.timeout.ms (60000)",
        ),
        ({HEARTBEAT_INTERVAL: "4999"}, "group.consumer.min.heartbeat.interval.ms (5000)"),
        ({HEARTBEAT_INTERVAL: "15001"}, "group.consumer.max.heartbeat.interval.ms (15000)"),
        ({HEARTBEAT_INTERVAL: "soon"}, "Invalid value soon for configuration consumer.heartbeat.interval.ms"),
        ({"consumer.session.timeout": "1"}, "Unknown group config name: consumer.session.timeout"),
    ],
)
def test_what_is_not_legal_is_named(configs: dict[str, str], problem: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_group_configs({}, configs, SETTINGS)
    assert refused.value.code is ErrorCode.INVALID_CONFIG
    assert problem in refused.value.message


def test_a_session_is_longer_than_the_interval_of_heartbeats() -> None:
    with pytest.raises(KafkaError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        check_group_configs({}, {SESSION_TIMEOUT: "5000"}, WIDE)
    with pytest.raises(KafkaError, match=r"must be greater than consumer\.heartbeat\.interval\.ms"):
        check_group_configs({}, {HEARTBEAT_INTERVAL: "45000"}, WIDE)


def test_what_a_later_release_has_set_may_stay() -> None:
    later = {"consumer.of.tomorrow": "yes"}
    check_group_configs(later, {**later, SESSION_TIMEOUT: "50000"}, SETTINGS)
