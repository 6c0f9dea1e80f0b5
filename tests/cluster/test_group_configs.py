"""Configs of groups: what is legal, and what is in effect."""

from dataclasses import replace

import pytest

from kafscale.cluster.group_configs import (
    HEARTBEAT_INTERVAL,
    SESSION_TIMEOUT,
    SHARE_AUTO_OFFSET_RESET,
    SHARE_ISOLATION_LEVEL,
    SHARE_RECORD_LOCK_DURATION,
    SHARE_SESSION_TIMEOUT,
    GroupConfig,
    GroupConfigs,
    ShareIsolation,
    SharingConfig,
    check_group_configs,
)
from kafscale.cluster.offset_reset import OffsetReset, ResetTo
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


SHARING = SharingConfig(
    offset_reset=OffsetReset(ResetTo.LATEST),
    isolation=ShareIsolation.READ_UNCOMMITTED,
    record_lock_duration_ms=30_000,
)


def test_what_a_share_group_reads_follows_its_configs() -> None:
    view = ClusterView("AAAAAAAAAAAAAAAAAAAAAA")
    configs = GroupConfigs(view, SETTINGS)

    def show(revision: int, named: dict[str, str]) -> SharingConfig:
        value = encode_group_configs(named)
        item = KeyValue(key=keys.group_configs("g"), value=value, mod_revision=revision)
        view.apply(keys.GROUP_CONFIGS, Snapshot(items=(item,), revision=revision))
        assert configs.sharing("another") == SHARING
        assert configs.sharing("g") is configs.sharing("g"), "each fetch asks"
        return configs.sharing("g")

    assert configs.sharing("g") == SHARING
    assert show(1, {SHARE_RECORD_LOCK_DURATION: "20000"}) == replace(SHARING, record_lock_duration_ms=20_000)
    assert show(
        2,
        {
            SHARE_AUTO_OFFSET_RESET: "by_duration:PT1M",
            SHARE_ISOLATION_LEVEL: "read_committed",
            SHARE_RECORD_LOCK_DURATION: "1000",  # of a time with another minimum
        },
    ) == SharingConfig(
        offset_reset=OffsetReset(ResetTo.BY_DURATION, 60_000),
        isolation=ShareIsolation.READ_COMMITTED,
        record_lock_duration_ms=15_000,
    )
    later = {SHARE_AUTO_OFFSET_RESET: "tomorrow", SHARE_ISOLATION_LEVEL: "x", SHARE_RECORD_LOCK_DURATION: "y"}
    assert show(3, later) == SHARING
    view.apply(keys.GROUP_CONFIGS, Snapshot(items=(), revision=4))
    assert configs.sharing("g") == SHARING


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
        ({SHARE_AUTO_OFFSET_RESET: "by_duration:P1DT2H", SHARE_ISOLATION_LEVEL: "read_committed"}, SETTINGS),
        ({SHARE_RECORD_LOCK_DURATION: "15000"}, SETTINGS),
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
        (
            {SHARE_RECORD_LOCK_DURATION: "999"},
            "Invalid value 999 for configuration share.record.lock.duration.ms: it must be a whole number from 1000",
        ),
        (
            {SHARE_RECORD_LOCK_DURATION: "14999"},
            "share.record.lock.duration.ms must be greater than or equal to "
            "group.share.min.record.lock.duration.ms (15000)",
        ),
        ({SHARE_RECORD_LOCK_DURATION: "60001"}, "group.share.max.record.lock.duration.ms (60000)"),
        (
            {SHARE_AUTO_OFFSET_RESET: "LATEST"},
            "Invalid value LATEST for configuration share.auto.offset.reset: it must be earliest, latest or "
            "by_duration:<PnDTnHnMn.nS>, as by_duration:PT12H",
        ),
        (
            {SHARE_ISOLATION_LEVEL: "READ_COMMITTED"},
            "Invalid value READ_COMMITTED for configuration share.isolation.level: it must be one of "
            "read_committed, read_uncommitted",
        ),
        ({"share.delivery.count.limit": "5"}, "Unknown group config name: share.delivery.count.limit"),
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
