"""Reassignments, elections and log directories, where nothing is ever moved: from hand-made requests."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.formats.topic_record import encode_broker_record
from kafscale.handlers import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from kafscale.metadata import keys
from kafscale.metadata.model import BrokerRecord
from kafscale.metadata.store import Delete, Put
from kafscale.protocol.error_codes import ErrorCode
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask_with_bytes, control_plane
from tests.support.flexible_body import NO_TAGS, NULL, array, int32, int32s, text

LONG_NAME = "n" * 30_000
PREFERRED, UNCLEAN = 0, 1


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    """Two brokers, of which the first leads everything."""
    async with control_plane() as plane:
        for name, count in (("aa", 3), ("bb", 2)):
            await plane.topics.create(NewTopic(name=name, partition_count=count), timeout_ms=TIMEOUT_MS)
        other = BrokerRecord(broker_id=7, host="other.test", port=9092)
        await plane.store.transact([], [Put(keys.broker(7), encode_broker_record(other))])
        await plane.view.wait_until(lambda: plane.view.broker(7) is not None)
        yield plane


async def lose_leader(plane: ControlPlane, topic: str, index: int) -> None:
    await plane.store.transact([], [Delete(keys.leader(topic, index))])
    await plane.view.wait_until(lambda: plane.view.leader(topic, index) is None)


# --- ListPartitionReassignments


@pytest.mark.parametrize("topics", [NULL, array([]), array([text("aa") + int32s([0, 9]) + NO_TAGS])])
async def test_no_reassignment_is_in_progress(plane: ControlPlane, topics: bytes) -> None:
    body = int32(1000) + topics + NO_TAGS
    reply = await ask_with_bytes(plane, list_partition_reassignments.handle, 46, 0, body)
    assert (reply.error_code, reply.error_message, reply.topics) == (0, None, [])


# --- AlterPartitionReassignments

Wanted = dict[str, list[tuple[int, list[int] | None]]]


async def reassign(plane: ControlPlane, version: int, wanted: Wanted, *, may_resize: bool = True) -> Any:
    topics = [
        text(name)
        + array(
            int32(index) + (NULL if replicas is None else int32s(replicas)) + NO_TAGS
            for index, replicas in partitions
        )
        + NO_TAGS
        for name, partitions in wanted.items()
    ]
    flag = bytes([may_resize]) if version >= 1 else b""
    body = int32(1000) + flag + array(topics) + NO_TAGS
    reply = await ask_with_bytes(plane, alter_partition_reassignments.handle, 45, version, body)
    assert (reply.error_code, reply.error_message) == (0, None)
    return reply


def codes(reply: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.name: [(one.partition_index, one.error_code) for one in topic.partitions]
        for topic in reply.responses
    }


@pytest.mark.parametrize("version", range(2))
async def test_reassignments_are_answered_one_by_one(plane: ControlPlane, version: int) -> None:
    wanted: Wanted = {
        "aa": [(0, [0]), (1, None), (2, []), (9, [0]), (-1, None)],
        "bb": [(0, [0, 0]), (0, [5]), (1, [7]), (1, [0, 7])],
        "nope": [(0, None)],
    }
    reply = await reassign(plane, version, wanted)
    assert codes(reply) == {
        "aa": [
            (0, ErrorCode.NONE),
            (1, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
            (2, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        "bb": [(index, ErrorCode.INVALID_REPLICA_ASSIGNMENT) for index in (0, 0, 1, 1)],
        "nope": [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }
    messages = [one.error_message for topic in reply.responses for one in topic.partitions]
    assert messages[:2] == [None, None]
    assert "an empty replica list" in messages[2]
    assert "the broker 0 more than once" in messages[5]
    assert "broker 5, but no such broker is registered" in messages[6]
    assert "The brokers choose among themselves" in messages[7]


async def test_another_number_of_replicas_may_be_forbidden(plane: ControlPlane) -> None:
    wanted: Wanted = {"aa": [(0, [0]), (1, [0, 7])]}
    reply = await reassign(plane, 1, wanted, may_resize=False)
    assert reply.allow_replication_factor_change is False
    assert codes(reply)["aa"] == [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_REPLICATION_FACTOR)]


async def test_many_replicas_are_looked_at_no_further_than_needed(plane: ControlPlane) -> None:
    looked_at = 0
    state = plane.view.broker_state

    def counted(broker_id: int) -> Any:
        nonlocal looked_at
        looked_at += 1
        return state(broker_id)

    plane.view.broker_state = counted  # type: ignore[method-assign]
    reply = await reassign(plane, 0, {"aa": [(0, [0, 7] * 40_000)]})
    assert codes(reply)["aa"] == [(0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)]
    assert looked_at == 3


# --- ElectLeaders


def short_text(value: str) -> bytes:
    return len(value).to_bytes(2, "big") + value.encode()


def election(version: int, kind: int, wanted: dict[str, list[int]] | None) -> bytes:
    """A request, of which the versions before 2 are not flexible."""
    start = bytes([kind]) if version >= 1 else b""
    if version >= 2:
        named = (
            NULL
            if wanted is None
            else array(text(name) + int32s(ones) + NO_TAGS for name, ones in wanted.items())
        )
        return start + named + int32(1000) + NO_TAGS
    if wanted is None:
        return start + int32(-1) + int32(1000)
    topics = [
        short_text(name) + int32(len(ones)) + b"".join(map(int32, ones)) for name, ones in wanted.items()
    ]
    return start + int32(len(topics)) + b"".join(topics) + int32(1000)


async def elect(plane: ControlPlane, version: int, kind: int, wanted: dict[str, list[int]] | None) -> Any:
    return await ask_with_bytes(plane, elect_leaders.handle, 43, version, election(version, kind, wanted))


def elected(reply: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.topic: [(one.partition_id, one.error_code) for one in topic.partition_result]
        for topic in reply.replica_election_results
    }


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
@pytest.mark.parametrize("version", range(3))
async def test_a_partition_that_is_led_needs_no_election(
    plane: ControlPlane, version: int, kind: int
) -> None:
    await lose_leader(plane, "bb", 1)
    reply = await elect(plane, version, kind, {"aa": [0, 2, 9], "bb": [0, 1], LONG_NAME: [0]})
    missing = (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        if kind == UNCLEAN and version >= 1
        else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    )
    assert reply.error_code in (0, None)
    assert elected(reply) == {
        "aa": [
            (0, ErrorCode.ELECTION_NOT_NEEDED),
            (2, ErrorCode.ELECTION_NOT_NEEDED),
            (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
        "bb": [(0, ErrorCode.ELECTION_NOT_NEEDED), (1, missing)],
        LONG_NAME: [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
    }
    texts = [one.error_message for topic in reply.replica_election_results for one in topic.partition_result]
    assert max(map(len, texts)) < 300


@pytest.mark.parametrize("version", range(3))
async def test_of_all_partitions_only_leaderless_ones_are_returned(plane: ControlPlane, version: int) -> None:
    assert elected(await elect(plane, version, PREFERRED, None)) == {}
    await lose_leader(plane, "aa", 2)
    assert elected(await elect(plane, version, PREFERRED, None)) == {
        "aa": [(2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]
    }


@pytest.mark.parametrize("version", [1, 2])
async def test_an_unknown_kind_of_election_is_refused(plane: ControlPlane, version: int) -> None:
    reply = await elect(plane, version, 5, {"aa": [0, 1]})
    assert reply.error_code == ErrorCode.INVALID_REQUEST
    assert elected(reply) == {"aa": [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.INVALID_REQUEST)]}
    assert elected(await elect(plane, version, 5, None)) == {}


# --- AlterReplicaLogDirs

Directories = list[tuple[str, dict[str, list[int]]]]


async def move(plane: ControlPlane, version: int, wanted: Directories) -> dict[str, dict[int, int]]:
    if version >= 2:
        body = array(
            text(path) + array(text(name) + int32s(ones) + NO_TAGS for name, ones in topics.items()) + NO_TAGS
            for path, topics in wanted
        )
        body += NO_TAGS
    else:
        body = int32(len(wanted))
        for path, topics in wanted:
            body += short_text(path) + int32(len(topics))
            for name, ones in topics.items():
                body += short_text(name) + int32(len(ones)) + b"".join(map(int32, ones))
    reply = await ask_with_bytes(plane, alter_replica_log_dirs.handle, 34, version, body)
    return {
        topic.topic_name: {one.partition_index: one.error_code for one in topic.partitions}
        for topic in reply.results
    }


@pytest.mark.parametrize("version", [1, 2])
async def test_the_namespace_is_the_only_log_directory(plane: ControlPlane, version: int) -> None:
    here: Directories = [("/default", {"aa": [0, 9, -1], "nope": [0]})]
    assert await move(plane, version, here) == {
        "aa": {
            0: ErrorCode.NONE,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            -1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
        "nope": {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert await move(plane, version, [("/elsewhere", {"aa": [0]})]) == {
        "aa": {0: ErrorCode.LOG_DIR_NOT_FOUND}
    }
    assert await move(plane, version, []) == {}
    twice: Directories = [("/default", {"aa": [0, 0]}), ("elsewhere", {"aa": [0, 1]})]
    assert await move(plane, version, twice) == {
        "aa": {0: ErrorCode.LOG_DIR_NOT_FOUND, 1: ErrorCode.LOG_DIR_NOT_FOUND}
    }


async def test_a_partition_that_another_broker_leads_is_not_here(plane: ControlPlane) -> None:
    await lose_leader(plane, "aa", 1)
    assert await move(plane, 2, [("/default", {"aa": [1]})]) == {"aa": {1: ErrorCode.REPLICA_NOT_AVAILABLE}}
