"""Sessions and heartbeat intervals of consumer groups, and the configs of one group."""

from tests.compat.consumer_groups.conftest import HEARTBEAT_INTERVAL_MS
from tests.support.consumer_group_members import (
    RawConsumerGroup,
    accepted,
    alter_group_config,
    outcome,
    refused,
)
from tests.support.group_wire import UNKNOWN_MEMBER_ID
from tests.support.waiting import wait_until

INVALID_CONFIG = 40
SESSION = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"


def test_member_without_heartbeats_is_removed(group: RawConsumerGroup) -> None:
    group.set_config(SESSION, 500)
    topic, topic_id = group.new_topic(2)
    silent, other = group.joined("A", topic), group.joined("B", topic)

    def removed() -> bool:
        other.settle(1)
        return set(group.describe().members) == {other.id}

    wait_until(removed, "the silent member is removed")
    assert outcome(silent.heartbeat(epoch=1)) == refused(UNKNOWN_MEMBER_ID)
    group.settle(other)
    assert (other.epoch, other.assignment) == (3, {topic_id: frozenset({0, 1})})


def test_group_has_a_heartbeat_interval_of_its_own(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member = group.joined("A", topic)
    assert member.heartbeat().heartbeat_interval_ms == HEARTBEAT_INTERVAL_MS
    group.set_config(INTERVAL, 300)
    wait_until(lambda: member.heartbeat().heartbeat_interval_ms == 300, "the interval of the group")
    assert alter_group_config(group.wire, group.name, INTERVAL, None) == 0
    wait_until(
        lambda: member.heartbeat().heartbeat_interval_ms == HEARTBEAT_INTERVAL_MS, "the broker's interval"
    )


def test_configs_beyond_the_brokers_limits_are_refused(group: RawConsumerGroup) -> None:
    for name, value in (
        (SESSION, 499),
        (SESSION, 60_001),
        (SESSION, "soon"),
        (INTERVAL, 99),
        (INTERVAL, 15_001),
        ("consumer.patience.ms", 1),
    ):
        found = alter_group_config(group.wire, group.name, name, value)
        assert found == INVALID_CONFIG, f"{name}={value}: {found}"
    topic, _ = group.new_topic()
    member = group.member("A")
    assert outcome(member.join(topic))[:3] == accepted(member, 1)[:3]
