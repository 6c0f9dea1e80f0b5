"""kafka-consumer-groups.sh and kafka-configs.sh of Kafka 4.1 on groups of the consumer protocol."""

import pytest

from tests.compat.conftest import Peer
from tests.support.consumer_group_members import RawConsumerGroup, topic_id
from tests.support.consumer_groups_tool import MISSING, ConsumerGroupsTool, says_absent
from tests.support.group_apis import commit, committed
from tests.support.group_work import send_to_all
from tests.support.java import CONFIGS, ToolResult, ToolServer
from tests.support.waiting import wait_until

SESSION = "consumer.session.timeout.ms"
INTERVAL = "consumer.heartbeat.interval.ms"


@pytest.fixture
def tool(java: ToolServer, peer: Peer) -> ConsumerGroupsTool:
    return ConsumerGroupsTool(server=java, bootstrap=peer.bootstrap)


@pytest.fixture
def group_with_two(group: RawConsumerGroup) -> tuple[RawConsumerGroup, str]:
    """A topic of four partitions with ten records each; a static member that revokes two, for another."""
    topic, _ = group.new_topic(4)
    send_to_all(group.broker, topic, 4, 10)
    first = group.joined("A", topic, instance_id="instance-1")
    group.joined("B", topic)
    commit(group.wire, group.name, {(topic, 0): 3}, generation=1, member_id=first.id, version=9)
    return group, topic


def test_groups_are_listed_by_type(
    tool: ConsumerGroupsTool, group_with_two: tuple[RawConsumerGroup, str]
) -> None:
    group, topic = group_with_two
    classic = f"{group.name}-classic"
    commit(group.wire, classic, {(topic, 0): 3})
    listed = tool.groups("--type")
    assert (listed[group.name]["TYPE"], listed[classic]["TYPE"]) == ("Consumer", "Classic")
    assert group.name in tool.groups("--type", "consumer")
    assert classic not in tool.groups("--type", "consumer")
    assert group.name not in tool.groups("--type", "classic")
    row = tool.groups("--type", "consumer", "--state", "Reconciling")[group.name]
    assert (row["TYPE"], row["STATE"]) == ("Consumer", "Reconciling")


def test_group_is_described(tool: ConsumerGroupsTool, group_with_two: tuple[RawConsumerGroup, str]) -> None:
    group, topic = group_with_two
    described = group.describe()
    rows = tool.rows("--describe", "--group", group.name, "--members", "--verbose")
    assert len(rows) == 2
    for row in rows:
        member = described.members[row["CONSUMER-ID"]]
        assert row["GROUP-INSTANCE-ID"] == (member.instance_id or "")
        assert row["#PARTITIONS"] == str(len(member.assignment))
        assert row["CURRENT-EPOCH"] == str(member.member_epoch)
        assert row["TARGET-EPOCH"] == "2"
        for column, partitions in (
            ("CURRENT-ASSIGNMENT", member.assignment),
            ("TARGET-ASSIGNMENT", member.target),
        ):
            indexes = ",".join(str(index) for _, index in sorted(partitions))
            assert row[column] == (f"{topic}:{indexes}" if indexes else MISSING)
    state = tool.state(group.name, "--verbose")
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"], state["#MEMBERS"]) == (
        "Reconciling",
        "uniform",
        "2",
    )
    assert (state["GROUP-EPOCH"], state["TARGET-ASSIGNMENT-EPOCH"]) == ("2", "2")
    offsets = tool.describe(group.name, "--offsets")
    first = offsets[topic, 0]
    assert (first["CURRENT-OFFSET"], first["LOG-END-OFFSET"], first["LAG"]) == ("3", "10", "7")
    assert described.members[first["CONSUMER-ID"]].instance_id == "instance-1"


def test_group_with_members_is_left_alone(
    tool: ConsumerGroupsTool, group_with_two: tuple[RawConsumerGroup, str]
) -> None:
    group, topic = group_with_two
    reset = tool("--reset-offsets", "--group", group.name, "--to-earliest", "--all-topics", "--execute")
    assert "Assignments can only be reset if the group" in reset.out + reset.err
    statuses = tool.delete_offsets(group.name, topic)
    assert all("GroupSubscribedToTopicException" in status for status in statuses.values())
    deleted = tool("--delete", "--group", group.name)
    assert "GroupNotEmptyException" in deleted.out + deleted.err
    assert committed(group.wire, group.name, [(topic, 0)])[topic, 0].offset == 3


def test_empty_group_is_described_reset_and_deleted(
    tool: ConsumerGroupsTool, group: RawConsumerGroup
) -> None:
    topic, _ = group.new_topic(2)
    send_to_all(group.broker, topic, 2, 10)
    member = group.joined("A", topic)
    commit(group.wire, group.name, {(topic, 0): 3}, generation=1, member_id=member.id, version=9)
    member.leave()
    state = tool.state(group.name)
    assert (state["STATE"], state["ASSIGNMENT-STRATEGY"], state["#MEMBERS"]) == ("Empty", "uniform", "0")
    (row,) = tool.describe(group.name).values()
    assert (row["CURRENT-OFFSET"], row["LAG"], row["CONSUMER-ID"]) == ("3", "7", MISSING)
    assert tool.members(group.name) == {}
    new = tool.reset(group.name, "--to-offset", "5", "--topic", topic, "--execute")
    assert new == {(topic, 0): 5, (topic, 1): 5}
    assert tool.offsets(group.name) == new
    assert tool.delete_offsets(group.name, f"{topic}:1") == {(topic, 1): "Successful"}
    assert tool.offsets(group.name) == {(topic, 0): 5}
    # the group is what it was: its next member is of the epoch after
    assert outcome_of_joining(group, topic) == 3
    assert "was successful" in tool("--delete", "--group", group.name).ok()
    assert says_absent(tool("--describe", "--group", group.name), group.name)


def outcome_of_joining(group: RawConsumerGroup, topic: str) -> int:
    """The epoch of a member that joins, has the whole topic, and leaves."""
    member = group.joined("B", topic)
    assert set(member.assignment) == {topic_id(group.wire, topic)}
    epoch = member.epoch
    member.leave()
    return epoch


def test_group_configs_are_set_described_and_deleted(
    java: ToolServer, peer: Peer, group: RawConsumerGroup
) -> None:
    def configs(*arguments: str) -> ToolResult:
        entity = ("--entity-type", "groups", "--entity-name", group.name)
        return java.tool(CONFIGS, "--bootstrap-server", peer.bootstrap, *entity, *arguments)

    def described(*arguments: str) -> dict[str, str]:
        printed = configs("--describe", *arguments).ok().splitlines()[1:]
        return dict(line.split()[0].split("=", 1) for line in printed if line.startswith("  "))

    configs("--alter", "--add-config", f"{SESSION}=50000,{INTERVAL}=6000").ok()
    wanted = {SESSION: "50000", INTERVAL: "6000"}
    wait_until(lambda: described() == wanted, "both configs")
    configs("--alter", "--delete-config", SESSION).ok()
    wait_until(lambda: described() == {INTERVAL: "6000"}, "one of them")
    every = described("--all")
    assert (every[SESSION], every[INTERVAL]) == ("45000", "6000")
    for bad in (f"{SESSION}=1", f"{INTERVAL}=never", "consumer.patience.ms=1"):
        refused = configs("--alter", "--add-config", bad)
        assert refused.exit_code == 1
        assert "InvalidConfigurationException" in refused.out + refused.err
