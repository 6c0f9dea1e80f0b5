"""The stored state of share groups, in every metadata store: shared writes, fences, starts, deletions."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from kafscale.formats.share_state_record import decode_share_state
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.store import MetadataStore, Put
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.share.state.opened import ShareLoadRefusal, ShareWriteResult
from kafscale.share.state.operations import (
    alter,
    delete,
    delete_all,
    initialize,
    of_deleted_topics,
)
from kafscale.share.state.starts import ShareStarts
from kafscale.share.state.stored_group import read_share_group
from kafscale.share.state.writer import ShareStateWriter
from tests.contract.metadata_backends import BACKENDS
from tests.share.state.partitions import (
    CHANGE,
    GROUP,
    TOPIC_ID,
    apply,
    elect,
    initialized,
    opened,
    partition,
    state,
)
from tests.support.waiting import PATIENCE_SEC

COUNT = 100
WRITTEN, FENCED, START_CHANGED = ShareWriteResult


@pytest.fixture(params=sorted(BACKENDS))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[MetadataStore]:
    async with BACKENDS[request.param](tmp_path) as made:
        yield made


@pytest.fixture
async def writer(store: MetadataStore) -> AsyncIterator[ShareStateWriter]:
    made = ShareStateWriter(store, retry_delay_sec=0.01)
    yield made
    await made.close()


async def test_states_of_100_partitions_are_written_together(
    store: MetadataStore, writer: ShareStateWriter
) -> None:
    """Of two groups that read the same partitions, one with many records in flight."""
    parts = [partition(index, group) for index in range(COUNT // 2) for group in (GROUP, "ünd 50%/")]
    await initialized(store, *parts)
    led = [await elect(store, index) for index in range(COUNT // 2)]
    handles = await asyncio.gather(*(opened(writer, one, led[one.partition]) for one in parts))
    assert all(one.state is None and one.start.state_epoch == 0 for one in handles)
    for turn in range(3):
        results = await asyncio.gather(
            *(writer.write(one, state(10 * turn, in_flight=turn * 1000)) for one in handles)
        )
        assert results == [WRITTEN] * COUNT
    stored = (await store.range(keys.SHARE_STATES)).items
    assert len(stored) == COUNT
    # The first of a burst has a transaction of its own.
    assert len({item.mod_revision for item in stored}) < COUNT / 10
    again = await asyncio.gather(*(opened(writer, one, led[one.partition]) for one in parts))
    assert [one.state for one in again] == [state(20, in_flight=2000)] * COUNT


async def test_a_lost_compare_fails_its_own_partition_only(
    store: MetadataStore, writer: ShareStateWriter
) -> None:
    parts = [partition(index) for index in range(COUNT)]
    await initialized(store, *parts)
    led = [await elect(store, index) for index in range(COUNT)]
    handles = await asyncio.gather(*(opened(writer, one, led[one.partition]) for one in parts))
    for index in range(0, COUNT, 10):
        await elect(store, index, epoch=2)
    known = {one: handles[one.partition].start for one in parts}
    changed = {parts[index]: 77 for index in range(5, COUNT, 10)}
    await apply(store, alter(changed, known, CHANGE).operations)
    await apply(store, delete(parts[index] for index in range(7, COUNT, 10)))
    results = await asyncio.gather(*(writer.write(one, state(1)) for one in handles))
    assert results == [
        {0: FENCED, 5: START_CHANGED, 7: START_CHANGED}.get(index % 10, WRITTEN) for index in range(COUNT)
    ]
    stored = {keys.share_partition(item.key) for item in (await store.range(keys.SHARE_STATES)).items}
    assert stored == {parts[index] for index in range(COUNT) if results[index] is WRITTEN}
    assert await writer.write(handles[5], state(2)) is START_CHANGED
    assert await writer.load(parts[0], led[0]) is ShareLoadRefusal.FENCED
    assert await writer.load(parts[7], led[7]) is ShareLoadRefusal.NOT_INITIALIZED
    altered = await opened(writer, parts[5], led[5])
    assert (altered.start.state_epoch, altered.start.start_offset, altered.state) == (1, 77, None)
    assert await writer.write(altered, state(80, state_epoch=1)) is WRITTEN


async def test_the_next_leader_reads_what_was_written(store: MetadataStore, writer: ShareStateWriter) -> None:
    one = partition(0)
    await initialized(store, one)
    first = await opened(writer, one, await elect(store, 0))
    assert await writer.write(first, state(5, in_flight=3)) is WRITTEN
    second = await opened(writer, one, await elect(store, 0, epoch=2))
    assert second.state == state(5, in_flight=3)
    assert await writer.write(first, state(6)) is FENCED
    assert await writer.write(second, state(7, epoch=2)) is WRITTEN
    stored = await store.get(keys.share_state(one))
    assert stored is not None
    assert decode_share_state(stored.key, stored.value) == state(7, epoch=2)


async def test_state_of_a_deleted_start_is_not_of_the_next(
    store: MetadataStore, writer: ShareStateWriter
) -> None:
    """The state outlives its start if the coordinator fails between the two deletions."""
    one = partition(0)
    led = await elect(store, 0)
    await initialized(store, one)
    before = await opened(writer, one, led)
    assert await writer.write(before, state(5)) is WRITTEN
    await apply(store, delete([one])[:1])
    assert await writer.write(before, state(6)) is START_CHANGED
    operations = initialize([one], {}, CHANGE).operations
    for operation in operations:
        await apply(store, (operation,))
    after = await opened(writer, one, led)
    assert after.state is None
    assert await writer.write(after, state(0)) is WRITTEN


async def test_a_group_is_read_as_it_is(store: MetadataStore, writer: ShareStateWriter) -> None:
    parts = [partition(index) for index in range(4)]
    led = await elect(store, 0)
    await initialized(store, *parts, partition(0, "other"))
    assert await writer.write(await opened(writer, parts[0], led), state(5)) is WRITTEN
    one = await opened(writer, parts[0], led)
    await apply(store, alter({parts[1]: 7}, {parts[1]: one.start}, CHANGE).operations)
    await apply(store, (Put(keys.share_start(parts[2]), b"\x00\x09"), Put(keys.share_state(parts[3]), b"")))
    found = await read_share_group(store, GROUP)
    assert set(found.starts) == {parts[0], parts[1], parts[3]}
    assert found.states == {parts[0]: state(5)}
    assert [found.start_offset(one) for one in parts] == [5, 7, None, -1]
    assert set(found.unreadable) == {keys.share_start(parts[2]), keys.share_state(parts[3])}
    await apply(store, alter({parts[0]: 3}, found.starts, CHANGE).operations)
    found = await read_share_group(store, GROUP)
    assert (found.states, found.start_offset(parts[0])) == ({}, 3)
    for step in delete_all(found.start_keys, found.state_keys):
        await apply(store, step)
    found = await read_share_group(store, GROUP)
    assert (found.start_keys, found.state_keys, found.starts) == ([], [], {})
    assert len((await read_share_group(store, "other")).starts) == 1


async def test_a_group_is_deleted_in_steps(store: MetadataStore, writer: ShareStateWriter) -> None:
    parts = [partition(index) for index in range(COUNT)]
    others = partition(0, "other")
    await initialized(store, others, *parts)
    led = await elect(store, 0)
    for one in (parts[0], others):
        assert await writer.write(await opened(writer, one, led), state(5)) is WRITTEN
    start_keys = [item.key for item in (await store.range(keys.group_share_starts(GROUP))).items]
    state_keys = [item.key for item in (await store.range(keys.group_share_states(GROUP))).items]
    assert (len(start_keys), len(state_keys)) == (COUNT, 1)
    steps = list(delete_all(start_keys, state_keys, at_once=30))
    assert [len(step) for step in steps] == [30, 30, 30, 11]
    for step in steps:
        await apply(store, step)
    assert [item.key for item in (await store.range(keys.SHARE_STARTS)).items] == [keys.share_start(others)]
    assert [item.key for item in (await store.range(keys.SHARE_STATES)).items] == [keys.share_state(others)]


async def test_keys_of_deleted_topics_are_found(store: MetadataStore) -> None:
    gone = SharePartitionId(GROUP, uuid.UUID(int=8), 0)
    await initialized(store, partition(0), gone)
    start_keys = [
        item.key for item in (await store.range(keys.shard_share_starts(keys.shard_of(GROUP)))).items
    ]
    assert of_deleted_topics([*start_keys, "share-starts/?"], {TOPIC_ID}) == [keys.share_start(gone)]
    assert of_deleted_topics(start_keys, {TOPIC_ID, gone.topic_id}) == []


async def test_the_view_of_starts_follows_the_store(store: MetadataStore) -> None:
    parts = [partition(index) for index in range(3)]
    await initialized(store, parts[0])
    starts = ShareStarts(store, ItemFailures(BackgroundWork.VIEW), retry_delay_sec=0.01)
    changes: asyncio.Queue[SharePartitionId] = asyncio.Queue()
    starts.subscribe(changes.put_nowait)
    starts.start()
    async with asyncio.timeout(PATIENCE_SEC):
        await starts.shown()
        assert await changes.get() == parts[0]
        set_now = initialize(parts, {parts[0]: starts.of_group(GROUP)[parts[0]].record}, CHANGE)
        revision = await apply(store, set_now.operations)
        assert {await changes.get(), await changes.get()} == set(parts[1:])
        found = starts.get(parts[1])
        assert found == (set_now.starts[parts[1]], revision)
        altered = alter({parts[1]: 9}, set_now.starts, CHANGE)
        await apply(store, altered.operations)
        assert await changes.get() == parts[1]
        again = starts.get(parts[1])
        assert again is not None
        assert (again.record.state_epoch, again.record.start_offset) == (1, 9)
        await apply(store, delete(parts[:2]))
        assert {await changes.get(), await changes.get()} == set(parts[:2])
    assert list(starts.of_group(GROUP)) == [parts[2]]
    assert len(starts) == 1
    assert changes.empty()
    await starts.close()
