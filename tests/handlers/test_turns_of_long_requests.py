"""Requests whose parts are spread over nested lists of any lengths: others have a turn after every few hundred."""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafscale.cluster.new_topic import NewTopic
from kafscale.handlers import (
    add_partitions_to_txn,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    write_txn_markers,
)
from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.fetch import FetchRequest, FetchTopic
from kafscale.security.access import UNRESTRICTED
from kafscale.serving.context import Broker, RequestContext
from kafscale.tasks.in_turns import PARTS_PER_TURN
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask_with_bytes, control_plane
from tests.support.flexible_body import NO_TAGS, NULL, array, int32, int32s, text
from tests.support.in_process_broker import in_process_broker
from tests.support.on_uvloop import on_uvloop

TOPICS, INDEXES = 100, 255
PARTS = TOPICS * INDEXES
TOPICS_WITHOUT_PARTITIONS = 50_000


class Turns:
    """Counts how often the loop came round."""

    count = 0

    async def take(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0)


@contextmanager
def counted_turns() -> Iterator[Turns]:
    turns = Turns()
    taking = asyncio.create_task(turns.take())
    try:
        yield turns
    finally:
        taking.cancel()


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane() as plane:
        await plane.topics.create(NewTopic(name="aa", partition_count=1), timeout_ms=TIMEOUT_MS)
        yield plane


def topics(partitions: bytes) -> bytes:
    return array([text("aa") + partitions + NO_TAGS] * TOPICS)


def cancelled() -> bytes:
    return int32(9) + b"\x01" + topics(array([int32(0) + NULL + NO_TAGS] * INDEXES)) + NO_TAGS


def elected(kind: bytes) -> bytes:
    return kind + topics(int32s([0] * INDEXES)) + int32(9) + NO_TAGS


def moved() -> bytes:
    of_directory = array(text(f"t{n}") + int32s(range(INDEXES)) + NO_TAGS for n in range(TOPICS))
    return array([text("/default") + of_directory + NO_TAGS]) + NO_TAGS


def int64(value: int) -> bytes:
    return struct.pack(">q", value)


def of_many_topics() -> bytes:
    return array(text(f"t{n}") + int32s(range(INDEXES)) + NO_TAGS for n in range(TOPICS))


def added() -> bytes:
    return text("id") + int64(1) + b"\x00\x00" + of_many_topics() + NO_TAGS


def marked() -> bytes:
    return array([int64(1) + b"\x00\x00\x00" + of_many_topics() + int32(0) + NO_TAGS]) + NO_TAGS


def from_a_wrong_cursor() -> bytes:
    names = array(text(f"t{n}") + NO_TAGS for n in range(PARTS))
    return names + int32(2000) + b"\x01" + text("other") + int32(0) + NO_TAGS + NO_TAGS


Handle = Callable[..., Awaitable[Any]]
REQUESTS: dict[str, tuple[Handle, int, int, Callable[[], bytes]]] = {
    "reassignments": (alter_partition_reassignments.handle, 45, 1, cancelled),
    "elections": (elect_leaders.handle, 43, 2, lambda: elected(b"\x00")),
    "illegal elections": (elect_leaders.handle, 43, 2, lambda: elected(b"\x09")),
    "log directories": (alter_replica_log_dirs.handle, 34, 2, moved),
    "partitions of a transaction": (add_partitions_to_txn.handle, 24, 3, added),
    "markers": (write_txn_markers.handle, 27, 1, marked),
    "wrong cursor": (describe_topic_partitions.handle, 75, 0, from_a_wrong_cursor),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_nested_parts_are_answered_in_turns(plane: ControlPlane, name: str) -> None:
    handle, api_key, version, body = REQUESTS[name]
    with counted_turns() as turns:
        await ask_with_bytes(plane, handle, api_key, version, body())
    assert turns.count >= PARTS // PARTS_PER_TURN


@on_uvloop
async def test_topics_without_partitions_are_produced_to_in_turns() -> None:
    topics = array([text("") + array([]) + NO_TAGS] * TOPICS_WITHOUT_PARTITIONS)
    header = struct.pack(">hhi", ApiKey.PRODUCE, 9, 1) + b"\xff\xff" + NO_TAGS
    frame = header + NULL + struct.pack(">hi", -1, 30_000) + topics + NO_TAGS
    async with in_process_broker() as broker, broker.connect() as client:
        with counted_turns() as turns:
            await client.send_bytes(int32(len(frame)) + frame)
            await client.receive_frame()
    assert turns.count >= TOPICS_WITHOUT_PARTITIONS


async def test_topics_without_partitions_are_fetched_in_turns() -> None:
    """Each costs a look into the view by its id, though there is nothing to read."""
    unknown = cast(Broker, SimpleNamespace(view=SimpleNamespace(topic_by_id=lambda _: None)))
    named = [FetchTopic(None, number.to_bytes(16, "big"), []) for number in range(TOPICS_WITHOUT_PARTITIONS)]
    request = cast(RequestContext, SimpleNamespace(access=UNRESTRICTED))
    wanted = FetchRequest(-1, 0, 0, 0, 0, 0, -1, named, [], "")
    with counted_turns() as turns:
        assert len(await fetch._topics_in_turns(unknown, request, wanted)) == TOPICS_WITHOUT_PARTITIONS
    assert turns.count >= TOPICS_WITHOUT_PARTITIONS // PARTS_PER_TURN
