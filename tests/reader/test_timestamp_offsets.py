"""Offsets by time: how much is read for one, and the outcome of segments that were merged meanwhile."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from kafscale.errors import ObjectNotFoundError
from kafscale.objects.object_store import ListingReader, ObjectInfo
from kafscale.reader.splits import WHOLE_SEGMENT_BYTES
from kafscale.reader.timestamp_offsets import first_offset_at
from kafscale.reader.topic_state import TopicStates
from tests.spark_jobs.support.sent_records import FIRST_TIMESTAMP_MS, Sent
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded

MIB = 2**20


class CountedReads:
    """An object reader that remembers which keys were read, and how much of each."""

    def __init__(self, objects: ListingReader) -> None:
        self._objects = objects
        self.reads: list[tuple[str, int]] = []

    async def get(self, key: str) -> bytes:
        data = await self._objects.get(key)
        self.reads.append((key, len(data)))
        return data

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        self.reads.append((key, length))
        return await self._objects.get_range(key, start, length)

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        self.reads.append((key, length))
        return await self._objects.read_into(key, start, length, targets)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix)


Looked = tuple[int | None, list[tuple[str, int]]]


def look(
    writer: TopicWriter,
    seconds: float,
    *,
    before: Callable[[StoredTopic], Awaitable[object]] | None = None,
) -> Looked:
    """The offset of the first record that is not older, and what was read of segments and indexes for it.

    `before`: what happens to the topic after its partition's record was read.
    """

    async def search(topic: StoredTopic) -> Looked:
        objects = CountedReads(topic.objects)
        states = TopicStates(topic.metadata, objects, topic.namespace)
        (log,) = (await states.topic(topic.topic, [0])).partitions
        if before is not None:
            await before(topic)
        timestamp_ms = FIRST_TIMESTAMP_MS + round(seconds * 1000)
        found = await first_offset_at(timestamp_ms, log, states, objects, topic.namespace)
        return found, [one for one in objects.reads if not one[0].startswith("_kafscale/")]

    return writer.run(search)


def key_of(base_offset: int) -> str:
    return f"default/events/0/segment-{base_offset:020d}.kfs"


def at(*seconds: int, value_bytes: int = 0) -> list[Sent]:
    return [Sent(value=bytes(value_bytes), timestamp_ms=FIRST_TIMESTAMP_MS + 1000 * one) for one in seconds]


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    """Four segments of two records, a second apart."""
    topic = TopicWriter(embedded(tmp_path), "events")
    for second in range(0, 8, 2):
        topic.append(0, at(second, second + 1))
    return topic


def test_one_segment_is_read_for_a_time(writer: TopicWriter) -> None:
    offset, reads = look(writer, 4.5)
    assert offset == 5
    assert [key for key, _ in reads] == [writer.keys(0)[2]]


def test_nothing_is_read_for_a_time_that_no_record_has(writer: TopicWriter) -> None:
    assert look(writer, 7.001) == (None, [])


def test_a_segment_whose_late_record_expired_is_passed_over(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    writer.append(0, at(9, 0, 1))
    writer.append(0, at(2, 9))
    writer.move_log_start(0, 1)
    assert look(writer, 5)[0] == 4


def test_chunks_of_a_large_segment_are_read_up_to_the_record(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events", index_interval=1)
    writer.append(0, at(*range(32), value_bytes=MIB), batch_records=1)
    key = writer.keys(0)[0]
    offset, reads = look(writer, 1.5)
    assert offset == 2
    assert [name for name, _ in reads] == [key.replace(".kfs", ".index"), key]
    assert reads[1][1] < WHOLE_SEGMENT_BYTES
    offset, reads = look(writer, 30.5)
    assert offset == 31
    assert sum(size for name, size in reads if name == key) <= 33 * MIB


def test_a_segment_merged_meanwhile_is_found_in_the_merged_one(writer: TopicWriter) -> None:
    offset, reads = look(writer, 4.5, before=lambda topic: topic.merge(0, 0, 7))
    assert offset == 5
    assert [key for key, _ in reads] == [key_of(4), *writer.keys(0)]


def test_a_segment_that_expired_meanwhile_is_passed_over(writer: TopicWriter) -> None:
    assert look(writer, 2.5, before=lambda topic: topic.move_log_start(0, 6))[0] == 6


def test_an_object_that_is_lost_is_an_error(writer: TopicWriter) -> None:
    key = writer.keys(0)[2]
    with pytest.raises(ObjectNotFoundError, match=key):
        look(writer, 4.5, before=lambda topic: topic.objects.delete([key]))


def test_a_log_that_is_empty_has_no_record(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    assert look(writer, 0) == (None, [])
