"""Reading a split: ahead and in order, whatever happens to the segments after it was planned."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kafscale.arrow.split_columns import read_split
from kafscale.errors import CorruptDataError, ObjectNotFoundError, StartupError, StoreUnavailableError
from kafscale.formats.partition_record import EpochStart
from kafscale.metadata import keys
from kafscale.metadata.store import Delete, MetadataReader
from kafscale.objects.object_store import ListingReader, ObjectInfo
from kafscale.protocol.compression import CODECS, Codec
from kafscale.reader import reads_ahead
from kafscale.reader.replanning import ExpiredRangeError
from kafscale.reader.splits import Split
from kafscale.reader.store_thread import StoreThread
from tests.spark_jobs.support.memory_topic import END, MemoryTopic, make_segments_large, run
from tests.spark_jobs.support.oracle_rows import batch_rows
from tests.spark_jobs.support.planned import partition_log, plan_splits
from tests.spark_jobs.support.sent_records import Batch, Sent, batches_of, sent
from tests.spark_jobs.support.stored_topic import StoredTopic
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.waiting import PATIENCE_SEC, wait_until

TIMEOUT_SEC = PATIENCE_SEC


@pytest.fixture
def topic() -> MemoryTopic:
    """40 records in eight segments."""
    topic = MemoryTopic()
    topic.append_segments(8)
    return topic


class Gathered:
    """Blocks every read of a segment until `count` of them are in flight at once."""

    def __init__(self, objects: ListingReader, count: int) -> None:
        self._objects = objects
        self._count = count
        self._under_way = 0
        self._enough: asyncio.Event | None = None

    async def get(self, key: str) -> bytes:
        return await self._objects.get(key)

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        return await self._objects.get_range(key, start, length)

    async def read_into(self, key: str, start: int, length: int, targets: Sequence[memoryview]) -> int:
        self._enough = self._enough or asyncio.Event()
        self._under_way += 1
        if self._under_way == self._count:
            self._enough.set()
        async with asyncio.timeout(TIMEOUT_SEC):
            await self._enough.wait()
        found = await self._objects.read_into(key, start, length, targets)
        self._under_way -= 1
        return found

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix)


# --- what usually happens


@pytest.mark.parametrize("codec", CODECS)
def test_all_of_a_split_in_order(codec: Codec) -> None:
    topic = MemoryTopic()
    for first in range(0, 30, 3):
        topic.append(*batches_of(sent(3, first=first), codec, batch_records=2))
    assert topic.read(topic.split()) == topic.values
    assert topic.read(topic.split(7, 22)) == topic.values_between(7, 22)


def test_most_tasks_never_ask_the_metadata_store(topic: MemoryTopic) -> None:
    topic.rows(topic.split())
    assert topic.metadata_uses == 0


def test_small_segments_do_not_wait_for_each_other(topic: MemoryTopic) -> None:
    topic.append_segments(8)
    topic.reader = Gathered(topic.objects, 16)
    assert topic.read(topic.split()) == topic.values


def has_begun(topic: MemoryTopic, reads: int) -> bool:
    return topic.objects.count("read_into") >= reads


# The smallest piece of memory that is used for a read has 16 KiB.
@pytest.mark.parametrize(("name", "value", "most"), [("_AHEAD_BYTES", 40_000, 3), ("_AHEAD_REQUESTS", 2, 2)])
def test_no_more_is_read_ahead_than_there_is_room_for(
    topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch, name: str, value: int, most: int
) -> None:
    monkeypatch.setattr(reads_ahead, name, value)
    with topic.batches(topic.split()) as found:
        for taken, _ in enumerate(found):
            begun = min(most + taken, 8)
            wait_until(partial(has_begun, topic, begun), "reads ahead")
            assert topic.objects.count("read_into") == begun


def test_memory_is_used_again_only_when_its_batches_were_taken(
    topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads_ahead, "_AHEAD_REQUESTS", 1)
    with topic.batches(topic.split()) as found:
        for batches in found:
            stored = run(topic.objects.inner.get(batches.name))
            assert bytes(batches.data) == stored[32:-16]


def test_gaps_and_orphans(topic: MemoryTopic) -> None:
    run(topic.stored.leave_unpublished(0, batches_of([Sent(value=b"never acknowledged")])))
    topic.append(Batch(records=[Sent(value=b"after a gap", gap=1)], gap_after=3))
    topic.append(Batch(records=[Sent(value=b"last", gap=5)]))
    assert topic.read(topic.split()) == topic.values
    assert sorted(topic.values)[-2:] == [41, 50]


def test_one_that_stops_early_leaves_nothing_behind(topic: MemoryTopic) -> None:
    with topic.batches(topic.split()) as found:
        next(found)
    assert not [thread for thread in threading.enumerate() if thread.name == "kafscale stores"]


def test_a_store_that_is_away_is_an_error(topic: MemoryTopic) -> None:
    topic.objects.fail("read_into", "*000010.kfs", StoreUnavailableError("away"))
    with pytest.raises(StoreUnavailableError, match="away"):
        topic.rows(topic.split())


def test_stores_that_cannot_be_opened_are_an_error() -> None:
    class Closed:
        async def open_objects(self, stack: AsyncExitStack) -> ListingReader:
            raise StartupError("no such bucket")

        async def open_metadata(self, stack: AsyncExitStack) -> MetadataReader:
            raise StartupError("no such etcd")

    with pytest.raises(StartupError, match="no such bucket"), StoreThread(Closed()):
        pass


def test_from_the_stores_that_settings_name(tmp_path: Path) -> None:
    writer = TopicWriter(embedded(tmp_path), "events")
    writer.append(0, sent(20), Codec.ZSTD, batch_records=3)

    async def planned(topic: StoredTopic) -> list[Split]:
        log = await partition_log(topic.metadata, topic.objects, "events", 0)
        return await plan_splits(log, topic.objects, "default", 5, 15)

    (split,) = writer.run(planned)
    found = list(read_split(writer.settings, split, include_headers=True))
    assert [row[4] for batch in found for row in batch_rows(batch)] == list(range(5, 15))


# --- merging


def test_what_was_merged_meanwhile_is_read_where_it_is_now(topic: MemoryTopic) -> None:
    split = topic.split(3, 38)
    run(topic.stored.merge(0, 0, 24))
    assert topic.read(split) == topic.values_between(3, 38)
    # Once for all segments that were replaced, not once for each.
    assert topic.objects.count("read_into", "*-00000000000000000024.kfs") == 1
    assert topic.metadata_uses == 1


def test_merging_twice_while_a_split_is_read(topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reads_ahead, "_AHEAD_REQUESTS", 1)
    names = []
    with topic.batches(topic.split()) as found:
        for number, batches in enumerate(found):
            names.append(batches.name)
            if number == 1:
                run(topic.stored.merge(0, 0, 29))
            if number == 2:
                run(topic.stored.merge(0, 0, 39))
    assert [name.rsplit("-", 1)[1].lstrip("0") for name in names] == [".kfs", "5.kfs", "29.kfs", "39.kfs"]


def test_a_merged_large_segment_is_read_in_chunks(
    topic: MemoryTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic.append_segments(4, records=200, value_bytes=20)
    split = topic.split(12, 600)
    make_segments_large(monkeypatch, chunk_bytes=8000)
    run(topic.stored.merge(0, 0, END))
    assert topic.read(split) == topic.values_between(12, 600)
    assert topic.objects.count("read_into", "*-00000000000000000839.kfs") > 3


# --- expiry


def test_what_expired_meanwhile_is_an_error_that_names_it(topic: MemoryTopic) -> None:
    split = topic.split(2, 40)
    run(topic.stored.move_log_start(0, 15))
    with pytest.raises(
        ExpiredRangeError,
        match=r"offsets 2 to 4 of partition 0 of topic 'events' are gone .*: .* log starts at 15 now",
    ) as found:
        topic.rows(split)
    assert (found.value.first_offset, found.value.next_offset) == (2, 5)


def test_what_expired_is_read_for_as_long_as_it_is_there(topic: MemoryTopic) -> None:
    split = topic.split()
    run(topic.stored.move_log_start(0, 15, keeps_objects=True))
    assert topic.read(split) == topic.values


def test_what_expired_and_was_merged(topic: MemoryTopic) -> None:
    split = topic.split()
    run(topic.stored.merge(0, 0, 19))
    run(topic.stored.move_log_start(0, 20))
    with pytest.raises(ExpiredRangeError, match=r"offsets 0 to 4 .* log starts at 20 now"):
        topic.rows(split)


def test_log_start_in_a_merged_segment_hides_no_planned_record(topic: MemoryTopic) -> None:
    split = topic.split()
    run(topic.stored.merge(0, 0, 19))
    run(topic.stored.move_log_start(0, 7))
    assert topic.read(split) == topic.values


def test_a_deleted_topic_is_an_error(topic: MemoryTopic) -> None:
    split = topic.split()
    run(topic.objects.delete(run(topic.objects.keys())))
    run(topic.metadata.transact([], [Delete(keys.partition("events", 0))]))
    with pytest.raises(ExpiredRangeError, match=r"offsets 0 to 4 .*: the topic was deleted$"):
        topic.rows(split)


@pytest.mark.parametrize("same_size", [True, False])
def test_another_topic_of_the_name_is_not_read(topic: MemoryTopic, same_size: bool) -> None:
    split = topic.split()
    run(topic.objects.delete(run(topic.objects.keys())))
    run(topic.metadata.transact([], [Delete(keys.partition("events", 0)), Delete(keys.topic("events"))]))
    run(topic.stored.create(1))
    run(topic.stored.new_leader(0))
    topic.values.clear()
    topic.append_segments(8, 5 if same_size else 4)
    with pytest.raises(
        ExpiredRangeError, match=r"the topic was deleted, there is another of its name \(topic id"
    ):
        topic.rows(split)


def test_a_published_object_that_is_lost_is_an_error(topic: MemoryTopic) -> None:
    split = topic.split()
    (key,) = run(topic.objects.keys("*000010.kfs"))
    run(topic.objects.delete([key]))
    with pytest.raises(ObjectNotFoundError, match=key):
        topic.rows(split)


# --- damage


def flipped(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[len(changed) // 2] ^= 1
    return bytes(changed)


def cut(data: bytes) -> bytes:
    return data[:-1]


@pytest.mark.parametrize("change", [flipped, cut])
def test_bytes_damaged_in_flight_are_read_again(topic: MemoryTopic, change: Callable[[bytes], bytes]) -> None:
    topic.objects.lie("*000010.kfs", change, times=2)
    assert topic.read(topic.split()) == topic.values
    topic.objects.lie("*000015.kfs", change)
    with pytest.raises(CorruptDataError, match=r"segment-00000000000000000015\.kfs: "):
        topic.rows(topic.split())


def test_batches_with_epochs_that_the_record_does_not_know(topic: MemoryTopic) -> None:
    """As a record may be that was made from the bucket alone."""
    split = replace(topic.split(), epochs=(EpochStart(7, 0),))
    assert topic.read(split) == topic.values
    assert topic.metadata_uses == 1


def test_where_epochs_prove_nothing_the_topics_id_is_compared(topic: MemoryTopic) -> None:
    split = replace(topic.split(), epochs=(EpochStart(7, 0),))
    with topic.batches(split) as found:
        next(found)
        run(topic.stored.recreate())
        with pytest.raises(ExpiredRangeError, match="there is another of its name"):
            list(found)


# --- large segments


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> MemoryTopic:
    """400 records in one segment of 40 kB, which is read in chunks of 1 kB."""
    make_segments_large(monkeypatch)
    topic = MemoryTopic()
    topic.append_segments(1, records=400, value_bytes=60)
    return topic


def test_a_range_in_the_middle_reads_little(large: MemoryTopic) -> None:
    wanted = large.split(200, 203)
    assert wanted.size_bytes < 2500
    assert large.read(wanted) == large.values_between(200, 203)
    assert large.objects.count("read_into") == len(wanted.pieces)
    assert large.objects.count("get_range") == 0


def test_a_damaged_chunk(large: MemoryTopic) -> None:
    split = large.split()
    large.objects.lie("*.kfs", flipped, times=1)
    assert large.read(split) == large.values
    large.objects.lie("*.kfs", flipped)
    with pytest.raises(CorruptDataError, match=r"\.kfs: "):
        large.rows(split)


@pytest.mark.parametrize("is_wrong", [True, False])
def test_a_segment_without_a_usable_index_is_verified(large: MemoryTopic, is_wrong: bool) -> None:
    (key,) = run(large.objects.keys("*.index"))

    def shifted(index: bytes) -> bytes:
        """Every entry but the first one byte off."""
        changed = bytearray(index)
        for entry in range(28, len(changed), 12):
            changed[entry + 11] ^= 1
        return bytes(changed)

    if is_wrong:
        large.objects.lie(key, shifted)
    else:
        run(large.objects.delete([key]))
    assert large.read(large.split()) == large.values
    assert large.read(large.split(150, 160)) == large.values_between(150, 160)


def test_gaps_in_a_large_segment_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    make_segments_large(monkeypatch)
    topic = MemoryTopic()
    records = [Sent(value=b"%060d" % n, gap=3 if n % 30 == 0 else 0) for n in range(300)]
    topic.append(*batches_of(records, batch_records=5))
    assert topic.read(topic.split()) == topic.values
    assert topic.read(topic.split(100, 200)) == topic.values_between(100, 200)


def test_a_segment_that_is_damaged_where_only_the_whole_can_tell(large: MemoryTopic) -> None:
    (key,) = run(large.objects.keys("*.index"))
    run(large.objects.delete([key]))
    split = large.split(0, 10)
    large.objects.lie("*.kfs", flipped)
    with pytest.raises(CorruptDataError, match=r"\.kfs: "):
        large.rows(split)


def test_several_leaders_wrote_a_large_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    topic = MemoryTopic()
    for _ in range(4):
        topic.append_segments(1, records=40, value_bytes=60)
        run(topic.stored.new_leader(0))
    make_segments_large(monkeypatch)
    run(topic.stored.merge(0, 0, END))
    assert topic.read(topic.split()) == topic.values
