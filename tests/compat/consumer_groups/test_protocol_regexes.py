"""Subscriptions by regular expression, which the coordinator resolves (RE2 syntax)."""

import pytest

from tests.support.consumer_group_members import (
    INVALID_REGULAR_EXPRESSION,
    RawConsumerGroup,
    accepted,
    outcome,
    refused,
)
from tests.support.consumer_group_members import topic_id as id_of
from tests.support.group_wire import GROUP_ID_NOT_FOUND
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

INVALID = {
    "class without end": "[",
    "group without end": "(a",
    "no group to end": "a)",
    "nothing to repeat": "*",
    "too many repeats": "a{1001}",
    "backslash at the end": "\\",
    "class from high to low": "[b-a]",
    "no RE2: back reference": r"(a)\1",
    "no RE2: look-ahead": "(?=a)b",
    "name without end": "(?P<n",
    "unknown class": r"\p{Foo}",
}


@pytest.mark.parametrize("regex", INVALID.values(), ids=INVALID.keys())
def test_invalid_regex_is_refused(group: RawConsumerGroup, regex: str) -> None:
    member = group.member()
    reply = member.join(names=None, regex=regex)
    assert outcome(reply) == refused(INVALID_REGULAR_EXPRESSION)
    assert regex in (reply.error_message or "")
    assert group.describe().error_code == GROUP_ID_NOT_FOUND


def test_regex_names_topics_as_a_whole(group: RawConsumerGroup) -> None:
    prefix = unique_name("regex")
    for name in ("a", "b", "b-more"):
        create_topic(group.broker, f"{prefix}-{name}")
    member = group.member()
    reply = member.join(names=None, regex=f"{prefix}-[a-z]")
    # The coordinator answers before it has looked for topics.
    assert reply.member_epoch == 1
    wanted = {id_of(group.wire, f"{prefix}-{name}"): frozenset([0]) for name in "ab"}
    wait_until(lambda: member.heartbeat() and member.assignment == wanted, "topics by the regex")
    described = group.describe().members[member.id]
    assert (described.names, described.regex) == ((), f"{prefix}-[a-z]")
    assert outcome(member.heartbeat(regex="[")) == refused(INVALID_REGULAR_EXPRESSION)
    assert outcome(member.heartbeat()) == accepted(member, member.epoch)


def test_regex_and_names_add_up(group: RawConsumerGroup) -> None:
    prefix = unique_name("regex")
    create_topic(group.broker, f"{prefix}-a")
    other, other_id = group.new_topic()
    member = group.joined("A", other, regex=f"{prefix}-.*")
    wanted = {id_of(group.wire, f"{prefix}-a"): frozenset([0]), other_id: frozenset([0])}
    wait_until(lambda: member.heartbeat() and member.assignment == wanted, "topics by name and by regex")
    member.heartbeat(names=[])
    wait_until(lambda: member.acknowledge() and other_id not in member.assignment, "topics by regex")
    member.heartbeat(names=[other], regex="")
    group.settle(member)
    assert member.assignment == {other_id: frozenset([0])}


def test_members_of_one_regex_share_its_topics(group: RawConsumerGroup) -> None:
    prefix = unique_name("regex")
    create_topic(group.broker, f"{prefix}-a", 4)
    topic_id = id_of(group.wire, f"{prefix}-a")
    first = group.joined("A", names=None, regex=f"{prefix}-.*")
    wanted = {topic_id: frozenset(range(4))}
    wait_until(lambda: first.heartbeat() and first.assignment == wanted, "topics by the regex")
    second = group.joined("B", names=None, regex=f"{prefix}-.*")

    def shared() -> bool:
        group.settle(first, second)
        return len(first.assignment.get(topic_id, ())) == len(second.assignment.get(topic_id, ())) == 2

    wait_until(shared, "two partitions each")
    assert first.assignment[topic_id] | second.assignment[topic_id] == frozenset(range(4))


def test_version_0_leaves_the_regex(group: RawConsumerGroup) -> None:
    prefix = unique_name("regex")
    create_topic(group.broker, f"{prefix}-a")
    member = group.joined("A", names=None, regex=f"{prefix}-.*")
    wait_until(lambda: member.heartbeat() and member.assignment, "topics by the regex")
    epoch = member.epoch
    assert outcome(member.heartbeat(version=0)) == accepted(member, epoch)
    assert group.describe().members[member.id].regex == f"{prefix}-.*"


@pytest.mark.nightly  # for ten seconds it does nothing but wait
def test_regex_finds_topics_that_come_later(group: RawConsumerGroup) -> None:
    """At most ten seconds after; before that, the coordinator does not look again."""
    prefix = unique_name("regex")
    member = group.joined("A", names=None, regex=f"{prefix}-.*")
    assert member.assignment == {}
    create_topic(group.broker, f"{prefix}-new")
    assert member.news().assignment == {id_of(group.wire, f"{prefix}-new"): frozenset([0])}
