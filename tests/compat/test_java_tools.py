"""Kafka's own command-line tools, run as their users run them."""

import json
import re
from pathlib import Path

import pytest

from tests.compat.conftest import AUTO_CREATE_PARTITIONS, NewTopic, Peer
from tests.support import java as tools
from tests.support.java import JavaRecord, ToolResult, ToolServer, run_tool
from tests.support.topics import unique_name
from tests.support.waiting import wait_until

TIME_MS = 1_700_000_000_000


class Tools:
    """The tools, each with `--bootstrap-server` of one broker."""

    def __init__(self, server: ToolServer, broker: Peer) -> None:
        self._server = server
        self._bootstrap = broker.bootstrap

    def __call__(self, main: str, *arguments: str, stdin: str = "") -> ToolResult:
        return self._server.tool(main, "--bootstrap-server", self._bootstrap, *arguments, stdin=stdin)

    def topics(self, *arguments: str) -> ToolResult:
        return self(tools.TOPICS, *arguments)

    def configs(self, *arguments: str) -> ToolResult:
        return self(tools.CONFIGS, *arguments)

    def produce(self, topic: str, lines: list[str], *arguments: str) -> None:
        self(tools.CONSOLE_PRODUCER, "--topic", topic, *arguments, stdin="\n".join(lines)).ok()

    def consume(self, topic: str, count: int, *arguments: str) -> list[str]:
        """Lines from partition 0."""
        return (
            self(
                tools.CONSOLE_CONSUMER, "--topic", topic, "--partition", "0", "--max-messages", str(count),
                "--timeout-ms", "15000", *arguments,
            )
            .ok()
            .splitlines()
        )  # fmt: skip


@pytest.fixture
def run(java: ToolServer, broker: Peer) -> Tools:
    return Tools(java, broker)


@pytest.mark.usefixtures("java_processes")
def test_console_producer_to_consumer_with_default_settings(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    lines = [f"line {number} äöü" for number in range(2000)]
    address = ("--bootstrap-server", broker.bootstrap, "--topic", topic)
    produced = run_tool(tools.CONSOLE_PRODUCER, *address, stdin="\n".join(lines))
    assert "ERROR" not in produced.err
    produced.ok()
    consumed = run_tool(
        tools.CONSOLE_CONSUMER, *address, "--partition", "0", "--offset", "earliest", "--max-messages", "2000"
    ).ok()
    assert consumed.splitlines() == lines


def test_console_consumer_reads_from_an_offset_with_every_field(run: Tools, new_topic: NewTopic) -> None:
    topic = new_topic()
    properties = ["parse.key=true", "parse.headers=true"]
    arguments = [part for one in properties for part in ("--property", one)]
    run.produce(topic, [f"h:{number}\tk{number}\tv{number}" for number in range(5)], *arguments)
    printed = ["print.offset=true", "print.key=true", "print.headers=true", "print.partition=true"]
    arguments = [part for one in printed for part in ("--property", one)]
    assert run.consume(topic, 2, "--offset", "3", *arguments) == [
        "Partition:0\tOffset:3\th:3\tk3\tv3",
        "Partition:0\tOffset:4\th:4\tk4\tv4",
    ]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_console_producer_compresses(run: Tools, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    lines = [f"{number} " + "text " * 50 for number in range(200)]
    run.produce(topic, lines, "--compression-codec", codec)
    assert run.consume(topic, 200, "--offset", "earliest") == lines


def test_console_producer_creates_the_topic_it_names(run: Tools) -> None:
    topic = unique_name()
    run.produce(topic, ["first"])
    described = run.topics("--describe", "--topic", topic).ok()
    assert f"PartitionCount: {AUTO_CREATE_PARTITIONS}" in described


def test_topics_are_created_listed_described_altered_and_deleted(run: Tools) -> None:
    topic = unique_name()
    run.topics(
        "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1",
        "--config", "retention.ms=3600000",
    ).ok()  # fmt: skip
    assert topic in run.topics("--list").ok().split()
    described = run.topics("--describe", "--topic", topic).ok()
    assert re.search(r"TopicId: [\w-]{22}\s+PartitionCount: 2\s+ReplicationFactor: 1", described)
    assert "retention.ms=3600000" in described
    assert re.search(r"Partition: 1\s+Leader: (\d+)\s+Replicas: \1\s+Isr: \1", described)

    run.topics("--alter", "--topic", topic, "--partitions", "4").ok()
    wait_until(
        lambda: "PartitionCount: 4" in run.topics("--describe", "--topic", topic).ok(), "four partitions"
    )
    fewer = run.topics("--alter", "--topic", topic, "--partitions", "3")
    assert fewer.exit_code == 1
    assert "InvalidPartitionsException" in fewer.out + fewer.err

    run.topics("--delete", "--topic", topic).ok()
    wait_until(lambda: topic not in run.topics("--list").ok().split(), "the topic is gone")


def test_topics_are_created_with_the_brokers_defaults(run: Tools) -> None:
    topic = unique_name()
    run.topics("--create", "--topic", topic).ok()
    assert f"PartitionCount: {AUTO_CREATE_PARTITIONS}" in run.topics("--describe", "--topic", topic).ok()


def test_topics_says_what_is_wrong(run: Tools, new_topic: NewTopic) -> None:
    taken, absent = new_topic(), unique_name("absent")
    again = run.topics("--create", "--topic", taken)
    assert again.exit_code == 1
    assert f"Topic '{taken}' already exists" in again.out + again.err
    run.topics("--create", "--if-not-exists", "--topic", taken).ok()
    gone = run.topics("--delete", "--topic", absent)
    assert gone.exit_code == 1
    bad = run.topics("--create", "--topic", absent, "--config", "no.such.key=1")
    assert bad.exit_code == 1


def test_topics_filters_by_what_is_at_minimum_or_below(run: Tools, new_topic: NewTopic) -> None:
    topic = new_topic()
    assert topic not in run.topics("--describe", "--under-replicated-partitions").ok()
    assert topic not in run.topics("--describe", "--unavailable-partitions").ok()
    assert topic in run.topics("--describe", "--exclude-internal").ok()


def test_a_topics_configs_are_added_described_and_deleted(run: Tools, new_topic: NewTopic) -> None:
    topic = new_topic()
    entity = ("--entity-type", "topics", "--entity-name", topic)

    def described(*arguments: str) -> str:
        return run.configs("--describe", *entity, *arguments).ok()

    run.configs("--alter", *entity, "--add-config", "retention.ms=100000,max.message.bytes=5000").ok()
    wait_until(lambda: "retention.ms=100000" in described(), "the new value")
    assert "max.message.bytes=5000" in described()
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=100000" in described()
    everything = described("--all")
    assert "message.timestamp.type=CreateTime" in everything
    assert "DEFAULT_CONFIG:" in everything

    run.configs("--alter", *entity, "--delete-config", "retention.ms").ok()
    wait_until(lambda: "retention.ms" not in described(), "the value is gone")
    assert "max.message.bytes=5000" in described()

    unknown = run.configs("--alter", *entity, "--add-config", "no.such.key=1")
    assert unknown.exit_code == 1
    assert "InvalidConfigurationException" in unknown.out + unknown.err
    illegal = run.configs("--alter", *entity, "--add-config", "retention.ms=soon")
    assert illegal.exit_code == 1


def test_the_brokers_configs_are_described(run: Tools) -> None:
    listed = run(tools.BROKER_API_VERSIONS).ok()
    match = re.search(r"\(id: (\d+)", listed)
    assert match is not None
    described = run.configs(
        "--describe", "--entity-type", "brokers", "--entity-name", match.group(1), "--all"
    ).ok()
    assert "auto.create.topics.enable=true" in described
    assert f"num.partitions={AUTO_CREATE_PARTITIONS}" in described
    assert "message.max.bytes=1048588" in described


def test_get_offsets_answers_every_kind_of_time(
    run: Tools, java: ToolServer, broker: Peer, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=2)
    config = {"bootstrap.servers": broker.bootstrap}
    for stamp in (1000, 3000, 2000):  # one batch each
        record = JavaRecord(value=b"x", partition=0, timestamp=TIME_MS + stamp)
        assert java.produce(topic, [record], config)[0]["timestamp"] == TIME_MS + stamp

    def offsets(*arguments: str) -> list[str]:
        return run(tools.GET_OFFSETS, "--topic", topic, *arguments).ok().split()

    assert offsets() == [f"{topic}:0:3", f"{topic}:1:0"]
    assert offsets("--time", "latest") == offsets("--time", "-1") == offsets()
    assert offsets("--time", "earliest") == offsets("--time", "-2") == [f"{topic}:0:0", f"{topic}:1:0"]
    assert offsets("--time", "max-timestamp") == offsets("--time", "-3")
    assert f"{topic}:0:1" in offsets("--time", "max-timestamp")
    assert f"{topic}:0:1" in offsets("--time", str(TIME_MS + 1001))
    assert offsets("--partitions", "1") == [f"{topic}:1:0"]
    pattern = run(tools.GET_OFFSETS, "--topic-partitions", f"{topic}:0-1").ok()
    assert pattern.split() == [f"{topic}:0:3"]


def test_producer_perf_test_sends_all_its_records(
    java: ToolServer, broker: Peer, run: Tools, new_topic: NewTopic
) -> None:
    topic = new_topic(partitions=3)
    result = java.tool(
        tools.PRODUCER_PERF_TEST, "--topic", topic, "--num-records", "20000", "--record-size", "200",
        "--throughput", "-1", "--producer-props", f"bootstrap.servers={broker.bootstrap}",
    ).ok()  # fmt: skip
    assert re.search(r"^20000 records sent, .* 99\.9th\.$", result.strip().splitlines()[-1]), result
    offsets = run(tools.GET_OFFSETS, "--topic", topic).ok().split()
    assert sum(int(line.rsplit(":", 1)[1]) for line in offsets) == 20_000


def test_broker_api_versions_finds_every_api_usable(run: Tools) -> None:
    printed = run(tools.BROKER_API_VERSIONS).ok()
    rows = dict(re.findall(r"^\t(\w+)\(\d+\): .*\[usable: (\d+)\]", printed, re.MULTILINE))
    for api in ("Produce", "Fetch", "ListOffsets", "Metadata", "CreateTopics", "InitProducerId"):
        assert api in rows, printed


def test_log_dirs_reports_the_size_of_each_partition(run: Tools, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2)
    for number in range(3):
        run.produce(topic, [f"{number} " + "x" * 1000] * 50)
    printed = run(tools.LOG_DIRS, "--describe", "--topic-list", topic).ok()
    report = json.loads(printed.strip().splitlines()[-1])
    sizes = {
        one["partition"]: one["size"]
        for broker in report["brokers"]
        for folder in broker["logDirs"]
        for one in folder["partitions"]
    }
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sum(sizes.values()) > 1000  # compressed, but not nothing


def test_delete_records_moves_the_log_start(run: Tools, new_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_topic()
    run.produce(topic, [f"line {number}" for number in range(10)])
    offsets = tmp_path / "offsets.json"
    offsets.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 7}]})
    )
    printed = run(tools.DELETE_RECORDS, "--offset-json-file", str(offsets)).ok()
    assert f"partition: {topic}-0\tlow_watermark: 7" in printed
    assert run(tools.GET_OFFSETS, "--topic", topic, "--time", "earliest").ok().split() == [f"{topic}:0:7"]
    assert run.consume(topic, 3, "--offset", "earliest") == ["line 7", "line 8", "line 9"]
