"""Merging: the partition after it, its producers and consumers meanwhile, and the state after a crash."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.formats import object_keys
from kafscale.formats.index import parse_index
from kafscale.formats.partition_record import (
    PartitionRecord,
    SegmentReference,
    decode_partition_record,
    encode_partition_record,
)
from kafscale.log.life.garbage_collector import GarbageCollector
from kafscale.log.life.merger import Merger
from kafscale.metadata import keys
from kafscale.metadata.store import Put
from kafscale.ops.metrics import MergeOutcome
from tests.formats.segments import parse_segment, verify_segment
from tests.log.compaction.logs_of_keys import Sent, batch_of
from tests.support import wire
from tests.support.in_process_broker import Client, InProcessBroker, in_process_broker, until
from tests.support.waiting import PATIENCE_SEC

EVERY: dict[str, Any] = {"merge_min_segments": 4, "merge_check_interval_ms": 3_600_000}
"""Merges happen when the test says so, and four segments are enough."""

NEWEST_LEFT = 3


def merger(broker: InProcessBroker) -> Merger:
    return broker.process.serving.segment_life.merger


async def merge(broker: InProcessBroker) -> bool:
    return await merger(broker).consider(broker.partition("topic"))


async def produce_segments(broker: InProcessBroker, client: Client, *values: bytes) -> None:
    """A segment for each value."""
    for value in values:
        part = await client.produce("topic", 0, wire.batch([value]))
        assert part.error_code == 0
        await broker.seal("topic")


def values(count: int) -> list[bytes]:
    return [b"value-%d" % number for number in range(count)]


async def read_all(client: Client, until_offset: int, start: int = 0) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    offset = start
    while offset < until_offset:
        part = (await client.fetch("topic", {0: offset}))[0]
        assert part.error_code == 0, part
        records = list(wire.records_in(part.records))
        assert records, f"nothing at {offset}"
        found += [record for record in records if record[0] >= offset]
        offset = records[-1][0] + 1
    return found


async def stored_record(broker: InProcessBroker) -> PartitionRecord:
    found = await broker.metadata.get(keys.partition("topic", 0))
    assert found is not None
    return decode_partition_record(found.key, found.value)


async def listed(broker: InProcessBroker) -> set[str]:
    prefix = object_keys.partition_prefix("default", "topic", 0)
    return {info.key async for info in broker.objects.list(prefix)}


def merged_key(first: int, last: int) -> str:
    return object_keys.merged_segment_key("default", "topic", 0, first, last)


def references(broker: InProcessBroker) -> list[SegmentReference]:
    found = broker.partition("topic").references
    assert found is not None
    return list(found)


async def test_neighbours_become_one_segment_with_the_same_batches() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(20))
        sources = references(broker)
        bodies = [
            parse_segment(
                "source", await broker.objects.get(object_keys.key_of_reference("default", "topic", 0, one))
            )
            for one in sources
        ]
        assert await merge(broker)
        first, *rest = references(broker)
        assert (first.base_offset, first.last_offset, first.record_count) == (0, 16, 17)
        assert rest == sources[17:]
        whole = parse_segment("merged", await broker.objects.get(first.object_key))
        verify_segment(whole)
        assert bytes(whole.body) == b"".join(bytes(body.body) for body in bodies[:17])
        assert whole.header.created_ms == bodies[16].header.created_ms
        assert len(whole.data) == first.size_bytes
        index_key = object_keys.index_key_of(first.object_key)
        index = parse_index(index_key, await broker.objects.get(index_key), 0)
        index.check(last_offset=16, body_end=whole.body_end)
        broker.forget_cached("topic")
        assert await read_all(client, 20) == list(enumerate(values(20)))
        # The record and its checkpoint say the same to the next leader.
        record = await stored_record(broker)
        assert record.log_end_offset == 20 and record.checkpoint_end_offset == 20
        checkpoint = await broker.process.serving.log_parts.checkpointer.load(broker.partition("topic"))
        assert list(checkpoint.segments) == [first, *rest]


async def test_merging_ends_and_begins_again_when_there_is_more() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        assert await merge(broker)
        assert not await merge(broker)
        puts = broker.objects.count("put_if_absent_streamed")
        assert not await merge(broker)
        assert broker.objects.count("put_if_absent_streamed") == puts
        await produce_segments(broker, client, *values(10))
        assert await merge(broker)
        assert len(references(broker)) <= 2 + NEWEST_LEFT
        broker.forget_cached("topic")
        assert [value for _, value in await read_all(client, 20)] == values(10) + values(10)


async def test_a_background_merge_disturbs_no_producer_or_consumer() -> None:
    settings: dict[str, Any] = {"merge_min_segments": 2, "merge_check_interval_ms": 100}
    async with (
        in_process_broker(**settings) as broker,
        broker.connect() as client,
        broker.connect() as reader,
    ):
        await broker.create_topic()
        count = 400
        writing = asyncio.create_task(produce_segments(broker, client, *values(count)))
        read: list[tuple[int, bytes | None]] = []
        while len(read) < count:
            part = (await reader.fetch("topic", {0: len(read)}, max_wait_ms=100, min_bytes=1))[0]
            assert part.error_code == 0, part
            read += [record for record in wire.records_in(part.records) if record[0] >= len(read)]
        await writing
        assert read == list(enumerate(values(count)))
        await until(lambda: len(references(broker)) <= 12, "a handful of segments")
        merges = broker.metrics.merges
        await until(
            lambda: merges.sources - merges.outcomes[MergeOutcome.PUBLISHED] >= count - 12, "it is counted"
        )
        assert broker.metrics.merges.outcomes[MergeOutcome.FAILED] == 0
        broker.forget_cached("topic")
        assert await read_all(reader, count) == list(enumerate(values(count)))


async def test_fetch_during_a_swap_returns_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answered at once with nothing: what it had loaded was no longer what the record names."""
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        broker.forget_cached("topic")
        get_range, has_read, go_on = broker.objects.inner.get_range, asyncio.Event(), asyncio.Event()
        of_the_fetch = True

        async def read_then_wait(*arguments: Any) -> Any:
            answer = await get_range(*arguments)
            if of_the_fetch:
                has_read.set()
                await go_on.wait()
            return answer

        monkeypatch.setattr(broker.objects.inner, "get_range", read_then_wait)
        fetching = asyncio.create_task(client.fetch("topic", {0: 0}, max_wait_ms=1_000, min_bytes=1))
        async with asyncio.timeout(PATIENCE_SEC):
            await has_read.wait()
        of_the_fetch = False
        assert await merge(broker)
        go_on.set()
        part = (await fetching)[0]
        assert [value for _, value in wire.records_in(part.records)][:7] == values(7)


async def test_records_published_during_a_merge_stay() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        with broker.objects.hold("put_if_absent_streamed") as uploading:
            merging = asyncio.create_task(merge(broker))
            await uploading.reached()
            await produce_segments(broker, client, b"during the upload")
            uploading.release()
            with broker.objects.hold("put_if_absent", "*.ckpt") as writing:
                await writing.reached()
                await produce_segments(broker, client, b"during the checkpoint")
                writing.release()
                assert await merging
        assert [value for _, value in await read_all(client, 12)] == [
            *values(10),
            b"during the upload",
            b"during the checkpoint",
        ]
        assert [one.base_offset for one in references(broker)] == [0, 7, 8, 9, 10, 11]
    # And so it is for the next leader.


STEPS = {
    "reading": ("get_range", "default/*"),
    "uploading": ("put_if_absent_streamed", "*"),
    "uploading the index": ("put", "*.index"),
    "writing the checkpoint": ("put_if_absent", "_kafscale/*"),
}


@pytest.mark.parametrize("error", [StoreIndeterminateError, StoreUnavailableError])
@pytest.mark.parametrize("step", STEPS)
async def test_a_merge_that_fails_at_any_step_succeeds_later(step: str, error: type[Exception]) -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        broker.objects.fail(*STEPS[step], error("away"))
        assert not await merge(broker)
        assert broker.metrics.merges.outcomes[MergeOutcome.FAILED] == 1
        assert len(references(broker)) == 10
        assert await merge(broker)
        assert references(broker)[0].object_key == merged_key(0, 6)
        broker.forget_cached("topic")
        assert await read_all(client, 10) == list(enumerate(values(10)))


async def leave_merged_object(broker: InProcessBroker) -> None:
    """As after a crash between the upload and the publication."""
    broker.objects.fail("put_if_absent", "_kafscale/*", StoreUnavailableError("away"))
    assert not await merge(broker)
    assert merged_key(0, 6) in await listed(broker)


async def test_a_merged_object_of_a_crashed_leader_is_reused() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        await leave_merged_object(broker)
        content = await broker.objects.get(merged_key(0, 6))
        assert await merge(broker)
        assert await broker.objects.get(merged_key(0, 6)) == content
        assert references(broker)[0].object_key == merged_key(0, 6)


async def test_a_key_with_other_content_is_avoided_and_others_merged() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        await broker.objects.put_if_absent(merged_key(0, 6), [b"of an older topic of this name"])
        while await merge(broker):
            pass
        assert await broker.objects.get(merged_key(0, 6)) == b"of an older topic of this name"
        assert references(broker)[0].object_key == merged_key(0, 5)
        broker.forget_cached("topic")
        assert await read_all(client, 10) == list(enumerate(values(10)))


async def test_a_merged_object_with_a_damaged_body_is_not_used() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        await leave_merged_object(broker)
        content = bytearray(await broker.objects.get(merged_key(0, 6)))
        content[100] ^= 1
        await broker.objects.delete([merged_key(0, 6)])
        await broker.objects.put_if_absent(merged_key(0, 6), [bytes(content)])
        while await merge(broker):
            pass
        assert references(broker)[0].object_key == merged_key(0, 5)


async def test_a_damaged_source_is_never_merged_and_stays_where_it_is() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(16))
        damaged = merged_key(5, 5)
        content = bytearray(await broker.objects.get(damaged))
        content[-20] ^= 1
        await broker.objects.delete([damaged])
        await broker.objects.put_if_absent(damaged, [bytes(content)])
        while await merge(broker):
            pass
        spans = [(one.base_offset, one.last_offset) for one in references(broker)]
        assert spans == [(0, 4), (5, 5), (6, 12), (13, 13), (14, 14), (15, 15)]
        assert await broker.objects.get(damaged) == bytes(content)
        assert broker.metrics.merges.outcomes[MergeOutcome.FAILED] == 1


async def test_a_leader_that_was_replaced_publishes_no_merge() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        record = await stored_record(broker)
        taken = encode_partition_record(replace(record, leader_epoch=record.leader_epoch + 1))
        await broker.metadata.transact([], [Put(keys.partition("topic", 0), taken)])
        assert not await merge(broker)
        assert (await stored_record(broker)).checkpoint_key == ""
        assert broker.metrics.merges.outcomes[MergeOutcome.GIVEN_UP] == 1
        assert {merged_key(offset, offset) for offset in range(10)} <= await listed(broker)


async def test_a_merge_whose_first_source_expires_is_given_up() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        with broker.objects.hold("put_if_absent_streamed") as uploading:
            merging = asyncio.create_task(merge(broker))
            await uploading.reached()
            await broker.process.serving.segment_life.record_deletion.delete_before(
                broker.partition("topic"), 2
            )
            uploading.release()
            assert not await merging
        assert [one.base_offset for one in references(broker)] == list(range(2, 10))
        assert broker.metrics.merges.outcomes[MergeOutcome.GIVEN_UP] == 1
        # Nothing will ever refer to it.
        collector = GarbageCollector(
            broker.objects,
            broker.process.serving.logs,
            "default",
            lambda: 10**9,
            broker.metrics,
            grace_sec=3600,
            interval_sec=3600,
        )
        await collector.collect(broker.partition("topic"))
        assert merged_key(0, 6) not in await listed(broker)


async def test_a_log_start_within_a_merged_segment_is_kept() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        assert await merge(broker)
        await broker.process.serving.segment_life.record_deletion.delete_before(broker.partition("topic"), 3)
        broker.forget_cached("topic")
        assert await read_all(client, 10, start=3) == list(enumerate(values(10)))[3:]
        assert references(broker)[0].object_key == merged_key(0, 6)


async def test_a_slow_reader_of_a_deleted_source_gets_the_merged_one() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        broker.forget_cached("topic")
        source = merged_key(2, 2)
        with broker.objects.hold("read_into", source) as reading:
            await client.send_fetch("topic", {0: 2}, max_bytes=100)
            await reading.reached()
            assert await merge(broker)
            await broker.objects.delete([merged_key(offset, offset) for offset in range(7)])
            reading.release()
            part = (await client.receive_fetch())[0]
        assert part.error_code == 0
        assert (2, b"value-2") in list(wire.records_in(part.records))


async def test_sources_are_removed_after_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        monkeypatch.setattr("kafscale.log.life.removals.GRACE_SEC", 0.0)
        assert await merge(broker)
        kept = {merged_key(0, 6)} | {merged_key(offset, offset) for offset in (7, 8, 9)}
        kept |= {object_keys.index_key_of(key) for key in kept}
        await until_listed(broker, kept)


async def until_listed(broker: InProcessBroker, expected: set[str]) -> None:
    async with asyncio.timeout(PATIENCE_SEC):
        while await listed(broker) != expected:  # noqa: ASYNC110 - it is a look at a store
            await asyncio.sleep(0)


async def test_an_idle_partition_is_merged_without_staying_loaded() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))
        metadata, objects = broker.metadata, broker.objects
        await broker.stop()
    async with in_process_broker(metadata=metadata, objects=objects, **EVERY) as broker:
        assert await merge(broker)
        assert not await merge(broker)
    async with in_process_broker(metadata=metadata, objects=objects, **EVERY) as broker:
        assert not await merge(broker)
        assert broker.partition("topic").references is None
        async with broker.connect() as client:
            assert await read_all(client, 10) == list(enumerate(values(10)))


async def test_the_index_of_a_merged_segment_finds_every_batch() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        offset = 0
        for _ in range(8):
            for _ in range(30):
                await client.send_produce("topic", {0: wire.batch(values(7))})
            for _ in range(30):
                await client.receive_produce()
            await broker.seal("topic")
            offset += 210
        assert await merge(broker)
        first = references(broker)[0]
        index_key = object_keys.index_key_of(first.object_key)
        index = parse_index(index_key, await broker.objects.get(index_key), 0)
        assert list(index.offsets) == sorted(set(index.offsets)) and len(index.offsets) > 5
        broker.forget_cached("topic")
        for start in (0, 1, 106, 500, first.last_offset, offset - 1):
            found = await read_all(client, offset, start=start)
            assert [position for position, _ in found] == list(range(start, offset))


async def test_a_merge_indexes_large_messages_more_densely() -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        large = [bytes([number]) * 900_000 for number in range(12)]
        await produce_segments(broker, client, *large)
        assert await merge(broker)
        first = references(broker)[0]
        index_key = object_keys.index_key_of(first.object_key)
        index = parse_index(index_key, await broker.objects.get(index_key), 0)
        assert (index.interval, list(index.offsets)) == (4, [0, 4, 8])
        broker.forget_cached("topic")
        assert await read_all(client, 12) == list(enumerate(large))


async def test_a_store_error_or_a_defect_ends_only_one_look(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic(partitions=2)
        for index in (0, 1):
            for value in values(10):
                assert (await client.produce("topic", index, wire.batch([value]))).error_code == 0
                await broker.seal("topic", index)
        broker.objects.fail("get_range", "*", StoreUnavailableError("away"))
        assert not await merger(broker)._look()
        assert broker.metrics.merges.outcomes[MergeOutcome.FAILED] == 1

        def defective(*_: object, **__: object) -> None:
            raise ValueError("a defect")

        monkeypatch.setattr("kafscale.log.life.merge_candidates.plan_with_debt", defective)
        assert not await merger(broker)._look()
        assert not await merger(broker)._look()  # looked at again when there is something new
        assert broker.metrics.merges.outcomes[MergeOutcome.FAILED] == 3
        assert [record.message for record in caplog.records if record.exc_info] == [
            "could not merge segments"
        ] * 2
        monkeypatch.undo()
        await produce_segments(broker, client, b"more")
        assert await merger(broker)._look()


async def test_a_merge_counts_if_old_checkpoints_cannot_be_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        await produce_segments(broker, client, *values(10))

        async def away(*_: object) -> None:
            raise StoreUnavailableError("away")

        monkeypatch.setattr(broker.process.serving.log_parts.checkpointer, "remove_superseded", away)
        assert await merge(broker)
        assert broker.metrics.merges.outcomes[MergeOutcome.PUBLISHED] == 1
        source = merged_key(0, 0)
        await until(
            lambda: broker.process.serving.segment_life.removals.is_waiting(source), "its sources are to go"
        )


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_retention_limits_a_merge_only_where_records_expire(policy: str) -> None:
    async with in_process_broker(**EVERY) as broker, broker.connect() as client:
        await broker.create_topic(configs={"cleanup.policy": policy, "retention.ms": 10_000_000})
        hour_ms = 3_600_000
        for number, value in enumerate(values(10)):
            sent = [Sent(b"key", value, 1_700_000_000_000 + number * hour_ms)]
            records = batch_of(sent)
            assert (await client.produce("topic", 0, records)).error_code == 0
            await broker.seal("topic")
        assert await merge(broker) == (policy == "compact")


async def test_sealing_indexes_large_messages_more_densely_too() -> None:
    async with in_process_broker(flush_interval_ms=300, **EVERY) as broker, broker.connect() as client:
        await broker.create_topic()
        for number in range(6):
            await client.send_produce("topic", {0: wire.batch([bytes([number]) * 900_000])})
        for _ in range(6):
            assert (await client.receive_produce())[1][0].error_code == 0
        await broker.seal("topic")
        for reference in references(broker):
            key = object_keys.index_key_of(reference.object_key)
            index = parse_index(key, await broker.objects.get(key), reference.base_offset)
            assert index.interval == 4
