"""Requests about placement and quotas with as many names as a request may have: others are served meanwhile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from kafscale.protocol.wire import MAX_ARRAY_ELEMENTS
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.flexible_body import NO_TAGS, array, int32, int32s, text
from tests.support.nightly import by_day
from tests.support.topics import create_topic
from tests.support.watcher import GIVE_UP_SEC, watching

TOPIC = "attacked"
PARTITIONS = MAX_ARRAY_ELEMENTS - 100
REQUESTS = by_day(1, by_night=3)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path_factory.mktemp("placement"), flush_interval_ms=5) as started:
        create_topic(started, TOPIC, 3)
        yield started


def frame(api_key: int, version: int, body: bytes) -> bytes:
    """A request with a flexible header: client id null, no tags."""
    header = api_key.to_bytes(2, "big") + version.to_bytes(2, "big") + int32(1) + b"\xff\xff" + NO_TAGS
    return int32(len(header) + len(body)) + header + body


def same_partition(count: int) -> bytes:
    return array([text(TOPIC) + int32s([0] * count) + NO_TAGS])


def cancellations(count: int) -> bytes:
    return array([text(TOPIC) + array([int32(0) + b"\x00" + NO_TAGS] * count) + NO_TAGS])


def entities(count: int) -> bytes:
    return array(
        array([text("user") + text(f"u{n:06d}") + NO_TAGS]) + b"\x01" + NO_TAGS for n in range(count)
    )


def quotas_of_one(count: int) -> bytes:
    quotas = array(text(f"q{n:06d}") + bytes(9) + NO_TAGS for n in range(count))
    return array([array([text("user") + text("u") + NO_TAGS]) + quotas + NO_TAGS])


def topics(count: int) -> bytes:
    return array(text(f"t{n:06d}") + NO_TAGS for n in range(count))


def many_replicas(count: int) -> bytes:
    partition = int32(0) + int32s(range(count)) + NO_TAGS
    return array([text(TOPIC) + array([partition]) + NO_TAGS])


@dataclass(frozen=True, slots=True)
class Attack:
    """A request of one API. Its body is made when it is needed: it is megabytes, and every worker imports this."""

    api_key: int
    version: int
    body: Callable[[], bytes]


ATTACKS = {
    "AlterClientQuotas of many entities": Attack(49, 1, lambda: entities(PARTITIONS // 3) + b"\x00"),
    "AlterClientQuotas of many quotas": Attack(49, 1, lambda: quotas_of_one(PARTITIONS) + b"\x00"),
    "DescribeTopicPartitions": Attack(75, 0, lambda: topics(PARTITIONS) + int32(2000) + b"\xff"),
    "ListPartitionReassignments": Attack(46, 0, lambda: int32(9) + same_partition(PARTITIONS)),
    "AlterPartitionReassignments": Attack(45, 0, lambda: int32(9) + cancellations(PARTITIONS)),
    "AlterPartitionReassignments of many replicas": Attack(
        45, 0, lambda: int32(9) + many_replicas(PARTITIONS)
    ),
    "ElectLeaders": Attack(43, 2, lambda: b"\x00" + same_partition(PARTITIONS) + int32(9)),
    "ListConfigResources": Attack(74, 1, lambda: array([b"\x02"] * PARTITIONS)),
    "AlterReplicaLogDirs": Attack(
        34, 2, lambda: array([text("/default") + same_partition(PARTITIONS) + NO_TAGS])
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_as_many_names_as_there_may_be_stall_no_client(broker: KafscaleBroker, attack: str) -> None:
    api_key, version, body = ATTACKS[attack].api_key, ATTACKS[attack].version, ATTACKS[attack].body()
    request = frame(api_key, version, body + NO_TAGS)
    with watching(broker) as watcher, wire.connect(broker, GIVE_UP_SEC) as connection:
        connection.send_bytes(request * REQUESTS)
        sizes = [len(connection.receive_frame()) for _ in range(REQUESTS)]
        watcher.wait_for_rounds()
    assert len(set(sizes)) == 1
