"""kafka-consumer-groups.sh: offsets of topics, and whole groups, are deleted."""

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.consumer_groups_tool import ConsumerGroupsTool, commit_offsets, quiet_member, says_absent
from tests.support.group_work import committed_offsets, send_to_all, wait_for_shares, wait_until_handled
from tests.support.java import ToolServer
from tests.support.topics import create_topic, unique_name

DELETED = "Successful"


@pytest.fixture
def tool(java: ToolServer, broker: Peer) -> ConsumerGroupsTool:
    return ConsumerGroupsTool(server=java, bootstrap=broker.bootstrap)


@pytest.fixture
def group() -> str:
    return unique_name("group")


# --- --delete-offsets


def test_the_offsets_of_a_topic_are_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, other = new_topic(3), new_topic()
    send_to_all(broker, topic, 3, 2)
    commit_offsets(broker, group, {(topic, 0): 1, (topic, 1): 2, (other, 0): 0})
    # The one that was never committed is deleted as well.
    assert tool.delete_offsets(group, topic) == {(topic, index): DELETED for index in range(3)}
    assert tool.offsets(group) == {(other, 0): 0}
    assert committed_offsets(broker, group) == {(other, 0): 0}


def test_the_offsets_of_single_partitions_are_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, other, whole = new_topic(3), new_topic(2), new_topic(2)
    commit_offsets(broker, group, {(name, index): 0 for name in (topic, other, whole) for index in range(2)})
    deleted = tool.delete_offsets(group, f"{topic}:0,2", f"{other}:1", whole)
    gone = [(topic, 0), (topic, 2), (other, 1), (whole, 0), (whole, 1)]
    assert deleted == dict.fromkeys(gone, DELETED)
    assert tool.offsets(group) == {(topic, 1): 0, (other, 0): 0}


def test_a_consumer_starts_again_where_its_offset_was_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    send_to_all(broker, topic, 2, 3)
    commit_offsets(broker, group, {(topic, 0): 2, (topic, 1): 2})
    tool.delete_offsets(group, f"{topic}:0")
    with quiet_member(broker, group, topic) as member:  # from the earliest offset where none is committed
        wait_until_handled([member], topic, [3, 3])
        assert member.offsets_handled(topic, 0) == [0, 1, 2]
        assert member.offsets_handled(topic, 1) == [2]


def test_offsets_of_subscribed_topic_are_not_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, other = new_topic(2), new_topic(2)
    send_to_all(broker, topic, 2, 1)
    with quiet_member(broker, group, topic) as member:
        wait_for_shares([member], [(topic, 0), (topic, 1)])
        member.commit({(topic, 0): 1, (other, 0): 0, (other, 1): 0})
        refused = tool.delete_offsets(group, topic)
        mixed = tool.delete_offsets(group, f"{topic}:0", f"{other}:0")
        assert committed_offsets(broker, group) == {(topic, 0): 1, (other, 1): 0}
    assert refused.keys() == {(topic, 0), (topic, 1)}
    assert all("GroupSubscribedToTopicException" in status for status in refused.values())
    assert "GroupSubscribedToTopicException" in mixed[topic, 0]
    assert mixed[other, 0] == DELETED
    # As soon as the member has left, nothing holds them.
    assert tool.delete_offsets(group, f"{topic}:0") == {(topic, 0): DELETED}
    assert tool.offsets(group) == {(other, 1): 0}


def test_offsets_of_what_does_not_exist_are_not_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, absent = new_topic(), unique_name("absent")
    no_group = tool.delete_offsets(group, f"{topic}:0")
    assert "GroupIdNotFoundException" in no_group[topic, 0]
    commit_offsets(broker, group, {(topic, 0): 0})
    by_name = tool.delete_offsets(group, absent)
    assert "UnknownTopicOrPartitionException" in by_name[absent, -1]
    by_partition = tool.delete_offsets(group, f"{absent}:0", f"{topic}:0")
    assert "UnknownTopicOrPartitionException" in by_partition[absent, 0]
    assert by_partition[topic, 0] == DELETED


# --- --delete


def test_groups_without_members_are_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic
) -> None:
    topic, committed, left, kept = new_topic(), *(unique_name("group") for _ in range(3))
    for one in (committed, kept):
        commit_offsets(broker, one, {(topic, 0): 0})
    with quiet_member(broker, left, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        member.commit({(topic, 0): 0})
    deleted = tool("--delete", "--group", committed, "--group", left).ok()
    assert "Error" not in deleted
    listed = tool("--list").ok().split()
    assert kept in listed
    assert not {committed, left} & set(listed)
    assert committed_offsets(broker, committed, [(topic, 0)]) == {(topic, 0): -1}
    assert committed_offsets(broker, kept) == {(topic, 0): 0}
    assert says_absent(tool("--describe", "--group", committed), committed)


def test_a_group_that_was_deleted_can_be_created_again(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    send_to_all(broker, topic, 1, 3)
    commit_offsets(broker, group, {(topic, 0): 3})
    tool("--delete", "--group", group).ok()
    with quiet_member(broker, group, topic) as member:
        wait_until_handled([member], topic, [3])
        assert member.offsets_handled(topic, 0) == [0, 1, 2]
        assert tool.state(group)["STATE"] == "Stable"


def test_active_and_unknown_groups_are_not_deleted(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic
) -> None:
    topic, active, absent, empty = new_topic(), *(unique_name("group") for _ in range(3))
    commit_offsets(broker, empty, {(topic, 0): 0})
    with quiet_member(broker, active, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        member.commit({(topic, 0): 0})
        printed = tool("--delete", "--group", active, "--group", absent, "--group", empty).ok()
        assert tool.state(active)["#MEMBERS"] == "1"
    reasons = {
        name: line for line in printed.splitlines() for name in (active, absent) if f"'{name}'" in line
    }
    assert "GroupNotEmptyException" in reasons[active]
    assert "GroupIdNotFoundException" in reasons[absent]
    listed = tool("--list").ok().split()
    assert active in listed
    assert empty not in listed
    assert committed_offsets(broker, active) == {(topic, 0): 0}


def test_all_groups_without_members_are_deleted_at_once(java: ToolServer, strict_broker: Peer) -> None:
    tool = ConsumerGroupsTool(server=java, bootstrap=strict_broker.bootstrap)  # with no groups of others
    topic, active, one, two = unique_name(), *(unique_name("group") for _ in range(3))
    create_topic(strict_broker, topic)
    for empty in (one, two):
        commit_offsets(strict_broker, empty, {(topic, 0): 0})
    with quiet_member(strict_broker, active, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        printed = tool("--delete", "--all-groups").ok()
        listed = tool("--list").ok().split()
    assert active in listed
    assert not {one, two} & set(listed)
    assert "GroupNotEmptyException" in printed
