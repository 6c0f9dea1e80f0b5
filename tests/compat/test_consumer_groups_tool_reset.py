"""kafka-consumer-groups.sh --reset-offsets: every mode and scope, and what a consumer then reads."""

import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import NewTopic, Peer
from tests.support import librdkafka
from tests.support.consumer_groups_tool import ConsumerGroupsTool, commit_offsets, quiet_member
from tests.support.group_members import Partition
from tests.support.group_work import committed_offsets, send_to_all, wait_for_shares, wait_until_handled
from tests.support.java import ToolServer
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import PATIENCE_SEC

HOUR_MS = 3_600_000
LOG_START, LOG_END = 4, 10  # of partition 0
COMMITTED = {0: 6, 1: 2}


@pytest.fixture
def tool(java: ToolServer, broker: Peer) -> ConsumerGroupsTool:
    return ConsumerGroupsTool(server=java, bootstrap=broker.bootstrap)


@pytest.fixture
def group() -> str:
    return unique_name("group")


@pytest.fixture(scope="module")
def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.fixture(scope="module")
def topic(broker: Peer, now_ms: int) -> str:
    """Partition 0 from 4 to 10, its record `n` made `10 - n` hours ago; 1 from 0 to 5, long ago; 2 empty."""
    name = unique_name()
    create_topic(broker, name, 3)
    client = librdkafka.producer(broker)
    for offset in range(LOG_END):
        stamp = now_ms - (LOG_END - offset) * HOUR_MS
        librdkafka.send_all(client, name, [b"%d" % offset], 0, timestamp=stamp)
    librdkafka.send_all(
        client, name, [b"%d" % offset for offset in range(5)], 1, timestamp=now_ms - 48 * HOUR_MS
    )
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    futures = admin.delete_records([TopicPartition(name, 0, LOG_START)])
    for future in futures.values():
        future.result(PATIENCE_SEC)
    return name


@pytest.fixture
def committed(broker: Peer, topic: str, group: str) -> dict[Partition, int]:
    """The group's committed offsets of partitions 0 and 1 of `topic`."""
    offsets = {(topic, index): offset for index, offset in COMMITTED.items()}
    commit_offsets(broker, group, offsets)
    return offsets


def hours_ago(now_ms: int, hours: float, zone: timezone = UTC) -> str:
    """That time as the tool reads it; without a zone it takes UTC."""
    moment = datetime.fromtimestamp(0, zone) + timedelta(milliseconds=now_ms - round(hours * HOUR_MS))
    text = moment.isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00")


# --- modes


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("--to-earliest", [4, 0, 0]),
        ("--to-latest", [10, 5, 0]),
        ("--to-current", [6, 2, 0]),  # the end where nothing is committed
        ("--to-offset 5", [5, 5, 0]),
        ("--to-offset 1", [4, 1, 0]),
        ("--to-offset -1", [4, 0, 0]),
        ("--to-offset 9999999999999", [10, 5, 0]),
        ("--by-duration PT3H30M", [7, 5, 0]),  # the end where all is older, or nothing is
        ("--by-duration P2DT1H", [4, 0, 0]),
        ("--by-duration PT0S", [10, 5, 0]),
    ],
)
def test_offsets_of_a_topic_are_reset(
    tool: ConsumerGroupsTool,
    broker: Peer,
    topic: str,
    group: str,
    committed: dict[Partition, int],
    mode: str,
    expected: list[int],
) -> None:
    wanted = {(topic, index): offset for index, offset in enumerate(expected)}
    assert tool.reset(group, "--topic", topic, *mode.split(), "--execute") == wanted
    assert committed_offsets(broker, group) == wanted


@pytest.mark.parametrize(
    ("shift", "expected"), [(3, [9, 5]), (-1, [5, 1]), (100, [10, 5]), (-100, [4, 0]), (0, [6, 2])]
)
def test_committed_offsets_are_shifted(
    tool: ConsumerGroupsTool,
    broker: Peer,
    topic: str,
    group: str,
    committed: dict[Partition, int],
    shift: int,
    expected: list[int],
) -> None:
    wanted = {(topic, index): offset for index, offset in enumerate(expected)}
    assert tool.reset(group, "--all-topics", "--shift-by", str(shift), "--execute") == wanted
    assert committed_offsets(broker, group) == wanted


@pytest.mark.usefixtures("committed")
def test_what_was_never_committed_cannot_be_shifted(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, group: str
) -> None:
    refused = tool(
        "--reset-offsets", "--group", group, "--topic", f"{topic}:1,2", "--shift-by", "1", "--execute"
    )
    assert refused.exit_code == 1
    assert committed_offsets(broker, group)[topic, 1] == COMMITTED[1]


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=2))], ids=["UTC", "+02:00"])
@pytest.mark.parametrize(("hours", "expected"), [(2.5, [8, 5, 0]), (3, [7, 5, 0]), (72, [4, 0, 0])])
def test_offsets_are_reset_to_a_point_in_time(
    tool: ConsumerGroupsTool,
    broker: Peer,
    topic: str,
    group: str,
    now_ms: int,
    zone: timezone,
    hours: float,
    expected: list[int],
) -> None:
    wanted = {(topic, index): offset for index, offset in enumerate(expected)}
    when = hours_ago(now_ms, hours, zone)
    assert tool.reset(group, "--topic", topic, "--to-datetime", when, "--execute") == wanted
    assert committed_offsets(broker, group) == wanted


def test_offsets_are_reset_to_what_a_file_says(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, group: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{topic},0,7\n{topic},1,99\n")  # the second one lies beyond the end
    wanted = {(topic, 0): 7, (topic, 1): 5}
    assert tool.reset(group, "--from-file", str(plan), "--dry-run") == wanted
    assert committed_offsets(broker, group) == {}
    assert tool.reset(group, "--from-file", str(plan), "--execute") == wanted
    assert committed_offsets(broker, group) == wanted


# --- dry run, export


@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["by default", "--dry-run"])
def test_a_dry_run_changes_nothing(
    tool: ConsumerGroupsTool,
    broker: Peer,
    topic: str,
    group: str,
    committed: dict[Partition, int],
    flags: list[str],
) -> None:
    assert tool.reset(group, "--all-topics", "--to-latest", *flags) == {(topic, 0): 10, (topic, 1): 5}
    assert committed_offsets(broker, group) == committed


def test_an_export_restores_the_offsets_of_a_group(
    tool: ConsumerGroupsTool,
    broker: Peer,
    topic: str,
    group: str,
    committed: dict[Partition, int],
    tmp_path: Path,
) -> None:
    exported = tool(
        "--reset-offsets", "--group", group, "--all-topics", "--to-current", "--export", "--dry-run"
    ).ok()
    assert sorted(exported.split()) == [f"{topic},0,6", f"{topic},1,2"]
    saved = tmp_path / "saved.csv"
    saved.write_text(exported.strip() + "\n")
    tool.reset(group, "--all-topics", "--to-latest", "--execute")
    assert committed_offsets(broker, group) != committed
    tool.reset(group, "--from-file", str(saved), "--execute")
    assert committed_offsets(broker, group) == committed


def test_export_of_several_groups_restores_them_by_name(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, tmp_path: Path
) -> None:
    left, right = unique_name("group"), unique_name("group")
    both = ("--group", left, "--group", right)
    commit_offsets(broker, left, {(topic, 0): 5})
    commit_offsets(broker, right, {(topic, 0): 8, (topic, 1): 1})
    exported = tool("--reset-offsets", *both, "--all-topics", "--to-current", "--export", "--dry-run").ok()
    assert sorted(exported.split()) == sorted(
        [f"{left},{topic},0,5", f"{right},{topic},0,8", f"{right},{topic},1,1"]
    )
    saved = tmp_path / "saved.csv"
    saved.write_text(exported.strip() + "\n")
    rows = tool.rows("--reset-offsets", *both, "--all-topics", "--to-earliest", "--execute")
    assert {(row["GROUP"], row["PARTITION"], row["NEW-OFFSET"]) for row in rows} == {
        (left, "0", "4"), (right, "0", "4"), (right, "1", "0"),
    }  # fmt: skip
    tool("--reset-offsets", *both, "--from-file", str(saved), "--execute").ok()
    assert committed_offsets(broker, left) == {(topic, 0): 5}
    assert committed_offsets(broker, right) == {(topic, 0): 8, (topic, 1): 1}


# --- scopes


def test_only_the_topics_and_partitions_that_are_named_are_reset(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, new_topic: NewTopic, group: str
) -> None:
    other, untouched = new_topic(2), new_topic()
    send_to_all(broker, other, 2, 3)
    before = {(topic, 0): 6, (topic, 1): 2, (other, 0): 0, (untouched, 0): 0}
    commit_offsets(broker, group, before)
    named = ("--topic", f"{topic}:1,2", "--topic", other)
    after = {(topic, 1): 5, (topic, 2): 0, (other, 0): 3, (other, 1): 3}
    assert tool.reset(group, *named, "--to-latest", "--execute") == after
    assert committed_offsets(broker, group) == before | after


def test_all_topics_are_those_with_an_offset(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, new_topic: NewTopic, group: str
) -> None:
    other = new_topic(2)
    send_to_all(broker, other, 2, 3)
    commit_offsets(broker, group, {(topic, 0): 6, (other, 1): 1})
    after = {(topic, 0): 10, (other, 1): 3}
    assert tool.reset(group, "--all-topics", "--to-latest", "--execute") == after
    assert committed_offsets(broker, group) == after


def test_all_groups_without_members_are_reset(java: ToolServer, strict_broker: Peer) -> None:
    tool = ConsumerGroupsTool(server=java, bootstrap=strict_broker.bootstrap)  # with no groups of others
    topic, active, one, two = unique_name(), *(unique_name("group") for _ in range(3))
    create_topic(strict_broker, topic)
    send_to_all(strict_broker, topic, 1, 3)
    for empty in (one, two):
        commit_offsets(strict_broker, empty, {(topic, 0): 1})
    with quiet_member(strict_broker, active, topic) as member:
        wait_for_shares([member], [(topic, 0)])
        member.commit({(topic, 0): 2})
        rows = tool.rows("--reset-offsets", "--all-groups", "--topic", topic, "--to-latest", "--execute")
        assert committed_offsets(strict_broker, active) == {(topic, 0): 2}
    reset = {row["GROUP"]: row["NEW-OFFSET"] for row in rows}
    assert (reset[one], reset[two]) == ("3", "3")
    assert active not in reset
    for empty in (one, two):
        assert committed_offsets(strict_broker, empty) == {(topic, 0): 3}


# --- which groups


def test_a_group_with_members_is_not_reset(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, group: str
) -> None:
    with quiet_member(broker, group, topic) as member:
        wait_for_shares([member], [(topic, index) for index in range(3)])
        member.commit({(topic, 0): 6})
        refused = tool(
            "--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute"
        ).ok()
        assert "Stable" in refused
        assert committed_offsets(broker, group) == {(topic, 0): 6}
    wanted = {(topic, 0): 4, (topic, 1): 0, (topic, 2): 0}
    assert tool.reset(group, "--topic", topic, "--to-earliest", "--execute") == wanted  # now that it has left


def test_a_group_that_does_not_exist_is_made_by_its_reset(
    tool: ConsumerGroupsTool, topic: str, group: str
) -> None:
    arguments = (group, "--topic", f"{topic}:0", "--to-offset", "7")
    assert tool.reset(*arguments, "--dry-run") == {(topic, 0): 7}
    assert group not in tool.groups("--state")
    assert tool.reset(*arguments, "--execute") == {(topic, 0): 7}
    assert tool.groups("--state", "--type")[group] == {"GROUP": group, "TYPE": "Classic", "STATE": "Empty"}
    row = tool.describe(group)[topic, 0]
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("7", "10", "3")


def test_a_topic_that_does_not_exist_is_not_reset(tool: ConsumerGroupsTool, broker: Peer, group: str) -> None:
    absent = unique_name("absent")
    refused = tool("--reset-offsets", "--group", group, "--topic", absent, "--to-latest", "--execute")
    assert "UnknownTopicOrPartitionException" in refused.out + refused.err
    assert committed_offsets(broker, group) == {}


# --- what a consumer then reads


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("--to-earliest", [4, 5, 6, 7, 8, 9]),
        ("--to-offset 8", [8, 9]),
        ("--shift-by -1", [9]),
        ("--by-duration PT3H30M", [7, 8, 9]),
    ],
)
def test_a_member_goes_on_where_its_group_was_reset_to(
    tool: ConsumerGroupsTool, broker: Peer, topic: str, group: str, mode: str, expected: list[int]
) -> None:
    with quiet_member(broker, group, topic) as before:
        wait_until_handled([before], topic, [LOG_END, 5])
        before.commit({(topic, 0): LOG_END, (topic, 1): 5})
    tool.reset(group, "--topic", f"{topic}:0", *mode.split(), "--execute")
    with quiet_member(broker, group, topic) as after:
        wait_until_handled([after], topic, [LOG_END])
        wait_for_shares([after], [(topic, index) for index in range(3)])
        assert after.offsets_handled(topic, 0) == expected
        assert after.offsets_handled(topic, 1) == []  # not reset: nothing is left to read


def test_member_of_group_reset_to_latest_waits_for_records(
    tool: ConsumerGroupsTool, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    send_to_all(broker, topic, 1, 5)
    tool.reset(group, "--topic", topic, "--to-latest", "--execute")
    send_to_all(broker, topic, 1, 2)
    with quiet_member(broker, group, topic) as member:  # else from the earliest offset
        wait_until_handled([member], topic, [7])
        assert member.offsets_handled(topic, 0) == [5, 6]
