"""ConsumerGroupHeartbeat: members join, leave, and are refused."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.compat.consumer_groups.conftest import HEARTBEAT_INTERVAL_MS
from tests.support.consumer_group_codec import Heartbeat, heartbeat
from tests.support.consumer_group_members import (
    FENCED_MEMBER_EPOCH,
    INVALID_REQUEST,
    LEAVES,
    UNSUPPORTED_ASSIGNOR,
    RawConsumerGroup,
    accepted,
    outcome,
    refused,
)
from tests.support.group_wire import GROUP_ID_NOT_FOUND, NONE, UNKNOWN_MEMBER_ID

WHOLE: Mapping[str, Any] = {
    "group_id": "group",
    "member_id": "member",
    "member_epoch": 0,
    "names": ["topic"],
    "rebalance_timeout_ms": 60_000,
    "owned": {},
}
"""A request to join that is in order."""

INVALID: Mapping[str, Mapping[str, Any]] = {
    "empty group id": {"group_id": ""},
    "blank group id": {"group_id": "  "},
    "empty member id": {"member_id": ""},
    "blank member id": {"member_id": "  "},
    "epoch below -2": {"member_epoch": -3},
    "static leave without instance id": {"member_epoch": -2},
    "no rebalance timeout": {"rebalance_timeout_ms": -1},
    "no subscription": {"names": None},
    "owned is null": {"owned": None},
    "empty instance id": {"instance_id": ""},
    "empty rack id": {"rack_id": ""},
}


def test_first_member_gets_everything(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(3)
    member = group.member()
    reply = member.join(topic, rack_id="rack-1")
    assert outcome(reply) == accepted(member, 1, {topic_id: [0, 1, 2]})
    assert reply.heartbeat_interval_ms == HEARTBEAT_INTERVAL_MS
    described = group.describe()
    assert group.epochs() == ("Stable", 1, 1)
    assert (described.group_id, described.assignor) == (group.name, "uniform")
    row = described.members[member.id]
    everything = frozenset((topic, partition) for partition in range(3))
    assert (row.assignment, row.target) == (everything, everything)
    assert (row.member_epoch, row.names, row.member_type) == (1, (topic,), 1)
    assert (row.instance_id, row.rack_id, row.client_id) == (None, "rack-1", "tests")
    assert row.client_host in ("/127.0.0.1", "127.0.0.1")
    assert not row.regex


def test_heartbeat_without_news_has_no_assignment(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    member = group.joined("member", topic)
    same = accepted(member, 1)
    assert outcome(member.heartbeat()) == same
    assert outcome(member.heartbeat(owned={topic_id: [0, 1]})) == same
    # The coordinator knows what it gave: a member that says otherwise has not yet got so far.
    assert outcome(member.heartbeat(owned={})) == same
    assert outcome(member.heartbeat(owned={topic_id: [0, 1, 9]})) == same
    assert outcome(member.heartbeat(names=[topic])) == same
    whole: dict[str, Any] = {"names": [topic], "rebalance_timeout_ms": 60_000, "owned": {topic_id: [0, 1]}}
    assert outcome(member.heartbeat(**whole)) == accepted(member, 1, {topic_id: [0, 1]})
    assert group.epochs() == ("Stable", 1, 1)


@pytest.mark.parametrize("changed", INVALID.values(), ids=INVALID.keys())
def test_invalid_request_is_refused(group: RawConsumerGroup, changed: Mapping[str, Any]) -> None:
    assert outcome(heartbeat(group.wire, Heartbeat(**{**WHOLE, **changed}))) == refused(INVALID_REQUEST)


def test_joining_with_partitions_is_refused(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.member()
    assert outcome(member.join(topic, owned={topic_id: [0]})) == refused(INVALID_REQUEST)
    assert group.describe().error_code == GROUP_ID_NOT_FOUND


def test_version_0_gives_a_member_its_id(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.member()
    member.id = ""
    reply = member.join(topic, version=0)
    assert reply.member_id
    member.id = reply.member_id
    assert outcome(reply) == accepted(member, 1, {topic_id: [0]})
    assert outcome(member.heartbeat(version=0)) == accepted(member, 1)
    for epoch in (1, LEAVES):
        nameless = Heartbeat(group_id=group.name, member_id="", member_epoch=epoch)
        assert outcome(heartbeat(group.wire, nameless, version=0)) == refused(INVALID_REQUEST)


def test_version_0_takes_a_members_own_id(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.member()
    assert outcome(member.join(topic, version=0)) == accepted(member, 1, {topic_id: [0]})


def test_unknown_group_is_not_found(group: RawConsumerGroup) -> None:
    absent = refused(GROUP_ID_NOT_FOUND)
    member = group.member(instance_id="instance")
    assert outcome(member.heartbeat(epoch=5)) == absent
    assert outcome(member.heartbeat(epoch=5, owned={})) == absent
    assert outcome(member.leave()) == absent
    assert outcome(member.leave(-2)) == absent
    assert group.describe().error_code == GROUP_ID_NOT_FOUND


def test_unknown_member_is_refused(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    member, stranger = group.joined("member", topic), group.member("stranger")
    unknown = refused(UNKNOWN_MEMBER_ID)
    assert outcome(stranger.heartbeat(epoch=1, owned={})) == unknown
    assert outcome(stranger.leave()) == unknown
    for epoch in (1, LEAVES, -2):
        assert outcome(stranger.heartbeat(epoch=epoch, instance_id="nobody's")) == unknown
    # as well a member that names an instance which it never was
    assert outcome(member.heartbeat(instance_id="nobody's")) == unknown
    assert outcome(member.heartbeat()) == accepted(member, 1)


def test_leaving_twice_is_refused(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic(2)
    member = group.joined("member", topic)
    assert outcome(member.leave()) == accepted(member, LEAVES)
    assert group.epochs() == ("Empty", 2, 1)
    assert group.describe().members == {}
    assert outcome(member.leave()) == refused(UNKNOWN_MEMBER_ID)
    assert outcome(member.heartbeat(epoch=1)) == refused(UNKNOWN_MEMBER_ID)
    assert outcome(member.join(topic)) == accepted(member, 3, {topic_id: [0, 1]})


def test_greater_epoch_is_fenced(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.joined("member", topic)
    fenced = refused(FENCED_MEMBER_EPOCH)
    assert outcome(member.heartbeat(epoch=2, owned={topic_id: [0]})) == fenced
    assert outcome(member.heartbeat(epoch=2)) == fenced
    assert outcome(member.heartbeat()) == accepted(member, 1)


def test_joining_again_in_the_first_epoch_is_answered(group: RawConsumerGroup) -> None:
    """The answer to its first heartbeat may have been lost."""
    topic, topic_id = group.new_topic(2)
    member = group.joined("member", topic)
    assert outcome(member.join(topic)) == accepted(member, 1, {topic_id: [0, 1]})
    assert group.epochs() == ("Stable", 1, 1)


@pytest.mark.usefixtures("only_kafscale")
def test_fenced_member_joins_again_at_once(group: RawConsumerGroup) -> None:
    """As in Kafka 4.2. Kafka 4.1 fenced it again until its session had ended: 45 s without its partitions."""
    topic, topic_id = group.new_topic(2)
    member, other = group.joined("first", topic), group.joined("second", topic)
    other.leave()
    assert outcome(member.heartbeat()) == accepted(member, 3)
    assert outcome(member.heartbeat(epoch=2)) == refused(FENCED_MEMBER_EPOCH)
    assert outcome(member.join(topic)) == accepted(member, 3, {topic_id: [0, 1]})
    assert group.epochs() == ("Stable", 3, 3)


def test_unknown_assignor_is_refused(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.member()
    unsupported = refused(UNSUPPORTED_ASSIGNOR)
    for assignor in ("best", ""):
        reply = member.join(topic, assignor=assignor)
        assert outcome(reply) == unsupported
        assert "uniform, range" in (reply.error_message or "")
    assert outcome(member.join(topic, assignor="range")) == accepted(member, 1, {topic_id: [0]})
    assert outcome(member.heartbeat(assignor="best")) == unsupported
    assert group.describe().assignor == "range"


def test_subscription_may_be_empty(group: RawConsumerGroup) -> None:
    members = [group.member() for _ in range(3)]
    assert outcome(members[0].join()) == accepted(members[0], 1, {})
    assert outcome(members[1].join(names=None, regex="")) == accepted(members[1], 1, {})
    assert outcome(members[2].join(regex="")) == accepted(members[2], 1, {})
    assert group.epochs() == ("Stable", 1, 1)


def test_names_that_no_topic_can_have_match_none(group: RawConsumerGroup) -> None:
    topic, topic_id = group.new_topic()
    member = group.member()
    assert outcome(member.join("", "a/b", topic, topic)) == accepted(member, 1, {topic_id: [0]})


def test_rebalance_timeout_of_0_is_legal(group: RawConsumerGroup) -> None:
    topic, _ = group.new_topic()
    assert group.member().join(topic, rebalance_timeout_ms=0).error_code == NONE
