"""Topics come, grow and change; what is refused, and in which words."""

import asyncio
import dataclasses
import uuid
from collections.abc import AsyncIterator
from unittest.mock import patch

import pytest

from kafscale.cluster.new_topic import MAX_PARTITIONS, NewTopic
from kafscale.formats.partition_record import (
    PartitionRecord,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.formats.topic_record import decode_retired_epoch, encode_retired_epoch
from kafscale.metadata import keys
from kafscale.metadata.store import ABSENT, Changes, Compare, Put, Snapshot
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.settings.broker import Settings
from tests.support.control_plane import TIMEOUT_MS, ControlPlane, control_plane, memory_stores
from tests.support.faults import Away, FusedMetadataStore, Interruption
from tests.support.waiting import PATIENCE_SEC


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with control_plane(settings=Settings(auto_create_partitions=3)) as plane:
        yield plane


async def refused(plane: ControlPlane, topic: NewTopic) -> KafkaError:
    with pytest.raises(KafkaError) as refusal:
        await plane.topics.create(topic, timeout_ms=TIMEOUT_MS)
    assert await plane.keys_under(keys.topic(topic.name)) == []
    return refusal.value


async def epochs(plane: ControlPlane, name: str) -> list[int]:
    items = (await plane.store.range(keys.partitions(name))).items
    return [decode_partition_record(item.key, item.value).leader_epoch for item in items]


async def test_a_created_topic_is_seen_and_led(plane: ControlPlane) -> None:
    record = await plane.topics.create(
        NewTopic(name="orders", partition_count=5, configs={"retention.ms": "1"}), timeout_ms=TIMEOUT_MS
    )
    assert plane.view.topic("orders") == record
    assert record.partition_count == 5
    assert record.configs == {"retention.ms": "1"}
    assert record.topic_id not in (uuid.UUID(int=0), uuid.UUID(int=1))
    leaders = plane.view.leaders("orders")
    assert {index: (led.broker_id, led.leader_epoch) for index, led in leaders.items()} == dict.fromkeys(
        range(5), (0, 0)
    )


async def test_the_default_partitions(plane: ControlPlane) -> None:
    record = await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)
    assert record.partition_count == 3


@pytest.mark.parametrize("max_operations", [3, 4, 7, 128])
async def test_a_topic_of_more_partitions_than_a_transaction_holds(max_operations: int) -> None:
    async with control_plane(*memory_stores(max_operations)) as plane:
        await plane.topics.create(NewTopic(name="t", partition_count=10), timeout_ms=TIMEOUT_MS)
        assert await epochs(plane, "t") == [0] * 10
        await plane.topics.create_partitions("t", 25, timeout_ms=TIMEOUT_MS)
        assert await epochs(plane, "t") == [0] * 25
        await plane.topics.delete("t", timeout_ms=TIMEOUT_MS)
        assert await plane.keys_under(keys.PARTITIONS) == []


async def test_ten_thousand_partitions_at_once() -> None:
    async with control_plane() as plane:
        await plane.topics.create(NewTopic(name="t", partition_count=MAX_PARTITIONS), timeout_ms=60_000)
        # Its creator waits for leaders for two seconds at most, which may be too little on a busy machine.
        led = plane.view.wait_until(lambda: len(plane.view.leaders("t")) == MAX_PARTITIONS)
        await asyncio.wait_for(led, PATIENCE_SEC)


async def test_the_same_name_twice(plane: ControlPlane) -> None:
    attempts = [plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS) for _ in range(5)]
    results = await asyncio.gather(*attempts, return_exceptions=True)
    errors = [result for result in results if isinstance(result, KafkaError)]
    assert len(errors) == 4
    assert {error.code for error in errors} == {ErrorCode.TOPIC_ALREADY_EXISTS}
    assert errors[0].message == "Topic 't' already exists."


@pytest.mark.parametrize(
    ("topic", "code", "words"),
    [
        (NewTopic(name="a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "characters other than"),
        (NewTopic(name="x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "longer than the max"),
        (NewTopic(name="__cluster_metadata"), ErrorCode.INVALID_REQUEST, "is prohibited"),
        (NewTopic(name="t", partition_count=0), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (NewTopic(name="t", partition_count=-2), ErrorCode.INVALID_PARTITIONS, "non-positive"),
        (NewTopic(name="t", partition_count=10_001), ErrorCode.INVALID_PARTITIONS, "the most is 10000"),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR, "larger than 0"),
        (NewTopic(name="t", configs={"a": "b"}), ErrorCode.INVALID_CONFIG, "Unknown topic config name: a"),
        (NewTopic(name="t", configs={"retention.ms": "x"}), ErrorCode.INVALID_CONFIG, "'x'"),
        (
            NewTopic(name="t", assignments=[(0, [0])], partition_count=1),
            ErrorCode.INVALID_REQUEST,
            "numPartitions was not set to -1",
        ),
        (
            NewTopic(name="t", assignments=[(0, [0])], replication_factor=1),
            ErrorCode.INVALID_REQUEST,
            "replication factor was not set to -1",
        ),
        (NewTopic(name="t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty"),
        (NewTopic(name="t", assignments=[(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
        (NewTopic(name="t", assignments=[(0, [0, 0])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "once"),
        (
            NewTopic(name="t", assignments=[(0, [0]), (0, [0])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "multiple manual",
        ),
        (
            NewTopic(name="t", assignments=[(0, [0]), (2, [0])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "consecutive",
        ),
    ],
)
async def test_what_is_refused(plane: ControlPlane, topic: NewTopic, code: ErrorCode, words: str) -> None:
    error = await refused(plane, topic)
    assert error.code is code
    assert words in error.message


async def test_names_that_differ_by_dot_and_underscore(plane: ControlPlane) -> None:
    await plane.topics.create(NewTopic(name="a.b_c"), timeout_ms=TIMEOUT_MS)
    error = await refused(plane, NewTopic(name="a_b.c"))
    assert error.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error.message == "Topic 'a_b.c' collides with existing topic: a.b_c"
    await plane.topics.create(NewTopic(name="a-b-c"), timeout_ms=TIMEOUT_MS)


@pytest.mark.parametrize("factor", [-1, 1, 3, 32767])
async def test_every_replication_factor_that_kafka_knows(plane: ControlPlane, factor: int) -> None:
    topic = NewTopic(name="t", partition_count=1, replication_factor=factor)
    assert await plane.topics.create(topic, timeout_ms=TIMEOUT_MS)


async def test_a_manual_assignment_gives_the_partitions(plane: ControlPlane) -> None:
    topic = NewTopic(name="t", assignments=[(1, [0]), (0, [0])])
    assert (await plane.topics.create(topic, timeout_ms=TIMEOUT_MS)).partition_count == 2


async def test_validating_changes_nothing(plane: ControlPlane) -> None:
    record = await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS, validate_only=True)
    assert record.partition_count == 3
    assert await plane.keys_under("") == [keys.broker(0)]


async def test_records_of_an_unfinished_creation_are_overwritten(plane: ControlPlane) -> None:
    leftover = encode_partition_record(PartitionRecord(leader_epoch=-1, log_end_offset=9))
    await plane.store.transact(
        [Compare(keys.partition("t", 1), ABSENT)],
        [Put(keys.partition("t", 1), leftover), Put(keys.partition("t", 7), leftover)],
    )
    await plane.topics.create(NewTopic(name="t", partition_count=2), timeout_ms=TIMEOUT_MS)
    held = await plane.store.get(keys.partition("t", 1))
    assert held is not None
    assert decode_partition_record(held.key, held.value).log_end_offset == 0
    await plane.topics.create_partitions("t", 8, timeout_ms=TIMEOUT_MS)
    held = await plane.store.get(keys.partition("t", 7))
    assert held is not None
    assert decode_partition_record(held.key, held.value).log_end_offset == 0


async def test_new_partitions_go_on_from_the_names_retired_epoch(plane: ControlPlane) -> None:
    await plane.store.transact([], [Put(keys.retired("t"), encode_retired_epoch(41))])
    await plane.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
    await plane.topics.create_partitions("t", 2, timeout_ms=TIMEOUT_MS)
    assert await epochs(plane, "t") == [43, 43]


@pytest.mark.parametrize(
    ("count", "assignments", "code", "words"),
    [
        (3, None, ErrorCode.INVALID_PARTITIONS, "Topic already has 3 partition(s)."),
        (2, None, ErrorCode.INVALID_PARTITIONS, "The topic t currently has 3 partition(s); 2 would not be"),
        (10_001, None, ErrorCode.INVALID_PARTITIONS, "the most is 10000"),
        (5, [[0]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Attempted to add 2 additional partition(s)"),
        (4, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 9"),
    ],
)
async def test_growth_that_is_refused(
    plane: ControlPlane, count: int, assignments: list[list[int]] | None, code: ErrorCode, words: str
) -> None:
    await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)
    with pytest.raises(KafkaError) as refusal:
        await plane.topics.create_partitions("t", count, assignments, timeout_ms=TIMEOUT_MS)
    assert refusal.value.code is code
    assert words in refusal.value.message
    assert len(await plane.keys_under(keys.PARTITIONS)) == 3


async def test_growth(plane: ControlPlane) -> None:
    before = await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)
    await plane.topics.create_partitions("t", 4, timeout_ms=TIMEOUT_MS, validate_only=True)
    assert plane.view.topic("t") == before
    await plane.topics.create_partitions("t", 5, [[0], [0]], timeout_ms=TIMEOUT_MS)
    assert plane.view.topic("t") == dataclasses.replace(before, partition_count=5)
    assert len(plane.view.leaders("t")) == 5


async def test_concurrent_changes_of_configs_all_hold(plane: ControlPlane) -> None:
    await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)
    names = ["retention.ms", "segment.ms", "flush.ms", "retention.bytes"]

    async def set_one(name: str) -> None:
        await plane.topics.alter_configs("t", lambda before: {**before, name: "5"}, timeout_ms=TIMEOUT_MS)

    await asyncio.gather(*(set_one(name) for name in names))
    topic = plane.view.topic("t")
    assert topic is not None
    assert topic.configs == dict.fromkeys(names, "5")


async def test_configs_that_are_refused_change_nothing(plane: ControlPlane) -> None:
    await plane.topics.create(NewTopic(name="t"), timeout_ms=TIMEOUT_MS)
    with pytest.raises(KafkaError, match="INVALID_CONFIG"):
        await plane.topics.alter_configs(
            "t", lambda before: {"flush.ms": "1", "no": "1"}, timeout_ms=TIMEOUT_MS
        )
    await plane.topics.alter_configs(
        "t", lambda before: {"flush.ms": "1"}, timeout_ms=TIMEOUT_MS, validate_only=True
    )
    topic = plane.view.topic("t")
    assert topic is not None
    assert topic.configs == {}


async def test_topics_that_there_are_not(plane: ControlPlane) -> None:
    for change in (
        plane.topics.create_partitions("t", 4, timeout_ms=TIMEOUT_MS),
        plane.topics.alter_configs("t", lambda before: before, timeout_ms=TIMEOUT_MS),
        plane.topics.delete("t", timeout_ms=TIMEOUT_MS),
    ):
        with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await change


async def test_a_store_that_is_away_ends_in_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafscale.cluster.topics.MIN_TIMEOUT_MS", 20)
    async with control_plane(faulty_store=lambda store: FusedMetadataStore(store, Away())) as plane:
        with pytest.raises(KafkaError, match="REQUEST_TIMED_OUT"):
            await plane.topics.create(NewTopic(name="t"), timeout_ms=0)


CREATION_READS = 3
"""The topic record, the retired epoch, the leftovers: then comes the first transaction."""


async def test_a_topic_that_comes_and_goes_during_a_creation(plane: ControlPlane) -> None:
    """The creation read the retired epoch before: its partitions must not start under an older one."""

    async def come_and_go() -> None:
        async with control_plane(plane.store, plane.objects, settings=Settings(broker_id=7)) as other:
            await other.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
            await other.topics.delete("t", timeout_ms=TIMEOUT_MS)

    interruption = Interruption(CREATION_READS + 1, come_and_go)
    plane.topics._store = FusedMetadataStore(plane.store, interruption)
    await plane.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
    assert interruption.blown.is_set()
    held = await plane.store.get(keys.retired("t"))
    assert held is not None
    assert await epochs(plane, "t") > [decode_retired_epoch(held.key, held.value)]


async def test_losing_creation_leaves_the_winners_partitions() -> None:
    """The loser is in the middle of its partition records when the winner's topic is there and is written to."""
    async with control_plane(*memory_stores(max_operations=4)) as plane:

        async def win() -> None:
            async with control_plane(plane.store, plane.objects, settings=Settings(broker_id=7)) as other:
                await other.topics.create(NewTopic(name="t", partition_count=2), timeout_ms=TIMEOUT_MS)

        interruption = Interruption(CREATION_READS + 2, win)
        plane.topics._store = FusedMetadataStore(plane.store, interruption)
        with pytest.raises(KafkaError, match="TOPIC_ALREADY_EXISTS"):
            await plane.topics.create(NewTopic(name="t", partition_count=6), timeout_ms=TIMEOUT_MS)
        assert interruption.blown.is_set()
        topic = plane.view.topic("t")
        assert topic is not None
        assert topic.partition_count == 2
        # Two partitions of the loser's first transaction, which the winner wrote again, and nothing after it.
        assert await plane.keys_under(keys.partitions("t")) == [
            keys.partition("t", index) for index in (0, 1)
        ]


async def test_name_freed_elsewhere_is_free_despite_a_stale_view() -> None:
    """CreateTopics at one broker, right after DeleteTopics at another, was told that the topic exists."""
    store, objects = memory_stores()
    async with (
        control_plane(store, objects) as first,
        control_plane(store, objects, settings=Settings(broker_id=1)) as second,
    ):
        old = await first.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
        await second.view.wait_until(lambda: second.view.topic("t") is not None)
        hear, unheard = second.view.apply, list[tuple[str, Snapshot | Changes]]()
        with patch.object(second.view, "apply", lambda prefix, event: unheard.append((prefix, event))):
            await first.topics.delete("t", timeout_ms=TIMEOUT_MS)
            known = second.view.topic("t")
            assert known is not None
            assert known.topic_id == old.topic_id
            making = asyncio.create_task(
                second.topics.create(NewTopic(name="t", partition_count=1), timeout_ms=TIMEOUT_MS)
            )
            while await store.get(keys.topic("t")) is None:
                assert not making.done(), making.exception()
                await asyncio.sleep(0.001)
            for prefix, event in unheard:
                hear(prefix, event)
        assert (await making).topic_id != old.topic_id
