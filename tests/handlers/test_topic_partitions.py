"""DescribeTopicPartitions: pages, cursors, unknown topics, and where partitions are, from hand-made requests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.handlers import describe_topic_partitions
from kafscale.handlers.describe_topic_partitions import MOST_PARTITIONS, MOST_TOPICS
from kafscale.metadata import keys
from kafscale.metadata.store import Delete
from kafscale.protocol.error_codes import ErrorCode
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask_with_bytes, control_plane
from tests.support.flexible_body import NO_TAGS, array, int32, text

ALL_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
NOT_ASKED_FOR = -(1 << 31)
Cursor = tuple[str, int]


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        for name, count in (("aa", 3), ("bb", 5), ("cc", 2)):
            await plane.topics.create(NewTopic(name=name, partition_count=count), timeout_ms=TIMEOUT_MS)
        yield plane


async def describe(
    plane: ControlPlane, names: list[str], limit: int = 2000, cursor: Cursor | None = None
) -> Any:
    start = b"\xff" if cursor is None else b"\x01" + text(cursor[0]) + int32(cursor[1]) + NO_TAGS
    body = array(text(name) + NO_TAGS for name in names) + int32(limit) + start + NO_TAGS
    return await ask_with_bytes(plane, describe_topic_partitions.handle, 75, 0, body)


def pages(reply: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [one.partition_index for one in topic.partitions]) for topic in reply.topics]


def cursor_of(reply: Any) -> Cursor | None:
    cursor = reply.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


async def test_named_topics_come_by_name_and_each_once(plane: ControlPlane) -> None:
    reply = await describe(plane, ["bb", "nope", "aa", "bb", "bad/name"])
    assert pages(reply) == [("aa", [0, 1, 2]), ("bad/name", []), ("bb", [0, 1, 2, 3, 4]), ("nope", [])]
    assert [topic.error_code for topic in reply.topics] == [
        0,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert {topic.topic_authorized_operations for topic in reply.topics} == {ALL_OPERATIONS}
    record = plane.view.topic("aa")
    assert record is not None and reply.topics[0].topic_id == record.topic_id
    for one in reply.topics[0].partitions:
        assert (one.error_code, one.leader_id, one.leader_epoch) == (0, 0, 0)
        assert one.replica_nodes == one.isr_nodes == [0]
        assert one.eligible_leader_replicas == one.last_known_elr == one.offline_replicas == []
    assert cursor_of(reply) is None


@pytest.mark.parametrize("names", [[], ["cc", "bb", "aa"]], ids=["all", "named"])
async def test_cursors_lead_through_every_partition_once(plane: ControlPlane, names: list[str]) -> None:
    found: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    for _ in range(3):
        reply = await describe(plane, names, 4, cursor)
        page = [(name, index) for name, indexes in pages(reply) for index in indexes]
        assert len(page) <= 4
        found += page
        cursor = cursor_of(reply)
    assert found == [
        (name, index) for name, count in (("aa", 3), ("bb", 5), ("cc", 2)) for index in range(count)
    ]
    assert cursor is None


@pytest.mark.parametrize(
    ("names", "limit", "start", "expected", "following"),
    [
        ([], 3, None, [("aa", [0, 1, 2])], ("bb", 0)),
        (["aa"], 3, None, [("aa", [0, 1, 2])], None),
        (["aa", "ab"], 3, None, [("aa", [0, 1, 2])], ("ab", 0)),
        (["a0", "aa"], 1, None, [("a0", []), ("aa", [0])], ("aa", 1)),
        (["aa"], 0, None, [("aa", [0])], ("aa", 1)),
        (["aa"], -1, None, [("aa", [0])], ("aa", 1)),
        ([], 9, ("bb", 3), [("bb", [3, 4]), ("cc", [0, 1])], None),
        ([], 9, ("bb", 30), [("bb", []), ("cc", [0, 1])], None),
        ([], 9, ("bc", 1), [("cc", [0, 1])], None),
        ([], 9, ("zz", 0), [], None),
    ],
)  # as Apache Kafka 4.1.1 answers
async def test_where_a_page_begins_and_ends(
    plane: ControlPlane,
    names: list[str],
    limit: int,
    start: Cursor | None,
    expected: list[tuple[str, list[int]]],
    following: Cursor | None,
) -> None:
    reply = await describe(plane, names, limit, start)
    assert pages(reply) == expected
    assert cursor_of(reply) == following


@pytest.mark.parametrize("cursor", [("ab", 0), ("aa", -1)], ids=["not among the names", "negative"])
async def test_a_cursor_that_is_none_of_the_request(plane: ControlPlane, cursor: Cursor) -> None:
    reply = await describe(plane, ["bb", "aa"], 9, cursor)
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("bb", ErrorCode.INVALID_REQUEST),
        ("aa", ErrorCode.INVALID_REQUEST),
    ]
    assert {topic.topic_authorized_operations for topic in reply.topics} == {NOT_ASKED_FOR}


async def test_a_partition_without_a_leader_has_no_error(plane: ControlPlane) -> None:
    await plane.store.transact([], [Delete(keys.leader("aa", 1))])
    await plane.view.wait_until(lambda: plane.view.leader("aa", 1) is None)
    reply = await describe(plane, ["aa"])
    one = reply.topics[0].partitions[1]
    assert (one.error_code, one.leader_id, one.replica_nodes) == (0, -1, [])


async def test_a_page_is_bounded_whatever_is_asked_for(plane: ControlPlane) -> None:
    await plane.topics.create(
        NewTopic(name="large", partition_count=MOST_PARTITIONS + 10), timeout_ms=TIMEOUT_MS
    )
    reply = await describe(plane, ["large"], 2**31 - 1)
    assert len(reply.topics[0].partitions) == MOST_PARTITIONS
    assert cursor_of(reply) == ("large", MOST_PARTITIONS)
    unknown = [f"unknown-{number:05d}" for number in range(MOST_TOPICS + 500)]
    reply = await describe(plane, unknown)
    assert len(reply.topics) == MOST_TOPICS
    cursor = cursor_of(reply)
    assert cursor == (unknown[MOST_TOPICS], 0)
    assert len((await describe(plane, unknown, 2000, cursor)).topics) == 500
