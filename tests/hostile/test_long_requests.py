"""Requests that name tens of thousands of things: others are served in between, and each thing is answered once."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from kafscale.protocol.api_keys import ApiKey
from tests.support import wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.hand_made import array, frame, repeated, string
from tests.support.nightly import nightly_but
from tests.support.watcher import GIVE_UP_SEC, TOPIC, watching

DUPLICATES = 9_900
MANY = 99_000
TOPIC_CONFIG, LATEST, SET, APPEND = 2, -1, 0, 2
ANSWER_ONCE_MAX_BYTES = 1_000


def fetch(partitions: bytes, *, max_wait_ms: int = 100) -> bytes:
    body = struct.pack(">iiiib", -1, max_wait_ms, 1, 1 << 20, 0) + array([string(TOPIC) + partitions])
    return frame(ApiKey.FETCH, 4, body)


def fetched(index: int, offset: int = 0) -> bytes:
    return struct.pack(">iqi", index, offset, 1 << 20)


def list_offsets(partitions: bytes) -> bytes:
    return frame(ApiKey.LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string(TOPIC) + partitions]))


def epochs(partitions: bytes) -> bytes:
    return frame(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, array([string(TOPIC) + partitions]))


def delete_records(partitions: bytes) -> bytes:
    return frame(ApiKey.DELETE_RECORDS, 0, array([string(TOPIC) + partitions]) + struct.pack(">i", 30_000))


def names(count: int, prefix: str = "no.such_topic-") -> Iterator[bytes]:
    return (string(f"{prefix}{index}") for index in range(count))


def new_topics(count: int) -> bytes:
    rest = struct.pack(">ih", 1, 1) + array([]) + array([])
    body = array(name + rest for name in names(count)) + struct.pack(">i?", 60_000, True)
    return frame(ApiKey.CREATE_TOPICS, 2, body)


def configs(operation: bytes) -> bytes:
    one = string("retention.ms") + operation + string("1")
    return array(struct.pack(">b", TOPIC_CONFIG) + name + array([one]) for name in names(MANY // 3)) + b"\x01"


ANSWERED_ONCE = {
    "Fetch": fetch(repeated(fetched(0), DUPLICATES)),
    "Fetch above the end": fetch(repeated(fetched(0, 1 << 40), DUPLICATES)),
    "ListOffsets": list_offsets(repeated(struct.pack(">iq", 0, LATEST), DUPLICATES)),
    "OffsetForLeaderEpoch": epochs(repeated(struct.pack(">iii", 0, -1, 0), DUPLICATES)),
    "DeleteRecords": delete_records(repeated(struct.pack(">iq", 0, 0), DUPLICATES)),
}

MANY_THINGS = {
    "Fetch": fetch(array(fetched(index) for index in range(MANY))),
    "Fetch of many topics": frame(
        ApiKey.FETCH,
        4,
        struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0)
        + array(name + array([fetched(0)]) for name in names(MANY // 2)),
    ),
    "ListOffsets": list_offsets(array(struct.pack(">iq", index, LATEST) for index in range(MANY))),
    "OffsetForLeaderEpoch": epochs(array(struct.pack(">iii", index, -1, 0) for index in range(MANY))),
    "DeleteRecords": delete_records(array(struct.pack(">iq", index, 0) for index in range(MANY))),
    "Metadata": frame(ApiKey.METADATA, 4, array(names(MANY)) + b"\x00"),
    "Metadata, creating": frame(ApiKey.METADATA, 4, array(names(3_000)) + b"\x01"),
    "CreateTopics, only validated": new_topics(10_000),
    "CreateTopics, too many": new_topics(20_000),
    "CreatePartitions, only validated": frame(
        ApiKey.CREATE_PARTITIONS,
        0,
        array(name + struct.pack(">ii", 3, -1) for name in names(MANY // 3))
        + struct.pack(">i?", 30_000, True),
    ),
    "DeleteTopics": frame(ApiKey.DELETE_TOPICS, 3, array(names(MANY)) + struct.pack(">i", 30_000)),
    "AlterConfigs": frame(ApiKey.ALTER_CONFIGS, 0, configs(b"")),
    "IncrementalAlterConfigs": frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, configs(bytes([SET]))),
    "CreateAcls": frame(
        ApiKey.CREATE_ACLS,
        1,
        repeated(b"\x02" + string("t") + b"\x03" + string("User:a") + string("*") + b"\x03\x03", MANY),
    ),
    "DescribeLogDirs": frame(
        ApiKey.DESCRIBE_LOG_DIRS, 1, array(name + repeated(b"\x00" * 4, 1) for name in names(MANY // 2))
    ),
    "DescribeGroups": frame(ApiKey.DESCRIBE_GROUPS, 0, array(names(MANY))),
    "OffsetFetch": frame(
        ApiKey.OFFSET_FETCH,
        1,
        string("group") + array(name + repeated(b"\x00" * 4, 1) for name in names(MANY // 2)),
    ),
    "OffsetCommit": frame(
        ApiKey.OFFSET_COMMIT,
        2,
        string("group")
        + struct.pack(">i", -1)
        + string("")
        + struct.pack(">q", -1)
        + array([string(TOPIC) + array(struct.pack(">iq", index, 0) + string("") for index in range(MANY))]),
    ),
    "OffsetDelete": frame(
        ApiKey.OFFSET_DELETE,
        0,
        string("group") + array([string(TOPIC) + array(struct.pack(">i", index) for index in range(MANY))]),
    ),
    "LeaveGroup": frame(
        ApiKey.LEAVE_GROUP, 3, string("group") + array(name + string(None) for name in names(MANY))
    ),
    "Produce": frame(
        ApiKey.PRODUCE,
        3,
        string(None)
        + struct.pack(">hi", -1, 30_000)
        + array([string(TOPIC) + array(struct.pack(">ii", index, 0) for index in range(MANY))]),
    ),
    "Produce to many topics": frame(
        ApiKey.PRODUCE,
        3,
        string(None)
        + struct.pack(">hi", -1, 30_000)
        + array(name + array([struct.pack(">ii", 0, 0)]) for name in names(MANY // 2)),
    ),
    "DeleteGroups": frame(ApiKey.DELETE_GROUPS, 0, array(names(20_000))),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        yield broker


@pytest.mark.parametrize("name", list(ANSWERED_ONCE))
def test_partition_named_9900_times_stalls_nobody(name: str, broker: KafscaleBroker) -> None:
    with watching(broker) as watcher:
        with wire.connect(broker, GIVE_UP_SEC) as attacker:
            attacker.send_bytes(ANSWERED_ONCE[name])
            assert len(attacker.receive_frame()) < ANSWER_ONCE_MAX_BYTES
        watcher.wait_for_rounds()


@pytest.mark.parametrize("name", nightly_but(MANY_THINGS, "Fetch", "Metadata", "DeleteTopics", "OffsetFetch"))
def test_request_that_names_much_stalls_nobody(name: str, broker: KafscaleBroker) -> None:
    with watching(broker) as watcher:
        with wire.connect(broker, GIVE_UP_SEC) as attacker:
            attacker.send_bytes(MANY_THINGS[name])
            attacker.receive_frame()
        watcher.wait_for_rounds()
