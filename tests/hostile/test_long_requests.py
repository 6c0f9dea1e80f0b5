"""Requests that name tens of thousands of things: others are served in between, and each thing is answered once."""

import struct
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from kafscale.protocol.api_keys import ApiKey
from tests.support import flexible_body, wire
from tests.support.broker import KafscaleBroker, running_broker
from tests.support.flexible_body import NO_TAGS, NULL
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


def fetched(index: int, offset: int = 0, max_bytes: int = 1 << 20) -> bytes:
    return struct.pack(">iqi", index, offset, max_bytes)


def list_offsets(partitions: bytes) -> bytes:
    return frame(ApiKey.LIST_OFFSETS, 1, struct.pack(">i", -1) + array([string(TOPIC) + partitions]))


def epochs(partitions: bytes) -> bytes:
    return frame(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, array([string(TOPIC) + partitions]))


def delete_records(partitions: bytes) -> bytes:
    return frame(ApiKey.DELETE_RECORDS, 0, array([string(TOPIC) + partitions]) + struct.pack(">i", 30_000))


def describe_producers(indexes: Iterable[int]) -> bytes:
    topic = flexible_body.text(TOPIC) + flexible_body.int32s(indexes) + NO_TAGS
    return frame(ApiKey.DESCRIBE_PRODUCERS, 0, NO_TAGS + flexible_body.array([topic]) + NO_TAGS)


def names(count: int, prefix: str = "no.such_topic-") -> Iterator[bytes]:
    return (string(f"{prefix}{index}") for index in range(count))


def ids(count: int, rest: bytes) -> Iterator[bytes]:
    """Topics by ids that no topic has, each with `rest`."""
    return (index.to_bytes(16) + rest for index in range(1, count + 1))


def consumer_heartbeat() -> bytes:
    subscribed = flexible_body.array(
        flexible_body.text(f"no.such_topic-{index}") for index in range(MANY // 2)
    )
    owned = flexible_body.array(ids(MANY // 4, flexible_body.int32s([0]) + NO_TAGS))
    start = NO_TAGS + flexible_body.text("group") + flexible_body.text("member") + struct.pack(">i", 1)
    body = start + 2 * NULL + struct.pack(">i", -1) + subscribed + 2 * NULL + owned + NO_TAGS
    return frame(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, body)


def offset_fetch_by_id() -> bytes:
    topics = flexible_body.array(ids(MANY // 2 - 10, flexible_body.int32s([0]) + NO_TAGS))
    group = flexible_body.text("group") + NULL + struct.pack(">i", -1) + topics + NO_TAGS
    return frame(ApiKey.OFFSET_FETCH, 10, NO_TAGS + flexible_body.array([group]) + b"\x00" + NO_TAGS)


def offset_commit_by_id() -> bytes:
    partition = struct.pack(">iqi", 0, 0, -1) + flexible_body.text("") + NO_TAGS
    topics = flexible_body.array(ids(MANY // 2 - 10, flexible_body.array([partition]) + NO_TAGS))
    start = NO_TAGS + flexible_body.text("group") + struct.pack(">i", -1) + flexible_body.text("") + NULL
    return frame(ApiKey.OFFSET_COMMIT, 10, start + topics + NO_TAGS)


def consumer_describe() -> bytes:
    groups = flexible_body.array(flexible_body.text(f"group-{index}") for index in range(MANY))
    return frame(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, NO_TAGS + groups + b"\x01" + NO_TAGS)


def new_topics(count: int) -> bytes:
    rest = struct.pack(">ih", 1, 1) + array([]) + array([])
    body = array(name + rest for name in names(count)) + struct.pack(">i?", 60_000, True)
    return frame(ApiKey.CREATE_TOPICS, 2, body)


def configs(operation: bytes) -> bytes:
    one = string("retention.ms") + operation + string("1")
    return array(struct.pack(">b", TOPIC_CONFIG) + name + array([one]) for name in names(MANY // 3)) + b"\x01"


# Each is made for its own test: together they are tens of megabytes and a second of work.
ANSWERED_ONCE: dict[str, Callable[[], bytes]] = {
    # Few bytes, whatever the watcher has written by then.
    "Fetch": lambda: fetch(repeated(fetched(0, max_bytes=400), DUPLICATES)),
    "Fetch above the end": lambda: fetch(repeated(fetched(0, 1 << 40), DUPLICATES)),
    "ListOffsets": lambda: list_offsets(repeated(struct.pack(">iq", 0, LATEST), DUPLICATES)),
    "OffsetForLeaderEpoch": lambda: epochs(repeated(struct.pack(">iii", 0, -1, 0), DUPLICATES)),
    "DeleteRecords": lambda: delete_records(repeated(struct.pack(">iq", 0, 0), DUPLICATES)),
    "DescribeProducers": lambda: describe_producers(0 for _ in range(DUPLICATES)),
}

MANY_THINGS: dict[str, Callable[[], bytes]] = {
    "Fetch": lambda: fetch(array(fetched(index) for index in range(MANY))),
    "Fetch of many topics": lambda: frame(
        ApiKey.FETCH,
        4,
        struct.pack(">iiiib", -1, 100, 1, 1 << 20, 0)
        + array(name + array([fetched(0)]) for name in names(MANY // 2)),
    ),
    "ListOffsets": lambda: list_offsets(array(struct.pack(">iq", index, LATEST) for index in range(MANY))),
    "OffsetForLeaderEpoch": lambda: epochs(array(struct.pack(">iii", index, -1, 0) for index in range(MANY))),
    "DeleteRecords": lambda: delete_records(array(struct.pack(">iq", index, 0) for index in range(MANY))),
    "DescribeProducers": lambda: describe_producers(range(MANY)),
    "Metadata": lambda: frame(ApiKey.METADATA, 4, array(names(MANY)) + b"\x00"),
    "Metadata, creating": lambda: frame(ApiKey.METADATA, 4, array(names(3_000)) + b"\x01"),
    "CreateTopics, only validated": lambda: new_topics(10_000),
    "CreateTopics, too many": lambda: new_topics(20_000),
    "CreatePartitions, only validated": lambda: frame(
        ApiKey.CREATE_PARTITIONS,
        0,
        array(name + struct.pack(">ii", 3, -1) for name in names(MANY // 3))
        + struct.pack(">i?", 30_000, True),
    ),
    "DeleteTopics": lambda: frame(ApiKey.DELETE_TOPICS, 3, array(names(MANY)) + struct.pack(">i", 30_000)),
    "AlterConfigs": lambda: frame(ApiKey.ALTER_CONFIGS, 0, configs(b"")),
    "IncrementalAlterConfigs": lambda: frame(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, configs(bytes([SET]))),
    "CreateAcls": lambda: frame(
        ApiKey.CREATE_ACLS,
        1,
        repeated(b"\x02" + string("t") + b"\x03" + string("User:a") + string("*") + b"\x03\x03", MANY),
    ),
    "DescribeLogDirs": lambda: frame(
        ApiKey.DESCRIBE_LOG_DIRS, 1, array(name + repeated(b"\x00" * 4, 1) for name in names(MANY // 2))
    ),
    "DescribeGroups": lambda: frame(ApiKey.DESCRIBE_GROUPS, 0, array(names(MANY))),
    "OffsetFetch": lambda: frame(
        ApiKey.OFFSET_FETCH,
        1,
        string("group") + array(name + repeated(b"\x00" * 4, 1) for name in names(MANY // 2)),
    ),
    "OffsetCommit": lambda: frame(
        ApiKey.OFFSET_COMMIT,
        2,
        string("group")
        + struct.pack(">i", -1)
        + string("")
        + struct.pack(">q", -1)
        + array([string(TOPIC) + array(struct.pack(">iq", index, 0) + string("") for index in range(MANY))]),
    ),
    "TxnOffsetCommit": lambda: frame(
        ApiKey.TXN_OFFSET_COMMIT,
        0,
        string("copier")
        + string("group")
        + struct.pack(">qh", 7, 0)
        + array([string(TOPIC) + array(struct.pack(">iq", index, 0) + string("") for index in range(MANY))]),
    ),
    "OffsetDelete": lambda: frame(
        ApiKey.OFFSET_DELETE,
        0,
        string("group") + array([string(TOPIC) + array(struct.pack(">i", index) for index in range(MANY))]),
    ),
    "LeaveGroup": lambda: frame(
        ApiKey.LEAVE_GROUP, 3, string("group") + array(name + string(None) for name in names(MANY))
    ),
    "Produce": lambda: frame(
        ApiKey.PRODUCE,
        3,
        string(None)
        + struct.pack(">hi", -1, 30_000)
        + array([string(TOPIC) + array(struct.pack(">ii", index, 0) for index in range(MANY))]),
    ),
    "Produce to many topics": lambda: frame(
        ApiKey.PRODUCE,
        3,
        string(None)
        + struct.pack(">hi", -1, 30_000)
        + array(name + array([struct.pack(">ii", 0, 0)]) for name in names(MANY // 2)),
    ),
    "ConsumerGroupHeartbeat": consumer_heartbeat,
    "ConsumerGroupDescribe": consumer_describe,
    "OffsetFetch by id": offset_fetch_by_id,
    "OffsetCommit by id": offset_commit_by_id,
    "DeleteGroups": lambda: frame(ApiKey.DELETE_GROUPS, 0, array(names(20_000))),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafscaleBroker]:
    with running_broker(tmp_path, flush_interval_ms=0) as broker:
        yield broker


@pytest.mark.parametrize("name", list(ANSWERED_ONCE))
def test_partition_named_9900_times_stalls_no_client(name: str, broker: KafscaleBroker) -> None:
    with watching(broker) as watcher:
        with wire.connect(broker, GIVE_UP_SEC) as attacker:
            attacker.send_bytes(ANSWERED_ONCE[name]())
            assert len(attacker.receive_frame()) < ANSWER_ONCE_MAX_BYTES
        watcher.wait_for_rounds()


@pytest.mark.parametrize("name", nightly_but(MANY_THINGS, "Fetch", "Metadata", "DeleteTopics", "OffsetFetch"))
def test_request_that_names_much_stalls_no_client(name: str, broker: KafscaleBroker) -> None:
    with watching(broker) as watcher:
        with wire.connect(broker, GIVE_UP_SEC) as attacker:
            attacker.send_bytes(MANY_THINGS[name]())
            attacker.receive_frame()
        watcher.wait_for_rounds()
