"""Offsets that the Java client commits, alone and as a member of a group, and where it goes on from."""

import pytest

from tests.compat.conftest import NewTopic
from tests.support.java import JavaError
from tests.support.java_groups import (
    COOPERATIVE_STICKY,
    RANGE,
    STRATEGY,
    Committed,
    JavaGroups,
    partitions_of,
)
from tests.support.topics import unique_name

HALVES = (slice(0, 10), slice(10, 20))


def test_offsets_are_committed_with_metadata_and_read_back(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(partitions=4), unique_name("group")
    member = java_groups.member(group, [topic])
    java_groups.wait_shared([member], partitions_of(topic, 4))
    offsets = {
        (topic, 0): Committed(offset=5, metadata="with äöü ☃", leader_epoch=0),
        (topic, 1): Committed(offset=2**40, metadata="x" * 4096),
        (topic, 2): Committed(offset=0, metadata=""),
    }
    member.commit(offsets)
    assert member.committed(*partitions_of(topic, 4)) == offsets
    later = {(topic, 2): Committed(offset=7, metadata="later"), (topic, 3): Committed(offset=8)}
    member.commit_async(later)
    member.wait(lambda: member.events("committed"), "hears of its commit")
    assert "error" not in member.events("committed")[0]
    assert member.committed(*partitions_of(topic, 4)) == offsets | later
    # by another consumer of the group, which is not a member
    reader = java_groups.member(group, assign=[(topic, 0)])
    assert reader.committed((topic, 0), (topic, 2)) == {
        key: one for key, one in (offsets | later).items() if key[1] in (0, 2)
    }


def test_metadata_longer_than_the_limit_is_refused(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(), unique_name("group")
    member = java_groups.member(group, assign=[(topic, 0)])
    with pytest.raises(JavaError) as refused:
        member.commit({(topic, 0): Committed(offset=1, metadata="x" * 4097)})
    assert refused.value.kind == "OffsetMetadataTooLarge"
    assert member.committed((topic, 0)) == {}


def test_a_consumer_that_only_assigns_commits_and_goes_on_there(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), unique_name("group")
    java_groups.produce(topic, [(0, str(number)) for number in range(10)])
    first = java_groups.member(group, assign=[(topic, 0)])
    first.wait(lambda: len(java_groups.processed().get((topic, 0), [])) == 10, "has all")
    first.commit({(topic, 0): Committed(offset=6)})
    first.close()
    second = java_groups.member(group, assign=[(topic, 0)])
    second.wait(lambda: len(second.events("records")) > 0, "has records")
    assert second.events("records")[0]["records"][0] == [topic, 0, 6, "6"]


def test_assigned_consumer_cannot_commit_in_active_group(
    java_groups: JavaGroups, new_topic: NewTopic
) -> None:
    topic, group = new_topic(), unique_name("group")
    java_groups.member(group, [topic]).wait_owned([(topic, 0)])
    stranger = java_groups.member(group, assign=[(topic, 0)], commit=False)
    with pytest.raises(JavaError) as refused:
        stranger.commit({(topic, 0): Committed(offset=1)})
    assert refused.value.kind == "CommitFailedException"
    assert stranger.committed((topic, 0)) == {}


def test_reset_policy_applies_without_committed_offset(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic = new_topic()
    java_groups.produce(topic, [(0, "before")])
    strict = java_groups.member(unique_name("group"), [topic], config={"auto.offset.reset": "none"})
    strict.wait_error("NoOffsetForPartitionException")
    latest = java_groups.member(unique_name("group"), [topic], config={"auto.offset.reset": "latest"})
    latest.wait_owned([(topic, 0)])
    assert latest.position((topic, 0)) == 1
    java_groups.produce(topic, [(0, "after")])
    latest.wait(lambda: latest.events("records"), "has the new record")
    assert latest.events("records")[0]["records"] == [[topic, 0, 1, "after"]]


def test_auto_commit_and_the_clients_default_settings(java_groups: JavaGroups, new_topic: NewTopic) -> None:
    topic, group = new_topic(partitions=2), unique_name("group")
    config = {
        "enable.auto.commit": "true",
        STRATEGY: f"{RANGE},{COOPERATIVE_STICKY}",
        "heartbeat.interval.ms": 3000,
        "session.timeout.ms": 45_000,
        "max.poll.interval.ms": 300_000,
    }
    sent = {(topic, number): [f"{number}/{index}" for index in range(20)] for number in range(2)}
    halves = [[(key[1], value) for key, values in sent.items() for value in values[part]] for part in HALVES]
    java_groups.produce(topic, halves[0])
    first = java_groups.member(group, [topic], commit=False, config=config)
    first.wait(lambda: sum(map(len, java_groups.processed().values())) == 20, "has the first half")
    first.close()
    java_groups.produce(topic, halves[1])
    java_groups.member(group, [topic], commit=False, config=config)
    java_groups.wait_processed(sent)
