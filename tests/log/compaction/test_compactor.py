"""Compaction of a broker's partitions: what clients read after it and meanwhile, and what a crash leaves."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from kafscale.errors import ObjectExistsError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.log.compaction.cleaner import CleaningRules
from kafscale.log.compaction.cleaning_work import Cleaning, CleaningInProcess, WorkerProcess
from kafscale.log.compaction.compactor import Compactor
from kafscale.log.compaction.offset_map import SLOT_BYTES
from kafscale.log.life.garbage_collector import GarbageCollector
from kafscale.ops.metrics import CompactionOutcome
from kafscale.protocol.error_codes import KafkaError
from kafscale.protocol.types import Buffer
from tests.log.compaction.logs_of_keys import Sent, batch_of, headers_in, newest_values, records_in
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker

SETTINGS: dict[str, Any] = {"merge_check_interval_ms": 3_600_000}
"""Compactions happen when the test says so."""

COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
TOPIC = "topic"


def compactor(broker: InProcessBroker) -> Compactor:
    return broker.process.serving.log_parts.compactor


async def compact(broker: InProcessBroker) -> bool:
    return await compactor(broker).compact(broker.partition(TOPIC))


async def write(broker: InProcessBroker, client: Client, *segments: Sequence[Sent]) -> None:
    """A segment for each."""
    for records in segments:
        assert (await client.produce(TOPIC, 0, batch_of(records))).error_code == 0
        await broker.seal(TOPIC)


def references(broker: InProcessBroker) -> list[SegmentReference]:
    found = broker.partition(TOPIC).references
    assert found is not None
    return list(found)


async def read_all(client: Client, end_offset: int, *, limit_bytes: int = 1 << 20) -> bytes:
    """The batches from the log's start to its end."""
    found, offset = b"", 0
    while offset < end_offset:
        part = (await client.fetch(TOPIC, {0: offset}, partition_max_bytes=limit_bytes))[0]
        assert part.error_code == 0, part
        fetched = bytes(part.records)
        assert fetched, f"nothing at {offset}"
        found += fetched
        offset = max(header.last_offset for header in headers_in(fetched)) + 1
    return found


async def test_a_compacted_partition_has_the_newest_record_of_each_key() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        for number in range(10):
            await write(broker, client, [Sent(b"key-%d" % key, b"%d" % number) for key in range(5)])
        before = newest_values(records_in(await read_all(client, 50)))
        assert await compact(broker)
        broker.forget_cached(TOPIC)
        kept = records_in(await read_all(client, 50))
        assert newest_values(kept) == before
        assert [record.offset for record in kept] == list(range(40, 50))
        # The newest seal is not looked at: its records made nothing redundant.
        assert [(one.base_offset, one.last_offset, one.record_count) for one in references(broker)] == [
            (0, 44, 5),
            (45, 49, 5),
        ]
        assert not await compact(broker)
        counts = broker.metrics.compactions
        assert counts.outcomes[CompactionOutcome.DONE] == 1
        assert counts.removed_records == 40


ROUNDS = 10
KEYS = 5
END_OFFSET = ROUNDS * KEYS


def round_of(number: int) -> list[Sent]:
    """An update of each key."""
    return [Sent(b"key-%d" % key, b"%d" % number) for key in range(KEYS)]


NEWEST = {b"key-%d" % key: b"%d" % (ROUNDS - 1) for key in range(KEYS)}


async def check_newest(broker: InProcessBroker, client: Client) -> None:
    """Every key has its newest value, by what lies in the store."""
    broker.forget_cached(TOPIC)
    assert newest_values(records_in(await read_all(client, END_OFFSET))) == NEWEST


async def listed(broker: InProcessBroker) -> set[str]:
    prefix = object_keys.partition_prefix("default", TOPIC, 0)
    return {info.key async for info in broker.objects.list(prefix)}


def late_collector(broker: InProcessBroker) -> GarbageCollector:
    """The broker's, at a time when everything is old."""
    return GarbageCollector(
        broker.objects,
        broker.process.serving.logs,
        "default",
        lambda: 10**9,
        broker.metrics,
        is_waiting=compactor(broker).is_making,
        grace_sec=3600,
        interval_sec=3600,
    )


STEPS = {
    "reading": ("get_range", "default/*"),
    "uploading": ("put_if_absent_streamed", "*"),
    "uploading the index": ("put", "*.index"),
    "writing the checkpoint": ("put_if_absent", "_kafscale/*"),
}


async def test_a_key_that_is_taken_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """By a PUT of its own whose first answer was lost. The next attempt has another key."""
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        broker.objects.fail("put_if_absent_streamed", "*", ObjectExistsError("taken"))
        assert not await compact(broker)
        assert "ERROR" not in {record.levelname for record in caplog.records}
        assert broker.metrics.compactions.outcomes[CompactionOutcome.FAILED] == 1
        assert await compact(broker)
        await check_newest(broker, client)


@pytest.mark.parametrize("error", [StoreIndeterminateError, StoreUnavailableError])
@pytest.mark.parametrize("step", STEPS)
async def test_a_compaction_that_fails_at_any_step_succeeds_later(step: str, error: type[Exception]) -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        broker.objects.fail(*STEPS[step], error("away"))
        assert not await compact(broker)
        assert broker.metrics.compactions.outcomes[CompactionOutcome.FAILED] == 1
        assert len(references(broker)) == ROUNDS
        await check_newest(broker, client)
        assert await compact(broker)
        await check_newest(broker, client)
        assert len(references(broker)) == 2


async def test_what_a_failed_attempt_leaves_is_collected() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        before = await listed(broker)
        broker.objects.fail("put_if_absent", "_kafscale/*", StoreUnavailableError("away"))
        assert not await compact(broker)
        left = await listed(broker) - before
        assert len(left) == 2, "a segment and its index"
        assert await late_collector(broker).collect(broker.partition(TOPIC)) == 2
        assert await listed(broker) == before


async def test_what_is_about_to_be_published_is_not_collected() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        before = await listed(broker)
        compacting = asyncio.create_task(compact(broker))
        with broker.objects.hold("put_if_absent", "_kafscale/*") as writing:
            await writing.reached()
            made = await listed(broker) - before
            assert made
            assert await late_collector(broker).collect(broker.partition(TOPIC)) == 0
            writing.release()
        assert await compacting
        await check_newest(broker, client)


async def test_a_partition_is_not_merged_while_it_is_compacted() -> None:
    settings = {**SETTINGS, "merge_min_segments": 2}
    async with in_process_broker(**settings) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        partition, merger = broker.partition(TOPIC), broker.process.serving.segment_life.merger
        compacting = asyncio.create_task(compact(broker))
        with broker.objects.hold("put_if_absent", "_kafscale/*") as writing:
            await writing.reached()
            assert not await merger.consider(partition)
            assert not await compact(broker)
            writing.release()
        assert await compacting
        await check_newest(broker, client)


async def test_records_published_during_a_compaction_stay() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS - 1)))
        compacting = asyncio.create_task(compact(broker))
        with broker.objects.hold("put_if_absent", "*.ckpt") as writing:
            await writing.reached()
            await write(broker, client, round_of(ROUNDS - 1))
            writing.release()
        assert await compacting
        await check_newest(broker, client)


async def test_a_compaction_goes_on_where_another_was_cut_off() -> None:
    """With groups of a segment each, and a crash behind the second of them."""
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        one = compactor(broker)
        one.tools = replace(one.tools, group_bytes=1)
        with broker.objects.hold("put_if_absent_streamed", f"*/segment-{10:020d}-*") as writing:
            compacting = asyncio.create_task(compact(broker))
            await writing.reached()
            compacting.cancel()
            with suppress(asyncio.CancelledError):
                await compacting
        kinds = [object_keys.compaction_of(one) is not None for one in references(broker)]
        assert kinds == [True] * 2 + [False] * 8
        await check_newest(broker, client)
        assert await compact(broker)
        await check_newest(broker, client)
        kinds = [object_keys.compaction_of(one) is not None for one in references(broker)]
        assert kinds == [True] * 9 + [False]
        assert [one.record_count for one in references(broker)] == [0] * 8 + [KEYS] * 2


class CountedCleaning:
    """Counts the bytes that it is given to clean."""

    def __init__(self, inner: Cleaning, cleaned: list[int]) -> None:
        self.map, self.end_object, self.again = inner.map, inner.end_object, inner.again
        self._clean, self._cleaned = inner.clean, cleaned

    async def clean(self, batches: Sequence[Buffer]) -> bytes:
        """See `Cleaning`."""
        self._cleaned.append(sum(len(part) for part in batches))
        return await self._clean(batches)


class CountedWork:
    """Cleans on the event loop; `cleaned`: bytes."""

    def __init__(self) -> None:
        self.cleaned: list[int] = []

    @asynccontextmanager
    async def begin(self, rules: CleaningRules, memory_bytes: int, most_keys: int) -> AsyncIterator[Cleaning]:
        """See `CleaningWork`."""
        async with CleaningInProcess().begin(rules, memory_bytes, most_keys) as inner:
            yield CountedCleaning(inner, self.cleaned)


@pytest.mark.parametrize(("group_bytes", "times"), [(50_000, 1), (100, 2)])
async def test_only_what_stays_large_is_cleaned_twice(group_bytes: int, times: int) -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        large = [Sent(b"%d" % (number % 5), os.urandom(100)) for number in range(1000)]
        await write(broker, client, large, round_of(0))
        one, work = compactor(broker), CountedWork()
        one.tools = replace(one.tools, group_bytes=group_bytes, work=work)
        source_bytes = references(broker)[0].size_bytes
        assert source_bytes > group_bytes
        assert await compact(broker)
        assert sum(work.cleaned) == times * (source_bytes - HEADER_SIZE - FOOTER_SIZE)
        assert references(broker)[0].record_count == 5
        records = records_in(await read_all(client, references(broker)[-1].last_offset + 1))
        assert [record.value for record in records[:5]] == [record.value for record in large[-5:]]


async def test_a_map_without_room_for_all_compacts_in_parts() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        many = [[Sent(b"%d-%d" % (part, key), b"1") for key in range(100)] for part in range(10)]
        await write(broker, client, *many)
        one = compactor(broker)
        one.tools = replace(one.tools, memory_bytes=300 * SLOT_BYTES)
        ends = []
        for _ in range(20):
            if not await compact(broker):
                break
            ends.append(compacted_up_to(references(broker)))
        # 270 keys have room, so two segments and a part of the third, which waits for the next time.
        assert ends[0] == 200
        assert ends[-1] == 900
        assert len(records_in(await read_all(client, 1000))) == 1000


async def test_a_segment_too_large_for_the_map_is_compacted_in_parts() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        # Two batches, of which only one fits at a time; all of the second one's keys are those of the first.
        for _ in range(2):
            records = batch_of([Sent(b"%d" % key, b"1") for key in range(200)])
            assert (await client.produce(TOPIC, 0, records)).error_code == 0
        await broker.seal(TOPIC)
        await write(broker, client, [Sent(b"other", b"1")])
        one = compactor(broker)
        one.tools = replace(one.tools, memory_bytes=300 * SLOT_BYTES)
        assert await compact(broker)
        assert references(broker)[0].record_count == 400
        assert await compact(broker)
        assert references(broker)[0].record_count == 200
        assert not await compact(broker)


async def test_a_batch_that_is_too_large_for_the_map_is_named() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, [Sent(b"%d" % key, b"1") for key in range(200)], [Sent(b"a", b"1")])
        one = compactor(broker)
        one.tools = replace(one.tools, memory_bytes=100 * SLOT_BYTES)
        assert not await compact(broker)
        assert broker.metrics.compactions.outcomes[CompactionOutcome.FAILED] == 1


def compacted_up_to(found: Sequence[SegmentReference]) -> int:
    """The end of the part of the log that is clean."""
    return max((one.last_offset + 1 for one in found if object_keys.compaction_of(one)), default=0)


async def test_tombstones_go_when_their_time_is_over() -> None:
    configs = {**COMPACTED, "delete.retention.ms": "0"}
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=configs)
        await write(broker, client, [Sent(b"a", b"1")], [Sent(b"a", None)], [Sent(b"b", b"1")])
        assert await compact(broker)
        assert [one.value for one in records_in(await read_all(client, 3))] == [None, b"1"]
        await write(broker, client, [Sent(b"b", b"2")])
        assert await compact(broker)
        assert [(one.offset, one.value) for one in records_in(await read_all(client, 4))] == [
            (2, b"1"),
            (3, b"2"),
        ]


async def test_deleting_records_needs_the_policy_delete() -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs={"cleanup.policy": "compact"})
        await broker.create_topic("both", configs={"cleanup.policy": "compact,delete"})
        await write(broker, client, [Sent(b"a", b"1")])
        deletion = broker.process.serving.segment_life.record_deletion
        with pytest.raises(KafkaError, match="POLICY_VIOLATION"):
            await deletion.delete_before(broker.partition(TOPIC), 1)
        assert await deletion.delete_before(broker.partition("both"), 0) == 0


async def test_a_consumer_may_begin_at_any_offset() -> None:
    """Also where nothing is left, and with replies of one batch each."""
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        assert await compact(broker)
        broker.forget_cached(TOPIC)
        for start in range(END_OFFSET):
            found, offset = [], start
            while offset < END_OFFSET:
                part = (await client.fetch(TOPIC, {0: offset}, partition_max_bytes=1))[0]
                fetched = bytes(part.records)
                found += records_in(fetched)
                assert fetched, f"nothing at {offset}"
                offset = headers_in(fetched)[-1].last_offset + 1
            wanted = range(max(start, END_OFFSET - 2 * KEYS), END_OFFSET)
            assert {one.offset for one in found} >= {one for one in wanted if one >= END_OFFSET - KEYS}


async def test_the_compaction_process_that_dies_harms_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker(**SETTINGS) as broker, broker.connect() as client:
        await broker.create_topic(TOPIC, configs=COMPACTED)
        await write(broker, client, *map(round_of, range(ROUNDS)))
        killed: list[int] = []
        exchange = WorkerProcess.clean

        async def clean(worker: WorkerProcess, batches: Sequence[Buffer]) -> bytes:
            if not killed:
                killed.append(worker.process_id)
                os.kill(worker.process_id, signal.SIGKILL)
            return await exchange(worker, batches)

        monkeypatch.setattr(WorkerProcess, "clean", clean)
        assert not await compact(broker)
        assert killed
        assert broker.metrics.compactions.outcomes[CompactionOutcome.FAILED] == 1
        assert await compact(broker)
        await check_newest(broker, client)
