"""kafka-console-consumer.sh as a member of a group: the next one goes on where the last one stopped."""

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support import librdkafka
from tests.support.consumer_groups_tool import ConsumerGroupsTool
from tests.support.group_work import committed_offsets, partitions_of
from tests.support.java import CONSOLE_CONSUMER, ToolServer, run_tool
from tests.support.topics import create_topic, unique_name
from tests.support.waiting import wait_until


class Console:
    """The tool in one group; it ends after `count` records, or by itself when none come."""

    def __init__(self, server: ToolServer, broker: Peer, group: str) -> None:
        self._server = server
        self._arguments = ("--bootstrap-server", broker.bootstrap, "--group", group)

    def read(self, topic: str, count: int, *arguments: str) -> list[str]:
        """That many lines."""
        return self._run("--topic", topic, "--max-messages", str(count), "--timeout-ms", "15000", *arguments)

    def read_included(self, pattern: str, count: int) -> list[str]:
        """That many lines of the topics whose names fit, from their beginning."""
        return self._run(
            "--include", pattern, "--max-messages", str(count), "--timeout-ms", "15000", "--from-beginning"
        )

    def read_what_comes_at_once(self, topic: str) -> list[str]:
        """Lines until none comes for a second."""
        return self._run("--topic", topic, "--timeout-ms", "1000")

    def _run(self, *arguments: str) -> list[str]:
        done = self._server.tool(CONSOLE_CONSUMER, *self._arguments, *arguments)
        return done.ok().splitlines()


@pytest.fixture
def group() -> str:
    return unique_name("group")


@pytest.fixture
def console(java: ToolServer, broker: Peer, group: str) -> Console:
    return Console(java, broker, group)


def produce(broker: Peer, topic: str, partition: int, first: int, count: int) -> list[str]:
    """Send lines that name partition and offset."""
    lines = [f"{topic} {partition} {offset}" for offset in range(first, first + count)]
    librdkafka.send_all(librdkafka.producer(broker), topic, [line.encode() for line in lines], partition)
    return lines


@pytest.mark.usefixtures("java_processes")
def test_two_runs_with_their_defaults_share_the_records(
    broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    lines = produce(broker, topic, 0, 0, 50)
    arguments = (
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        topic,
        "--group",
        group,
        "--from-beginning",
    )
    first = run_tool(CONSOLE_CONSUMER, *arguments, "--max-messages", "20").ok()
    assert first.splitlines() == lines[:20]
    assert committed_offsets(broker, group) == {(topic, 0): 20}
    second = run_tool(CONSOLE_CONSUMER, *arguments, "--max-messages", "30").ok()
    assert second.splitlines() == lines[20:]
    assert committed_offsets(broker, group) == {(topic, 0): 50}


def test_runs_over_several_partitions_read_every_record_once(
    console: Console, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic(3)
    lines = [line for partition in range(3) for line in produce(broker, topic, partition, 0, 10)]
    runs = [console.read(topic, count, "--from-beginning") for count in (7, 13, 10)]
    assert [len(run) for run in runs] == [7, 13, 10]
    assert sorted(line for run in runs for line in run) == sorted(lines)
    assert committed_offsets(broker, group) == dict.fromkeys(partitions_of(topic, 3), 10)


def test_a_new_group_starts_at_the_end_and_keeps_its_place(
    console: Console, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    produce(broker, topic, 0, 0, 5)

    def at_the_end() -> bool:
        assert console.read_what_comes_at_once(topic) == []
        return committed_offsets(broker, group) == {(topic, 0): 5}

    wait_until(at_the_end, "a run that was a member before its second was over")
    later = produce(broker, topic, 0, 5, 3)
    # Where a group has an offset, --from-beginning changes nothing.
    assert console.read(topic, 3, "--from-beginning") == later


def test_a_run_goes_on_where_the_group_was_reset_to(
    java: ToolServer, console: Console, broker: Peer, new_topic: NewTopic, group: str
) -> None:
    topic = new_topic()
    lines = produce(broker, topic, 0, 0, 6)
    assert console.read(topic, 6, "--from-beginning") == lines
    tool = ConsumerGroupsTool(server=java, bootstrap=broker.bootstrap)
    assert tool.reset(group, "--topic", topic, "--shift-by", "-2", "--execute") == {(topic, 0): 4}
    assert console.read(topic, 2) == lines[4:]
    assert tool.describe(group)[topic, 0]["LAG"] == "0"


def test_a_run_reads_all_topics_whose_names_fit_a_pattern(console: Console, broker: Peer, group: str) -> None:
    prefix = unique_name("fits")
    names = [f"{prefix}.one", f"{prefix}.two"]
    for name in names:
        create_topic(broker, name, 2)
    lines = [line for name in names for line in produce(broker, name, 1, 0, 4)]
    assert sorted(console.read_included(rf"{prefix}\..*", 8)) == sorted(lines)
    assert committed_offsets(broker, group).items() >= {(name, 1): 4 for name in names}.items()


def test_a_run_without_a_group_leaves_no_offsets(java: ToolServer, broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(2)
    lines = [line for partition in range(2) for line in produce(broker, topic, partition, 0, 5)]
    tool = ConsumerGroupsTool(server=java, bootstrap=broker.bootstrap)
    before = set(tool("--list").ok().split())
    arguments = ("--bootstrap-server", broker.bootstrap, "--topic", topic, "--from-beginning")
    read = java.tool(CONSOLE_CONSUMER, *arguments, "--max-messages", "10", "--timeout-ms", "15000").ok()
    assert sorted(read.splitlines()) == sorted(lines)
    made = set(tool("--list").ok().split()) - before
    assert all(name.startswith("console-consumer-") for name in made)
    assert [committed_offsets(broker, name) for name in made] == [{}] * len(made)
