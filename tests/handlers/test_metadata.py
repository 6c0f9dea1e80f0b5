"""Metadata: brokers, topics, leaders, ids and automatic creation, in every version."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.metadata import MetadataRequest

from kafscale.cluster.new_topic import NewTopic
from kafscale.formats.topic_record import encode_broker_record
from kafscale.handlers import metadata
from kafscale.metadata import keys
from kafscale.metadata.store import Changes, Delete, KeyValue
from kafscale.protocol.error_codes import ErrorCode
from kafscale.serving import read_replicas
from kafscale.settings.broker import Settings
from tests.support.control_plane import (
    CLUSTER_ID,
    TIMEOUT_MS,
    ControlPlane,
    ask,
    by_name,
    control_plane,
    host_of,
)
from tests.support.loop_turns import turns_beside

# By Kafka's numbers (AclOperation): all that a topic, and a cluster, know.
TOPIC_OPERATIONS = {3, 4, 5, 6, 7, 8, 10, 11}
CLUSTER_OPERATIONS = {5, 7, 8, 9, 10, 11, 12}
VERSIONS = range(13)
Topic = MetadataRequest.MetadataRequestTopic


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(settings=Settings(auto_create_partitions=2)) as plane:
        await plane.topics.create(NewTopic(name="b", partition_count=3), timeout_ms=TIMEOUT_MS)
        await plane.topics.create(NewTopic(name="a", partition_count=1), timeout_ms=TIMEOUT_MS)
        yield plane


async def metadata_of(
    plane: ControlPlane,
    version: int,
    topics: list[Any] | None,
    *,
    broker_ids: tuple[int, ...] = (0,),
    **fields: Any,
) -> Any:
    fields.setdefault("allow_auto_topic_creation", True)
    reply = await ask(plane, metadata.handle, version, MetadataRequest(topics=topics, **fields))
    assert [(broker.node_id, broker.host, broker.port) for broker in reply.brokers] == [
        (broker_id, host_of(broker_id), 9092) for broker_id in broker_ids
    ]
    return reply


def named(*names: str) -> list[Any]:
    return [Topic(name=name, topic_id=None) for name in names]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_topic_in_every_version(plane: ControlPlane, version: int) -> None:
    reply = await metadata_of(plane, version, named("b"))
    (topic,) = reply.topics
    assert (topic.error_code, topic.name) == (0, "b")
    assert [(p.error_code, p.partition_index, p.leader_id) for p in topic.partitions] == [
        (0, index, 0) for index in range(3)
    ]
    assert all(p.replica_nodes == p.isr_nodes == [0] for p in topic.partitions)
    if version >= 1:
        assert reply.controller_id == 0
        assert topic.is_internal is False
    if version >= 2:
        assert reply.cluster_id == CLUSTER_ID
    if version >= 7:
        assert {p.leader_epoch for p in topic.partitions} == {0}
    if version >= 10:
        record = plane.view.topic("b")
        assert record is not None
        assert topic.topic_id == record.topic_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics(plane: ControlPlane, version: int) -> None:
    reply = await metadata_of(plane, version, [] if version == 0 else None)
    assert [topic.name for topic in reply.topics] == ["a", "b"]


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_no_topics(plane: ControlPlane, version: int) -> None:
    assert (await metadata_of(plane, version, [])).topics == []


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_topic_is_created_if_both_sides_allow_it(plane: ControlPlane, version: int) -> None:
    reply = await metadata_of(plane, version, named("new", "a"))
    new = by_name(reply.topics)["new"]
    assert new.error_code == 0
    assert [partition.leader_id for partition in new.partitions] == [0, 0]
    assert plane.view.topic("new") is not None


@pytest.mark.parametrize("version", VERSIONS[4:])
async def test_the_client_may_forbid_it(plane: ControlPlane, version: int) -> None:
    reply = await metadata_of(plane, version, named("new"), allow_auto_topic_creation=False)
    assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert plane.view.topic("new") is None


async def test_the_setting_may_forbid_it(plane: ControlPlane) -> None:
    plane.settings = Settings(auto_create_topics=False)
    reply = await metadata_of(plane, 9, named("new"))
    assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert plane.view.topic("new") is None


async def test_names_that_no_topic_can_have(plane: ControlPlane) -> None:
    reply = await metadata_of(plane, 9, named("a b", "", "x" * 250))
    assert {topic.error_code for topic in reply.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    await plane.topics.create(NewTopic(name="x.y"), timeout_ms=TIMEOUT_MS)
    reply = await metadata_of(plane, 9, named("x_y"))
    assert reply.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_many_clients_that_name_a_new_topic_make_one(plane: ControlPlane) -> None:
    replies = await asyncio.gather(*(metadata_of(plane, 12, named("new")) for _ in range(20)))
    record = plane.view.topic("new")
    assert record is not None
    assert {(topic.error_code, topic.topic_id) for reply in replies for topic in reply.topics} <= {
        (0, record.topic_id),
        (ErrorCode.LEADER_NOT_AVAILABLE, uuid.UUID(int=0)),
    }
    assert (await metadata_of(plane, 12, named("new"))).topics[0].error_code == 0


async def test_one_request_creates_a_bounded_number_of_topics(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "MAX_CREATED_PER_REQUEST", 2)
    wanted = named("a", "n0", "not legal", "n1", "n2", "n3")
    reply = await metadata_of(plane, 4, wanted)
    assert [(topic.name, topic.error_code) for topic in reply.topics] == [
        ("a", 0),
        ("n0", 0),
        ("not legal", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("n1", 0),
        ("n2", ErrorCode.LEADER_NOT_AVAILABLE),
        ("n3", ErrorCode.LEADER_NOT_AVAILABLE),
    ]
    # A client asks again, and gets the others.
    reply = await metadata_of(plane, 4, wanted)
    assert [topic.error_code for topic in reply.topics] == [
        *(0, 0),
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        *(0, 0, 0),
    ]


async def test_all_requests_create_a_bounded_number_at_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "MAX_CREATED_AT_ONCE", 1)
    monkeypatch.setattr(plane.topics, "creating_count", 1)
    (topic,) = (await metadata_of(plane, 4, named("new"))).topics
    assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert plane.view.topic("new", include_deleting=True) is None
    monkeypatch.setattr(plane.topics, "creating_count", 0)
    (topic,) = (await metadata_of(plane, 4, named("new"))).topics
    assert topic.error_code == 0


async def test_others_run_while_many_names_are_looked_up(plane: ControlPlane) -> None:
    names = ["a", *(f"missing{index}" for index in range(10_000)), "b"]
    request = metadata_of(plane, 4, named(*names), allow_auto_topic_creation=False)
    answers: list[Any] = []

    async def ask_for_all() -> None:
        answers.extend((await request).topics)

    assert await turns_beside(ask_for_all()) >= 10_000 // 256 - 1
    assert [topic.name for topic in answers] == names
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.error_code for topic in answers] == [0, *[unknown] * 10_000, 0]


async def test_others_run_while_many_ids_are_looked_up(plane: ControlPlane) -> None:
    record = plane.view.topic("a")
    assert record is not None
    ids = [*(uuid.UUID(int=index + 1) for index in range(10_000)), record.topic_id]
    answers: list[Any] = []

    async def ask_for_all() -> None:
        asked = [Topic(name=None, topic_id=topic_id) for topic_id in ids]
        answers.extend((await metadata_of(plane, 12, asked)).topics)

    assert await turns_beside(ask_for_all()) >= 10_000 // 256 - 1
    assert [topic.topic_id for topic in answers] == ids
    assert [topic.error_code for topic in answers] == [*[ErrorCode.UNKNOWN_TOPIC_ID] * 10_000, 0]


async def test_a_name_twice_is_answered_once(plane: ControlPlane) -> None:
    assert len((await metadata_of(plane, 9, named("a", "a"))).topics) == 1


async def test_by_id(plane: ControlPlane) -> None:
    record = plane.view.topic("a")
    assert record is not None
    unknown = uuid.uuid4()
    asked = [Topic(name=None, topic_id=record.topic_id), Topic(name=None, topic_id=unknown)]
    known, missing = (await metadata_of(plane, 12, asked)).topics
    assert (known.error_code, known.name, known.topic_id) == (0, "a", record.topic_id)
    assert (missing.error_code, missing.name, missing.topic_id) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        unknown,
    )
    assert missing.partitions == []


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_before_their_version(plane: ControlPlane, version: int) -> None:
    asked = [Topic(name=None, topic_id=uuid.uuid4()), *named("a")]
    reply = await metadata_of(plane, version, asked)
    assert [(topic.error_code, topic.name) for topic in reply.topics] == [
        (ErrorCode.INVALID_REQUEST, ""),
        (ErrorCode.INVALID_REQUEST, "a"),
    ]


async def test_a_partition_without_a_leader(plane: ControlPlane) -> None:
    await plane.store.transact([], [Delete(keys.leader("b", 1))])
    await plane.view.wait_until(lambda: plane.view.leader("b", 1) is None)
    partitions = (await metadata_of(plane, 9, named("b"))).topics[0].partitions
    assert [p.error_code for p in partitions] == [0, ErrorCode.LEADER_NOT_AVAILABLE, 0]
    assert (partitions[1].leader_id, partitions[1].leader_epoch) == (-1, -1)


async def test_a_leader_that_is_not_live(plane: ControlPlane) -> None:
    await plane.logs._leadership.release_stale([("a", 0)])
    async with control_plane(plane.store, plane.objects, settings=Settings(broker_id=7)) as other:
        await other.deletion.close()
        await plane.view.wait_until(lambda: plane.view.leaders("a")[0].broker_id == 7)
        # The other broker's registration is gone before its leadership is.
        await plane.store.transact([], [Delete(keys.broker(7))])
        await plane.view.wait_until(lambda: plane.view.broker(7) is None)
        # It stays named for a while, and leads nothing.
        reply = await metadata_of(plane, 9, named("a"), broker_ids=(0, 7))
        partition = reply.topics[0].partitions[0]
        assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_a_topic_that_is_being_deleted(plane: ControlPlane) -> None:
    closing, proceed = asyncio.Event(), asyncio.Event()

    async def slow_close(name: str) -> None:
        closing.set()
        await proceed.wait()

    plane.logs.close_topic = slow_close  # type: ignore[method-assign]
    deletion = asyncio.create_task(plane.topics.delete("a", timeout_ms=TIMEOUT_MS))
    await closing.wait()
    reply = await metadata_of(plane, 9, named("a"))
    assert reply.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [topic.name for topic in (await metadata_of(plane, 9, None)).topics] == ["b"]
    proceed.set()
    await deletion


async def test_internal_topics_are_marked(plane: ControlPlane) -> None:
    reply = await metadata_of(plane, 9, named("__consumer_offsets"))
    assert reply.topics[0].is_internal is True


async def test_authorized_operations_when_asked_for(plane: ControlPlane) -> None:
    asked: dict[str, Any] = dict.fromkeys(
        ("include_topic_authorized_operations", "include_cluster_authorized_operations"), True
    )
    reply = await metadata_of(plane, 8, named("a"), **asked)
    assert reply.topics[0].authorized_operations == TOPIC_OPERATIONS
    assert reply.authorized_operations == CLUSTER_OPERATIONS
    reply = await metadata_of(plane, 8, named("a"))
    assert reply.topics[0].authorized_operations is None
    assert reply.authorized_operations is None


async def test_racks(plane: ControlPlane) -> None:
    broker = plane.view.broker(0)
    assert broker is not None
    plane.view._brokers[0] = dataclasses.replace(broker, rack="r1")
    assert (await metadata_of(plane, 1, named("a"))).brokers[0].rack == "r1"


async def test_other_tasks_run_while_read_replicas_are_chosen(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = plane.view.broker(0)
    assert broker is not None
    registered = encode_broker_record(dataclasses.replace(broker, rack="r1"))
    change = KeyValue(key=keys.broker(0), value=registered, mod_revision=1)
    plane.view.apply(keys.BROKERS, Changes(puts_and_deletes=(change,), revision=10**6))
    monkeypatch.setattr(read_replicas, "CHOICES_AT_ONCE", 1)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    reply = await metadata_of(plane, 1, None)
    task.cancel()
    assert [topic.name for topic in reply.topics] == ["a", "b"]
    assert turns >= 2
