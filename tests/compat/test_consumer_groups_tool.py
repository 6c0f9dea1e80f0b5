"""kafka-consumer-groups.sh: groups are listed, described and deleted."""

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.consumer_groups_tool import (
    MISSING,
    ConsumerGroupsTool,
    commit_offsets,
    quiet_member,
    says_absent,
    table_rows,
)
from tests.support.group_members import LibrdkafkaMember, Partitions
from tests.support.group_work import partitions_of, send_to_all, wait_for_shares
from tests.support.java import ToolServer
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until

OFFSET_COLUMNS = [
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
]  # fmt: skip


@pytest.fixture
def tool(java: ToolServer, broker: Peer) -> ConsumerGroupsTool:
    return ConsumerGroupsTool(server=java, bootstrap=broker.bootstrap)


@pytest.fixture
def strict_tool(java: ToolServer, strict_broker: Peer) -> ConsumerGroupsTool:
    """On a broker with few groups, for what goes over all of them."""
    return ConsumerGroupsTool(server=java, bootstrap=strict_broker.bootstrap)


@pytest.fixture
def group() -> str:
    return unique_name("group")


def numbers(row: dict[str, str]) -> tuple[str, str, str]:
    return row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]


def described(share: Partitions) -> list[str]:
    """A member's partitions as the tool joins them by semicolons: `topic:0,1`."""
    topics: dict[str, list[int]] = {}
    for topic, partition in share:
        topics.setdefault(topic, []).append(partition)
    return [f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in topics.items()]


# --- list


def test_groups_are_listed_with_and_without_members(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic
) -> None:
    topic, empty, active, absent = new_topic(), *(unique_name("group") for _ in range(3))
    commit_offsets(broker, empty, {(topic, 0): 0})
    with quiet_member(broker, active, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        listed = tool("--list").ok().split()
    assert listed.count(empty) == listed.count(active) == 1
    assert absent not in listed


def test_groups_are_listed_by_state(tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic) -> None:
    topic, empty, stable = new_topic(), unique_name("group"), unique_name("group")
    commit_offsets(broker, empty, {(topic, 0): 0})
    with quiet_member(broker, stable, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        states = {
            asked: {name: row["STATE"] for name, row in tool.groups("--state", *asked).items()}
            for asked in ((), ("Empty,Stable",), ("Empty",), ("stable",), ("Dead,PreparingRebalance",))
        }
    both = {empty: "Empty", stable: "Stable"}.items()
    assert both <= states[()].items()
    assert both <= states["Empty,Stable",].items()
    assert set(states["Empty,Stable",].values()) == {"Empty", "Stable"}
    assert states["Empty",][empty] == "Empty"
    assert set(states["Empty",].values()) == {"Empty"}
    assert states["stable",][stable] == "Stable"
    assert set(states["stable",].values()) == {"Stable"}
    assert not {empty, stable} & states["Dead,PreparingRebalance",].keys()
    assert tool("--list", "--state", "NoSuchState").exit_code == 1


def test_a_group_that_rebalances_is_shown_so(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    with quiet_member(broker, group, topic, client_id="busy", max_poll_interval_ms=60_000) as busy:
        wait_for_shares([busy], partitions_of(topic, 2))
        busy.hold()  # it beats, but joins again only when it polls
        with quiet_member(broker, group, topic, client_id="late", max_poll_interval_ms=60_000) as late:
            wait_until(lambda: tool.state(group)["STATE"] == "PreparingRebalance", "a rebalance")
            assert tool.groups("--state", "PreparingRebalance")[group]["STATE"] == "PreparingRebalance"
            assert group not in tool.groups("--state", "Stable,Empty")
            assert tool.members(group).keys() == {"busy", "late"}
            busy.go_on()
            wait_for_shares([busy, late], partitions_of(topic, 2))
            assert (tool.state(group)["STATE"], tool.state(group)["#MEMBERS"]) == ("Stable", "2")


def test_groups_are_listed_by_type(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    commit_offsets(broker, group, {(new_topic(), 0): 0})
    assert tool.groups("--type")[group] == {"GROUP": group, "TYPE": "Classic"}
    assert tool.groups("--type", "classic")[group]["TYPE"] == "Classic"
    assert group not in tool.groups("--type", "consumer")
    both = tool.groups("--type", "classic", "--state", "Empty")[group]
    assert both == {"GROUP": group, "TYPE": "Classic", "STATE": "Empty"}
    assert group not in tool.groups("--type", "consumer", "--state", "Empty")


# --- describe: offsets


def test_active_group_is_described_with_lag_and_consumer(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    send_to_all(broker, topic, 2, 10)
    with quiet_member(broker, group, topic, client_id="alpha") as member:
        wait_for_shares([member], partitions_of(topic, 3))
        member.commit({(topic, 0): 7})
        rows = tool.describe(group)
        send_to_all(broker, topic, 2, 5)
        member.commit({(topic, 0): 15, (topic, 2): 0})
        later = tool.describe(group, "--offsets")
    assert [list(row) for row in rows.values()] == [OFFSET_COLUMNS] * 3
    assert numbers(rows[topic, 0]) == ("7", "10", "3")
    assert numbers(rows[topic, 1]) == (MISSING, "10", MISSING)  # never committed
    assert numbers(rows[topic, 2]) == (MISSING, "0", MISSING)
    consumers = {(row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], row["GROUP"]) for row in rows.values()}
    ((consumer, host, client, named),) = consumers
    assert consumer.startswith("alpha-")
    assert (host, client, named) == ("/127.0.0.1", "alpha", group)
    assert [numbers(later[topic, index]) for index in range(3)] == [
        ("15", "15", "0"), (MISSING, "15", MISSING), ("0", "0", "0"),
    ]  # fmt: skip


def test_a_group_without_members_is_described_with_its_offsets(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, other = new_topic(3), new_topic()
    send_to_all(broker, topic, 3, 4)
    commit_offsets(broker, group, {(topic, 0): 1, (topic, 2): 4, (other, 0): 0})
    described = tool("--describe", "--group", group)
    assert f"Consumer group '{group}' has no active members." in described.err
    rows = table_rows(described.ok())
    assert {(row["TOPIC"], row["PARTITION"], *numbers(row)) for row in rows} == {
        (topic, "0", "1", "4", "3"), (topic, "2", "4", "4", "0"), (other, "0", "0", "0", "0"),
    }  # fmt: skip
    for row in rows:
        assert (row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"]) == (MISSING, MISSING, MISSING)


def test_a_group_keeps_its_offsets_when_its_last_member_leaves(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    send_to_all(broker, topic, 2, 3)
    with quiet_member(broker, group, topic) as member:
        wait_for_shares([member], partitions_of(topic, 2))
        member.commit({(topic, 1): 2})
    rows = tool.describe(group)
    assert rows.keys() == {(topic, 1)}  # the other one was never committed, and nobody has it
    assert (*numbers(rows[topic, 1]), rows[topic, 1]["CONSUMER-ID"]) == ("2", "3", "1", MISSING)


def test_unsubscribed_offsets_are_described_without_consumer(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, other = new_topic(), new_topic()
    send_to_all(broker, other, 1, 4)
    with quiet_member(broker, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        member.commit({(other, 0): 1})
        rows = tool.describe(group)
    assert rows.keys() == {(topic, 0), (other, 0)}
    assert rows[topic, 0]["CONSUMER-ID"] != MISSING
    assert rows[other, 0]["CONSUMER-ID"] == MISSING
    assert numbers(rows[other, 0]) == ("1", "4", "3")


def test_each_partition_is_described_with_its_own_consumer(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(4)
    with (
        quiet_member(broker, group, topic, client_id="one") as one,
        quiet_member(broker, group, topic, client_id="two") as two,
    ):
        owned = wait_for_shares([one, two], partitions_of(topic, 4), fewest=2)
        rows = tool.describe(group)
        members = tool.members(group)
    for client, share in zip(("one", "two"), owned, strict=True):
        shown = {partition for partition, row in rows.items() if row["CLIENT-ID"] == client}
        assert shown == share
        assert {rows[partition]["CONSUMER-ID"] for partition in share} == {members[client]["CONSUMER-ID"]}


def test_offsets_are_described_verbosely_with_the_leader_epoch(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    send_to_all(broker, topic, 2, 3)
    with LibrdkafkaMember(broker.bootstrap, group, topic) as member:
        wait_until(lambda: len(member.handled) == 6, "all records")
        wait_until(lambda: member.committed(*partitions_of(topic, 2)) == [3, 3], "the auto commit")
        rows = tool.describe(group, "--offsets", "--verbose")
    for row in rows.values():
        assert list(row) == [*OFFSET_COLUMNS[:3], "LEADER-EPOCH", *OFFSET_COLUMNS[3:]]
        assert row["LEADER-EPOCH"].isdigit()
        assert numbers(row) == ("3", "3", "0")


def test_several_groups_are_described_at_once(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic
) -> None:
    topic, left, right = new_topic(), unique_name("group"), unique_name("group")
    send_to_all(broker, topic, 1, 5)
    commit_offsets(broker, left, {(topic, 0): 1})
    commit_offsets(broker, right, {(topic, 0): 5})
    rows = tool.rows("--describe", "--group", left, "--group", right)
    assert {row["GROUP"]: numbers(row) for row in rows} == {left: ("1", "5", "4"), right: ("5", "5", "0")}


def test_all_groups_are_described_at_once(strict_tool: ConsumerGroupsTool, strict_broker: Peer) -> None:
    topic, empty, active = unique_name(), unique_name("group"), unique_name("group")
    create_topic(strict_broker, topic)
    send_to_all(strict_broker, topic, 1, 3)
    commit_offsets(strict_broker, empty, {(topic, 0): 1})
    with quiet_member(strict_broker, active, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        offsets = strict_tool.rows("--describe", "--all-groups")
        members = strict_tool.rows("--describe", "--all-groups", "--members")
        states = strict_tool.rows("--describe", "--all-groups", "--state")
    lags = {row["GROUP"]: row["LAG"] for row in offsets}
    assert (lags[empty], lags[active]) == ("2", MISSING)
    assert [row["GROUP"] for row in members if row["GROUP"] in (empty, active)] == [active]
    shown = {row["GROUP"]: row["STATE"] for row in states}
    assert (shown[empty], shown[active]) == ("Empty", "Stable")


@pytest.mark.parametrize("what", ["--offsets", "--members", "--state"])
def test_a_group_that_does_not_exist_is_not_described(
    tool: ConsumerGroupsTool, group: str, what: str
) -> None:
    assert says_absent(tool("--describe", "--group", group, what), group)


# --- describe: members


def test_members_are_described_with_partition_counts(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    with (
        quiet_member(broker, group, topic, client_id="first") as first,
        quiet_member(broker, group, topic, client_id="second") as second,
        quiet_member(broker, group, topic, client_id="third") as third,
    ):
        everyone = {"first": first, "second": second, "third": third}
        wait_until(lambda: len(tool.members(group)) == 3, "three members")
        wait_until(lambda: tool.state(group)["STATE"] == "Stable", "the group is stable")
        wait_for_shares(list(everyone.values()), partitions_of(topic, 2), fewest=0)
        members = tool.members(group)
    assert members.keys() == everyone.keys()
    assert sorted(row["#PARTITIONS"] for row in members.values()) == ["0", "1", "1"]
    for client, row in members.items():
        assert list(row) == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
        assert (row["GROUP"], row["HOST"]) == (group, "/127.0.0.1")
        assert row["CONSUMER-ID"].startswith(f"{client}-")
    assert len({row["CONSUMER-ID"] for row in members.values()}) == 3


def test_members_are_described_verbosely_with_their_assignment(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic, other = new_topic(5), new_topic()
    with (
        quiet_member(broker, group, topic, other, client_id="both") as both,
        quiet_member(broker, group, topic, client_id="one") as one,
    ):
        shares = wait_for_shares([both, one], [*partitions_of(topic, 5), (other, 0)])
        members = tool.members(group, "--verbose")
    owned = dict(zip(("both", "one"), shares, strict=True))
    for client, row in members.items():
        shown = row["CURRENT-ASSIGNMENT"].split(";")
        assert sorted(shown) == sorted(described(owned[client]))
        assert (row["CURRENT-EPOCH"], row["TARGET-EPOCH"], row["TARGET-ASSIGNMENT"]) == (MISSING,) * 3


def test_a_static_member_is_described_with_its_instance_id(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(2)
    with (
        quiet_member(broker, group, topic, client_id="static", group_instance_id="instance-1") as static,
        quiet_member(broker, group, topic, client_id="dynamic") as dynamic,
    ):
        wait_for_shares([static, dynamic], partitions_of(topic, 2))
        members = tool.members(group)
    assert list(members["static"]) == [
        "GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS",
    ]  # fmt: skip
    assert members["static"]["GROUP-INSTANCE-ID"] == "instance-1"
    assert members["static"]["CONSUMER-ID"].startswith("instance-1-")
    assert members["dynamic"]["GROUP-INSTANCE-ID"] == ""


def test_a_group_without_members_shows_none(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    commit_offsets(broker, group, {(new_topic(), 0): 0})
    described = tool("--describe", "--group", group, "--members")
    assert f"Consumer group '{group}' has no active members." in described.err
    assert table_rows(described.ok()) == []


# --- describe: state


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_state_shows_coordinator_strategy_and_member_count(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str, assignor: str
) -> None:
    topic = new_topic(2)
    with (
        quiet_member(broker, group, topic, assignors=[assignor]) as one,
        quiet_member(broker, group, topic, assignors=[assignor]) as two,
    ):
        wait_for_shares([one, two], partitions_of(topic, 2))
        state = tool.state(group)
    coordinator = state.pop("COORDINATOR (ID)")
    assert coordinator.split("  ")[0] == broker.bootstrap
    assert state == {"GROUP": group, "ASSIGNMENT-STRATEGY": assignor, "STATE": "Stable", "#MEMBERS": "2"}


def test_the_state_of_a_group_that_its_members_have_left(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    with quiet_member(broker, group, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        member.commit({(topic, 0): 0})
    state = tool.state(group)
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == (MISSING, "Empty", "0")


def test_the_state_of_a_group_that_never_had_a_member(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    commit_offsets(broker, group, {(new_topic(), 0): 0})
    state = tool.state(group)
    assert (state["ASSIGNMENT-STRATEGY"], state["STATE"], state["#MEMBERS"]) == (MISSING, "Empty", "0")
    verbose = tool.state(group, "--verbose")
    assert (verbose["GROUP-EPOCH"], verbose["TARGET-ASSIGNMENT-EPOCH"]) == (MISSING, MISSING)
