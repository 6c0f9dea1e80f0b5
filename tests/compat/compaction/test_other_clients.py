"""Consumers in Java, Go and JavaScript that begin in the gaps of a compacted partition."""

import functools
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.compat import tools
from tests.compat.compaction.readers import ONE_BATCH_FETCHES, WHOLE_FETCHES
from tests.compat.conftest import Peer
from tests.support.compacted_topics import CompactedTopic, Update, check_read, gappy_topic
from tests.support.franz_go import FranzMember
from tests.support.group_apis import commit, find_coordinator
from tests.support.java import ToolServer
from tests.support.topics import unique_name
from tests.support.waiting import PATIENCE_SEC, wait_until
from tests.support.wire import connect

pytestmark = pytest.mark.nightly


@pytest.fixture(scope="module")
def gappy(compacting: Peer) -> CompactedTopic:
    """With codecs that KafkaJS reads from Kafka, too."""
    return gappy_topic(compacting, unique_name("gappy"), ("none", "gzip"))


def begins_in(topic: CompactedTopic, step: int) -> Sequence[int]:
    """Offsets over all of the partition, and the last one."""
    return [*range(0, topic.end_offset - 1, step), topic.end_offset - 1]


@pytest.mark.parametrize("fetch_bytes", [WHOLE_FETCHES, ONE_BATCH_FETCHES])
def test_java_consumer_may_begin_at_any_offset(
    gappy: CompactedTopic, compacting: Peer, java: ToolServer, fetch_bytes: int
) -> None:
    last_offset = gappy.end_offset - 1
    config = {
        "bootstrap.servers": compacting.bootstrap,
        "auto.offset.reset": "none",
        "enable.auto.commit": "false",
        "fetch.max.wait.ms": 100,
        "max.partition.fetch.bytes": fetch_bytes,
    }
    for begin in begins_in(gappy, 5):
        records = java.consume(gappy.name, 0, gappy.end_offset, config, offset=begin, last_offset=last_offset)
        updates = [Update(one.offset or 0, one.key or b"", one.value) for one in records]
        check_read(updates, gappy, begin, gappy.end_offset)
        assert updates[-1].offset == last_offset


def commit_once_coordinated(broker: Peer, group: str, topic: str, offset: int) -> None:
    """Commit for partition 0. The first group of a Kafka broker waits for its coordinator."""
    with connect(broker) as wire:
        find_coordinator(wire, [group])
        wait_until(
            lambda: commit(wire, group, {(topic, 0): offset}) == {(topic, 0): 0}, f"{group} has committed"
        )


def has_read(member: FranzMember, offset: int) -> bool:
    return any(row["offset"] == offset for row in member.events("record"))


def test_franz_go_may_begin_in_gaps(gappy: CompactedTopic, compacting: Peer, tmp_path: Path) -> None:
    reason = tools.franz_missing()
    if reason:
        pytest.skip(reason)
    last_offset = gappy.end_offset - 1
    for begin in begins_in(gappy, 17):
        group = unique_name("group")
        commit_once_coordinated(compacting, group, gappy.name, begin)
        with FranzMember(tmp_path, compacting, group, gappy.name) as member:
            wait_until(functools.partial(has_read, member, last_offset), f"{group} has read to the end")
            # It writes no value as an empty one, which nothing here has.
            updates = [
                Update(row["offset"], row["key"].encode(), row["value"].encode() or None)
                for row in member.events("record")
            ]
        check_read(updates, gappy, begin, gappy.end_offset)


def test_kafka_js_may_begin_at_any_offset(gappy: CompactedTopic, compacting: Peer) -> None:
    reason = tools.kafka_js_missing()
    if reason:
        pytest.skip(reason)
    begins = begins_in(gappy, 1)
    program = str(tools.KAFKA_JS_SOURCE / "client.js")
    last = str(gappy.end_offset - 1)
    done = subprocess.run(
        [
            "node",
            program,
            compacting.bootstrap,
            gappy.name,
            unique_name("group"),
            "read",
            last,
            *map(str, begins),
        ],
        capture_output=True,
        text=True,
        timeout=4 * PATIENCE_SEC,
        check=False,
        env=os.environ | {"NODE_PATH": str(tools.KAFKA_JS / "node_modules")},
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(begins)
    for begin, line in zip(begins, lines, strict=True):
        updates = [
            Update(offset, key.encode(), None if value is None else value.encode())
            for offset, key, value in json.loads(line)
        ]
        check_read(updates, gappy, begin, gappy.end_offset)
        assert updates[-1].offset == gappy.end_offset - 1
