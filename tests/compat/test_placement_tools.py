"""Kafka's tools that show and change where partitions are: kafka-topics, reassign-partitions, leader-election."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support import java as tools
from tests.support.java import ToolResult, ToolServer


@pytest.fixture
def run(java: ToolServer, broker: Peer) -> Any:
    """Runs a tool against the broker."""

    def run_it(main: str, *arguments: str) -> ToolResult:
        return java.tool(main, "--bootstrap-server", broker.bootstrap, *arguments)

    return run_it


def assignment(folder: Path, topic: str, replicas: Sequence[int], log_dir: str = "any") -> tuple[str, str]:
    """The option that names a file with an assignment of all three partitions, and the file."""
    partitions = [
        {
            "topic": topic,
            "partition": index,
            "replicas": list(replicas),
            "log_dirs": [log_dir] * len(replicas),
        }
        for index in range(3)
    ]
    path = folder / f"{topic}.json"
    path.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return "--reassignment-json-file", str(path)


def broker_id(run: Any, topic: str) -> int:
    """The broker that leads the topic."""
    told = re.search(r"Leader: (\d+)", run(tools.TOPICS, "--describe", "--topic", topic).ok())
    assert told is not None
    return int(told[1])


def test_topics_are_described_with_every_partition(run: Any, new_topic: NewTopic) -> None:
    topic = new_topic(3)
    lines = run(tools.TOPICS, "--describe", "--topic", topic).ok().splitlines()
    assert "PartitionCount: 3\tReplicationFactor: 1" in lines[0]
    leader = broker_id(run, topic)
    where = f"Leader: {leader}\tReplicas: {leader}\tIsr: {leader}\tElr: \tLastKnownElr:"
    assert [line.strip() for line in lines[1:]] == [
        f"Topic: {topic}\tPartition: {index}\t{where}" for index in range(3)
    ]
    assert run(tools.TOPICS, "--describe", "--unavailable-partitions").ok().strip() == ""


def test_a_large_topic_is_described_over_several_pages(run: Any, new_topic: NewTopic) -> None:
    topic = new_topic(30)
    told = run(tools.TOPICS, "--describe", "--topic", topic, "--partition-size-limit-per-response", "7").ok()
    assert re.findall(r"Partition: (\d+)", told) == [str(index) for index in range(30)]


def test_the_assignment_in_effect_is_executed_and_verified(
    run: Any, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(3)
    file = assignment(tmp_path, topic, [broker_id(run, topic)])
    assert "No partition reassignments found." in run(tools.REASSIGN_PARTITIONS, "--list").ok()
    executed = run(tools.REASSIGN_PARTITIONS, "--execute", *file).ok()
    assert f"Successfully started partition reassignments for {topic}-0,{topic}-1,{topic}-2" in executed
    verified = run(tools.REASSIGN_PARTITIONS, "--verify", *file).ok()
    assert f"Reassignment of partition {topic}-2 is completed." in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
    cancelled = run(tools.REASSIGN_PARTITIONS, "--cancel", *file).ok()
    assert "None of the specified partition reassignments are active." in cancelled


def test_an_assignment_can_be_proposed(run: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(3)
    leader = broker_id(run, topic)
    path = tmp_path / "topics.json"
    path.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    arguments = ("--generate", "--topics-to-move-json-file", str(path), "--broker-list", str(leader))
    told = run(tools.REASSIGN_PARTITIONS, *arguments).ok()
    proposed = json.loads(told.splitlines()[-1])
    assert [one["replicas"] for one in proposed["partitions"]] == [[leader]] * 3


def test_a_log_directory_that_is_not_there_is_named(run: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(3)
    file = assignment(tmp_path, topic, [broker_id(run, topic)], "/no/such/directory")
    refused = run(tools.REASSIGN_PARTITIONS, "--execute", *file)
    assert refused.exit_code == 1
    assert "LogDirNotFoundException" in refused.out + refused.err


@pytest.mark.usefixtures("only_kafscale")
def test_the_log_directory_of_a_partition_is_kept(run: Any, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic(3)
    leader = broker_id(run, topic)
    file = assignment(tmp_path, topic, [leader], "/default")
    run(tools.REASSIGN_PARTITIONS, "--execute", *file).ok()
    verified = run(tools.REASSIGN_PARTITIONS, "--verify", *file).ok()
    assert f"Reassignment of replica {topic}-0-{leader} completed successfully." in verified


@pytest.mark.parametrize("kind", ["preferred", "unclean"])
def test_a_partition_with_a_leader_needs_no_election(run: Any, new_topic: NewTopic, kind: str) -> None:
    topic = new_topic(3)
    one = ("--election-type", kind, "--topic", topic, "--partition", "1")
    told = run(tools.LEADER_ELECTION, *one).ok()
    assert f"Valid replica already elected for partitions {topic}-1" in told
    assert "Error" not in run(tools.LEADER_ELECTION, "--election-type", kind, "--all-topic-partitions").ok()
    unknown = run(tools.LEADER_ELECTION, *one[:3], "no-such-topic", *one[4:])
    assert unknown.exit_code == 1 and "UnknownTopicOrPartitionException" in unknown.out + unknown.err


def test_there_are_no_client_metrics(run: Any) -> None:
    assert run(tools.CLIENT_METRICS, "--list").ok().strip() == ""


@pytest.mark.usefixtures("only_kafscale")
def test_the_quorum_tool_says_that_there_is_none(run: Any) -> None:
    refused = run(tools.METADATA_QUORUM, "describe", "--status")
    assert refused.exit_code == 1
    assert "does not support DESCRIBE_QUORUM" in refused.err
