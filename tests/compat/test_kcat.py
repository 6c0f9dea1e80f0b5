"""kcat: list, produce and consume from the command line."""

import json
import subprocess

import pytest

from tests.compat.conftest import NewTopic, Peer
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC

pytestmark = pytest.mark.usefixtures("kcat")


def kcat(broker: Peer, *arguments: str, stdin: str = "") -> str:
    """kcat's standard output. Raises when it fails."""
    done = subprocess.run(
        ["kcat", "-b", broker.bootstrap, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_it_lists_brokers_topics_and_partitions(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=3)
    listed = json.loads(kcat(broker, "-L", "-J"))
    assert [one["name"] for one in listed["brokers"]] == [broker.bootstrap]
    assert listed["controllerid"] == listed["brokers"][0]["id"]
    row = next(one for one in listed["topics"] if one["topic"] == topic)
    assert sorted(one["partition"] for one in row["partitions"]) == [0, 1, 2]
    assert {one["leader"] for one in row["partitions"]} == {listed["brokers"][0]["id"]}
    assert all(one["isrs"] for one in row["partitions"])


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_it_produces_it_consumes(broker: Peer, new_topic: NewTopic, codec: str) -> None:
    topic = new_topic()
    lines = [f"key{number}:value {number} äöü" for number in range(500)]
    kcat(broker, "-P", "-t", topic, "-p", "0", "-K:", "-z", codec, "-H", "kind=test", stdin="\n".join(lines))
    out = kcat(broker, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-e", "-q", "-f", "%o %h %k:%s\n")
    assert out.splitlines() == [f"{n} kind=test {line}" for n, line in enumerate(lines)]


def test_it_reads_from_an_offset_from_the_end_and_from_a_time(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="a\nb\nc\nd\ne")

    def read(*arguments: str) -> list[str]:
        return kcat(broker, "-C", "-t", topic, "-p", "0", "-e", "-q", *arguments).split()

    assert read("-o", "3") == ["d", "e"]
    assert read("-o", "-2") == ["d", "e"]
    assert read("-o", "1", "-c", "2") == ["b", "c"]
    assert read("-o", "s@0") == ["a", "b", "c", "d", "e"]
    assert read("-o", "s@33000000000000") == []


def test_it_asks_for_offsets_by_time(broker: Peer, new_topic: NewTopic) -> None:
    topic = new_topic()
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="a\nb\nc")
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-1").split() == [topic, "[0]", "offset", "3"]
    assert kcat(broker, "-Q", "-t", f"{topic}:0:-2").split() == [topic, "[0]", "offset", "0"]


def test_group_member_resumes_where_the_group_stopped(broker: Peer, new_topic: NewTopic) -> None:
    topic, group = new_topic(), unique_name()
    kcat(broker, "-P", "-t", topic, "-p", "0", stdin="\n".join("abcdef"))

    def take(count: int) -> list[str]:
        return kcat(
            broker, "-G", group, "-X", "auto.offset.reset=earliest", "-q", "-c", str(count), topic
        ).split()

    assert take(4) == ["a", "b", "c", "d"]
    assert take(2) == ["e", "f"]
