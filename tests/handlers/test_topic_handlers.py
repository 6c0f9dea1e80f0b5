"""CreateTopics, DeleteTopics and CreatePartitions, in every version."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kafka.protocol.admin import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest

from kafscale.cluster.config_description import describe_topic
from kafscale.cluster.config_kinds import ConfigSource
from kafscale.cluster.new_topic import NewTopic
from kafscale.cluster.topic_config_table import TOPIC_CONFIGS
from kafscale.handlers import create_partitions, create_topics, delete_topics
from kafscale.protocol.error_codes import ErrorCode
from kafscale.settings.broker import Settings
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, ask, by_name, control_plane
from tests.support.loop_turns import turns_beside

New = CreateTopicsRequest.CreatableTopic
Assignment = New.CreatableReplicaAssignment
Config = New.CreatableTopicConfig
Growing = CreatePartitionsRequest.CreatePartitionsTopic
GrowingAssignment = Growing.CreatePartitionsAssignment
State = DeleteTopicsRequest.DeleteTopicState

CREATE_VERSIONS = range(8)
DELETE_VERSIONS = range(7)
GROW_VERSIONS = range(4)


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(settings=Settings(auto_create_partitions=2)) as plane:
        await plane.topics.create(NewTopic(name="old", partition_count=2), timeout_ms=TIMEOUT_MS)
        yield plane


def new(name: str, partitions: int = 1, factor: int = 1, **fields: Any) -> Any:
    return New(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=fields.get("assignments", []),
        configs=[Config(name=key, value=value) for key, value in fields.get("configs", {}).items()],
    )


async def create(plane: ControlPlane, version: int, *topics: Any, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    return by_name((await ask(plane, create_topics.handle, version, request)).topics)


async def delete_named(plane: ControlPlane, version: int, *names: str) -> Any:
    request = (
        DeleteTopicsRequest(topics=[State(name=name, topic_id=None) for name in names], timeout_ms=TIMEOUT_MS)
        if version >= 6
        else DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)
    )
    return (await ask(plane, delete_topics.handle, version, request)).responses


async def grow(plane: ControlPlane, version: int, *topics: Any, validate_only: bool = False) -> Any:
    request = CreatePartitionsRequest(topics=list(topics), timeout_ms=TIMEOUT_MS, validate_only=validate_only)
    return by_name((await ask(plane, create_partitions.handle, version, request)).results)


@pytest.mark.parametrize("version", CREATE_VERSIONS)
async def test_creating_in_every_version(plane: ControlPlane, version: int) -> None:
    results = await create(
        plane,
        version,
        new("t", 3, configs={"retention.ms": "5"}),
        new("old"),
        new("no/name"),
        new("no-config", configs={"a": "b"}),
        new("no-partitions", 0),
        new("no-replicas", 1, 0),
    )
    assert {name: result.error_code for name, result in results.items()} == {
        "t": 0,
        "old": ErrorCode.TOPIC_ALREADY_EXISTS,
        "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "no-config": ErrorCode.INVALID_CONFIG,
        "no-partitions": ErrorCode.INVALID_PARTITIONS,
        "no-replicas": ErrorCode.INVALID_REPLICATION_FACTOR,
    }
    if version >= 1:
        assert results["t"].error_message is None
        assert results["old"].error_message == "Topic 'old' already exists."
    record = plane.view.topic("t")
    assert record is not None
    assert (record.partition_count, record.configs) == (3, {"retention.ms": "5"})
    assert [topic.name for topic in plane.view.topics()] == ["old", "t"]
    if version >= 7:
        assert results["t"].topic_id == record.topic_id


@pytest.mark.parametrize("version", CREATE_VERSIONS[5:])
async def test_the_answer_to_a_creator(plane: ControlPlane, version: int) -> None:
    results = await create(plane, version, new("t", -1, -1, configs={"retention.ms": "5"}), new("old"))
    assert (results["t"].num_partitions, results["t"].replication_factor) == (2, 1)
    configs = by_name(results["t"].configs)
    assert list(configs) == [row.name for row in TOPIC_CONFIGS]
    own = configs["retention.ms"]
    assert (own.value, own.config_source, own.read_only) == ("5", ConfigSource.TOPIC_CONFIG, False)
    assert configs["segment.ms"].config_source == ConfigSource.DEFAULT_CONFIG
    assert (results["old"].num_partitions, results["old"].configs) == (-1, [])


@pytest.mark.parametrize("version", CREATE_VERSIONS[1:])
async def test_validate_only(plane: ControlPlane, version: int) -> None:
    results = await create(plane, version, new("t"), new("old"), validate_only=True)
    assert [results[name].error_code for name in ("t", "old")] == [0, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert plane.view.topic("t") is None


async def test_the_same_name_twice_in_a_request(plane: ControlPlane) -> None:
    results = await create(plane, 7, new("t"), new("t"), new("u"))
    assert results["t"].error_code == ErrorCode.INVALID_REQUEST
    assert results["t"].error_message == "Duplicate topic name."
    assert results["u"].error_code == 0
    assert plane.view.topic("t") is None


async def test_a_config_without_a_value(plane: ControlPlane) -> None:
    results = await create(plane, 7, new("t", configs={"retention.ms": None, "segment.ms": None}))
    assert results["t"].error_code == ErrorCode.INVALID_CONFIG
    assert results["t"].error_message == "Null value not supported for topic configs: retention.ms,segment.ms"


async def test_a_manual_assignment(plane: ControlPlane) -> None:
    def assigned(*brokers: list[int]) -> list[Any]:
        return [Assignment(partition_index=index, broker_ids=ids) for index, ids in enumerate(brokers)]

    results = await create(
        plane,
        4,
        new("t", -1, -1, assignments=assigned([0], [0], [0])),
        new("unknown-broker", -1, -1, assignments=assigned([5])),
        new("both", 3, -1, assignments=assigned([0])),
    )
    assert {name: result.error_code for name, result in results.items()} == {
        "t": 0,
        "unknown-broker": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        "both": ErrorCode.INVALID_REQUEST,
    }
    record = plane.view.topic("t")
    assert record is not None
    assert record.partition_count == 3


async def test_more_topics_than_are_made_at_the_same_time(plane: ControlPlane) -> None:
    names = [f"t{number}" for number in range(200)]
    results = await create(plane, 7, *(new(name) for name in names))
    assert {results[name].error_code for name in names} == {0}


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_deleting_in_every_version(plane: ControlPlane, version: int) -> None:
    results = by_name(await delete_named(plane, version, "old", "unknown"))
    assert {name: result.error_code for name, result in results.items()} == {
        "old": 0,
        "unknown": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert plane.view.topic("old", include_deleting=True) is None
    assert (await create(plane, 4, new("old")))["old"].error_code == 0


@pytest.mark.parametrize("version", DELETE_VERSIONS)
async def test_deleting_a_name_twice_in_a_request(plane: ControlPlane, version: int) -> None:
    (result,) = await delete_named(plane, version, "old", "old")
    assert (result.name, result.error_code) == ("old", ErrorCode.INVALID_REQUEST)
    if version >= 5:
        assert result.error_message == "Duplicate topic name."
    assert plane.view.topic("old") is not None


async def delete_states(plane: ControlPlane, *states: Any) -> list[tuple[str | None, uuid.UUID | None, int]]:
    request = DeleteTopicsRequest(topics=list(states), timeout_ms=TIMEOUT_MS)
    responses = (await ask(plane, delete_topics.handle, 6, request)).responses
    return [(one.name, one.topic_id, one.error_code) for one in responses]


async def test_deleting_by_id(plane: ControlPlane) -> None:
    record = plane.view.topic("old")
    assert record is not None
    unknown = uuid.uuid4()
    results = await delete_states(
        plane, State(name=None, topic_id=record.topic_id), State(name=None, topic_id=unknown)
    )
    assert sorted(results, key=str) == sorted(
        [("old", record.topic_id, 0), (None, unknown, ErrorCode.UNKNOWN_TOPIC_ID)], key=str
    )
    assert plane.view.topic("old", include_deleting=True) is None


async def test_ids_and_names_that_contradict_each_other(plane: ControlPlane) -> None:
    record = plane.view.topic("old")
    assert record is not None
    known = record.topic_id
    invalid = ErrorCode.INVALID_REQUEST
    for states, expected in (
        ([State(name=None, topic_id=None)], [(None, None, invalid)]),
        ([State(name="old", topic_id=known)], [("old", known, invalid)]),
        ([State(name=None, topic_id=known)] * 2, [(None, known, invalid)]),
        (
            [State(name=None, topic_id=known), State(name="old", topic_id=None)],
            [("old", known, invalid)],
        ),
    ):
        assert await delete_states(plane, *states) == expected
    assert plane.view.topic("old") is not None


@pytest.mark.parametrize("version", GROW_VERSIONS)
async def test_growing_in_every_version(plane: ControlPlane, version: int) -> None:
    await plane.topics.create(NewTopic(name="other", partition_count=2), timeout_ms=TIMEOUT_MS)
    await plane.topics.create(NewTopic(name="twice", partition_count=2), timeout_ms=TIMEOUT_MS)
    results = await grow(
        plane,
        version,
        Growing(name="old", count=4, assignments=[GrowingAssignment(broker_ids=[0])] * 2),
        Growing(name="other", count=2, assignments=None),
        Growing(name="unknown", count=2, assignments=None),
        Growing(name="twice", count=3, assignments=None),
        Growing(name="twice", count=4, assignments=None),
    )
    assert {name: (result.error_code, result.error_message) for name, result in results.items()} == {
        "old": (0, None),
        "other": (ErrorCode.INVALID_PARTITIONS, "Topic already has 2 partition(s)."),
        "unknown": (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no topic 'unknown'."),
        "twice": (ErrorCode.INVALID_REQUEST, "Duplicate topic name."),
    }
    counts = {topic.name: topic.partition_count for topic in plane.view.topics()}
    assert counts == {"old": 4, "other": 2, "twice": 2}


async def test_validating_growth_changes_nothing(plane: ControlPlane) -> None:
    results = await grow(plane, 3, Growing(name="old", count=4, assignments=None), validate_only=True)
    assert results["old"].error_code == 0
    record = plane.view.topic("old")
    assert record is not None
    assert record.partition_count == 2


@pytest.mark.parametrize(
    "topics",
    [
        [new("a", 5_000), new("b", 5_000), new("c", 1)],
        [new("a", 9_999), new("b", -1)],
        [new(f"n{index}") for index in range(10_001)],
        [new("a", 10_000), new("b", -1, -1, assignments=[Assignment(partition_index=0, broker_ids=[0])])],
    ],
    ids=["sum", "default", "topics", "manual"],
)
@pytest.mark.parametrize("validate_only", [True, False])
async def test_more_than_10000_partitions_are_refused_as_in_kafka(
    plane: ControlPlane, topics: list[Any], validate_only: bool
) -> None:
    answers = await create(plane, 5, *topics, validate_only=validate_only)
    assert list(answers) == [topic.name for topic in topics]
    assert {(one.error_code, one.error_message) for one in answers.values()} == {
        (ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
    }
    assert plane.view.topic_count == 1


async def test_configs_of_thousands_of_topics_are_described_once(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[object] = []

    def counted(*given: Any) -> Any:
        described.append(given)
        return describe_topic(*given)

    monkeypatch.setattr(create_topics, "describe_topic", counted)
    topics = (new(f"n{index}", configs={"retention.ms": "77"}) for index in range(1_000))
    answers = await create(plane, 7, *topics, validate_only=True)
    assert {len(topic.configs) for topic in answers.values()} == {len(TOPIC_CONFIGS)}
    assert len(described) == 1


async def test_other_tasks_run_during_a_deletion_of_unknown_topics(plane: ControlPlane) -> None:
    names = [f"n{index}" for index in range(10_000)]
    assert await turns_beside(delete_named(plane, 6, *names)) >= 10_000 // 256
