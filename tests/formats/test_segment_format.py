"""Whole brokers before, during and after the upgrade of the segment format: what they write, read and refuse."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from kafka.protocol.admin import CreateTopicsResponse, UpdateFeaturesRequest, UpdateFeaturesResponse

from kafscale.broker.process import EXIT_FAILED
from kafscale.errors import StartupError
from kafscale.formats.features import (
    GROUP_VERSION,
    SEGMENT_FORMAT,
    SHARE_VERSION,
    TRANSACTION_VERSION,
    encode_level,
)
from kafscale.formats.index import parse_index
from kafscale.formats.object_keys import parse_segment_key, segment_key_of
from kafscale.formats.topic_record import decode_broker_record
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Put
from tests.support import wire
from tests.support.controlled_store import ControlledStore
from tests.support.in_process_broker import (
    TIMEOUT_SEC,
    InProcessBroker,
    NotStartedError,
    in_process_broker,
    until,
)
from tests.support.topics import CREATE_TOPICS_VERSION, create_topics_request
from tests.support.waiting import PATIENCE_MS

TOPIC = "topic"
PARTITIONS = 4
LARGE = 3_000_000_000


async def finalize(broker: InProcessBroker, level: int = 2) -> None:
    update = UpdateFeaturesRequest.FeatureUpdateKey(
        feature=SEGMENT_FORMAT, max_version_level=level, upgrade_type=1
    )
    request = UpdateFeaturesRequest(timeout_ms=PATIENCE_MS, feature_updates=[update], validate_only=False)
    async with broker.connect() as client:
        reply = await client.call(request, UpdateFeaturesResponse, 1)
    assert (reply.error_code, reply.error_message) == (0, None)


def level_at(broker: InProcessBroker) -> int:
    return broker.process.serving.view.feature_level(SEGMENT_FORMAT)


async def produce(brokers: list[InProcessBroker], values: list[bytes]) -> None:
    """One segment for each value, in the partition of its place in the list, at whichever broker leads it."""
    for index, value in enumerate(values):
        leader = next(one for one in brokers if one.process.serving.logs.partition(TOPIC, index) is not None)
        async with leader.connect() as client:
            part = await client.produce(TOPIC, index, wire.batch([value]))
        assert part.error_code == 0
        await leader.seal(TOPIC, index)


async def index_versions(objects: ControlledStore) -> Counter[int]:
    """How many indexes there are of each version."""
    versions: Counter[int] = Counter()
    for index in range(PARTITIONS):
        prefix = f"default/{TOPIC}/{index}/"
        async for item in objects.inner.list(prefix):
            if item.key.endswith(".index"):
                parsed = parse_segment_key(segment_key_of(item.key))
                assert parsed is not None
                stored = await objects.inner.get(item.key)
                versions[parse_index(item.key, stored, parsed.base_offset).version] += 1
    return versions


async def read_cold(broker: InProcessBroker, expected: dict[int, list[bytes]]) -> None:
    """Read every record of every partition from the object store, led here or not."""
    for index in expected:
        partition = broker.process.serving.logs.readable(TOPIC, index)
        if partition is not None:
            broker.process.serving.reader.forget(partition)
    async with broker.connect() as client:
        for index, values in expected.items():
            read: dict[int, bytes | None] = {}
            async with asyncio.timeout(TIMEOUT_SEC):
                while len(read) < len(values):
                    part = (await client.fetch(TOPIC, {index: len(read)}))[index]
                    assert part.error_code == 0
                    read |= dict(wire.records_in(part.records))
            assert read == dict(enumerate(values))


async def create_topic(brokers: list[InProcessBroker]) -> None:
    request = create_topics_request(TOPIC, PARTITIONS, None)
    async with brokers[0].connect() as client:
        reply = await client.call(request, CreateTopicsResponse, CREATE_TOPICS_VERSION)
    assert reply.topics[0].error_code == 0

    def is_led(index: int) -> bool:
        return any(one.process.serving.logs.partition(TOPIC, index) is not None for one in brokers)

    await until(lambda: all(map(is_led, range(PARTITIONS))), "the topic is led")


async def test_index_version_follows_the_level_and_both_are_read() -> None:
    stores: dict[str, Any] = {"metadata": MemoryStore(), "objects": (objects := ControlledStore())}
    expected: dict[int, list[bytes]] = {n: [b"before %d" % n] for n in range(PARTITIONS)}
    async with (
        in_process_broker(**stores, broker_id=1) as one,
        in_process_broker(**stores, broker_id=2) as two,
    ):
        brokers = [one, two]
        await create_topic(brokers)
        await produce(brokers, [values[-1] for values in expected.values()])
        assert await index_versions(objects) == {1: PARTITIONS}

        await finalize(two)
        await until(lambda: level_at(one) == level_at(two) == 2, "both see the level")
        for n, values in expected.items():
            values.append(b"after %d" % n)
        await produce(brokers, [values[-1] for values in expected.values()])
        assert await index_versions(objects) == {1: PARTITIONS, 2: PARTITIONS}  # nothing was rewritten
        for broker in brokers:
            await read_cold(broker, expected)

    async with in_process_broker(**stores, broker_id=3) as later:
        assert level_at(later) == 2
        await until(lambda: later.process.serving.logs.partition_count == PARTITIONS, "it leads all of them")
        await read_cold(later, expected)
        await produce([later], [b"last"])
        assert await index_versions(objects) == {1: PARTITIONS, 2: PARTITIONS + 1}
        await read_cold(later, expected | {0: [*expected[0], b"last"]})


@pytest.mark.parametrize("setting", ["segment_bytes", "merge_target_bytes"])
async def test_large_segment_settings_need_the_finalized_level(setting: str) -> None:
    stores: dict[str, Any] = {"metadata": MemoryStore(), "objects": ControlledStore()}
    large: dict[str, Any] = {setting: LARGE, "buffer_bytes": 2 * LARGE}
    with pytest.raises(
        StartupError, match=f"KAFSCALE_{setting.upper()}={LARGE} .*kafka-features.sh"
    ) as refusal:
        async with in_process_broker(**stores, **large):
            pass
    assert "kafscale.segment.format=2" in str(refusal.value)
    async with in_process_broker(**stores) as broker:
        await finalize(broker)
    async with in_process_broker(**stores, **large) as broker:
        await create_topic([broker])
        await produce([broker], [b"x"])


async def test_a_level_of_a_later_release_ends_the_start(caplog: pytest.LogCaptureFixture) -> None:
    metadata = MemoryStore()
    await metadata.transact([], [Put(keys.feature(SEGMENT_FORMAT), encode_level(3))])
    with pytest.raises(NotStartedError) as refusal:
        async with in_process_broker(metadata=metadata):
            pass
    assert refusal.value.exit_status == EXIT_FAILED
    told = "".join(record.exc_text or "" for record in caplog.records)
    assert "features/kafscale.segment.format: format version 3 is not known (known: 1 to 2)" in told


async def test_brokers_say_what_they_support() -> None:
    async with in_process_broker() as broker:
        found = await broker.metadata.get(keys.broker(0))
        assert found is not None
        assert decode_broker_record(found.key, found.value).features == {
            SEGMENT_FORMAT: (1, 2),
            TRANSACTION_VERSION: (0, 2),
            GROUP_VERSION: (0, 1),
            SHARE_VERSION: (0, 1),
        }


async def test_buffer_that_cannot_grow_waits_for_no_larger_size() -> None:
    an_hour_ms = 3_600_000
    async with in_process_broker(flush_interval_ms=an_hour_ms) as broker:
        await finalize(broker)
        topic = await broker.create_topic(configs={"segment.bytes": LARGE})
        batch = wire.batch([bytes(1_000_000)])
        assert 70 * len(batch) < broker.budget.limit_bytes / 2  # it is not shortage that lets it go
        async with broker.connect() as client:
            for _ in range(70):
                await client.send_produce(topic, {0: batch})
            assert (await client.receive_produce())[1][0].error_code == 0
