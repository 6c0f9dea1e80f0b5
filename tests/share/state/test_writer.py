"""Writes of share states: one at a time for a partition, known before the next, shared by partitions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from kafscale.errors import CorruptDataError, StoreError, StoreIndeterminateError, StoreUnavailableError
from kafscale.formats.share_state_record import decode_share_state
from kafscale.metadata import keys
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Compare, Operation, Put, TransactionResult
from kafscale.share.state.opened import Led, OpenShareState, ShareLoadRefusal, ShareWriteResult
from kafscale.share.state.operations import alter
from kafscale.share.state.writer import ShareStateWriter
from tests.share.state.partitions import CHANGE, apply, elect, initialized, opened, partition, state
from tests.support.faults import ERRORS, Fault, Fuse, FusedMetadataStore
from tests.support.waiting import PATIENCE_SEC

ONE = partition(0)
WRITTEN, FENCED, START_CHANGED = ShareWriteResult


class ScriptedStore(MemoryStore):
    """Writes and reads end as the test says, one after the other; then as they do.

    True: done, and the answer is lost. False: not done, and the answer is lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.script: list[bool | Exception] = []
        self.held: asyncio.Event | None = None
        self.reached = asyncio.Event()
        self.sizes: list[int] = []
        self.after_lost: Operation | None = None
        self.read = 0

    async def transact(
        self, compares: Sequence[Compare], operations: Sequence[Operation]
    ) -> TransactionResult:
        if not operations:
            self.read += 1
        else:
            self.sizes.append(len(operations))
            self.reached.set()
            if self.held is not None:
                await self.held.wait()
        if not self.script or not any(one.key.startswith(keys.SHARE_STATES) for one in compares):
            return await super().transact(compares, operations)
        step = self.script.pop(0)
        if isinstance(step, Exception):
            raise step
        if step:
            await super().transact(compares, operations)
        if self.after_lost is not None:
            await super().transact([], [self.after_lost])
        raise StoreIndeterminateError("no answer")


@pytest.fixture
def store() -> ScriptedStore:
    return ScriptedStore()


@pytest.fixture
async def writer(store: ScriptedStore) -> AsyncIterator[ShareStateWriter]:
    made = ShareStateWriter(store, retry_delay_sec=0)
    yield made
    await made.close()


@pytest.fixture
async def led(store: ScriptedStore) -> Led:
    await initialized(store, ONE)
    return await elect(store, 0)


async def stored_offset(store: ScriptedStore) -> int | None:
    found = await store.get(keys.share_state(ONE))
    return None if found is None else decode_share_state(found.key, found.value).start_offset


async def _hold_first(
    store: ScriptedStore, writer: ShareStateWriter, one: OpenShareState, *offsets: int
) -> list[asyncio.Task[ShareWriteResult]]:
    """Begin these writes, the first of which is in flight and held."""
    store.held = asyncio.Event()
    store.reached.clear()
    tasks = [asyncio.create_task(writer.write(one, state(offsets[0])))]
    await asyncio.wait_for(store.reached.wait(), PATIENCE_SEC)
    tasks += [asyncio.create_task(writer.write(one, state(offset))) for offset in offsets[1:]]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize(
    "script",
    [
        [True],
        [False],
        [False, True],
        [False, False, False],
        # The second is the read.
        [True, StoreUnavailableError("away"), StoreIndeterminateError("no answer")],
        [StoreUnavailableError("away"), True],
    ],
)
async def test_a_lost_answer_is_read_back(
    store: ScriptedStore, writer: ShareStateWriter, led: Led, script: list[bool | Exception]
) -> None:
    one = await opened(writer, ONE, led)
    store.script = script
    assert await writer.write(one, state(5)) is WRITTEN
    assert store.script == []
    assert await stored_offset(store) == 5
    assert await writer.write(one, state(6)) is WRITTEN
    assert await stored_offset(store) == 6


async def test_own_write_that_is_found_is_a_success_whoever_leads(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    store.script = [True]
    store.after_lost = Put(one.compares.leader.key, b"2")
    assert await writer.write(one, state(5)) is WRITTEN
    assert await stored_offset(store) == 5
    assert await writer.write(one, state(6)) is FENCED


async def test_unknown_write_of_a_replaced_leader_is_fenced(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    await elect(store, 0, epoch=2)
    store.script = [False]
    assert await writer.write(one, state(5)) is FENCED
    assert await stored_offset(store) is None


async def test_unknown_write_for_an_altered_start(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    await apply(store, alter({ONE: 3}, {ONE: one.start}, CHANGE).operations)
    store.script = [False]
    assert await writer.write(one, state(5)) is START_CHANGED


async def test_late_write_of_an_abandoned_one_is_found(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    """It arrives after the partition was loaded again: what was loaded is not the newest any more."""
    first, second = await opened(writer, ONE, led), await opened(writer, ONE, led)
    assert await writer.write(first, state(5)) is WRITTEN
    assert await writer.write(second, state(6)) is FENCED
    third = await opened(writer, ONE, led)
    assert third.state == state(5)
    assert await writer.write(third, state(6)) is WRITTEN


async def test_writes_of_one_partition_that_wait_are_one(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    before = len(store.sizes)
    tasks = await _hold_first(store, writer, one, 1, 2, 3, 4)
    tasks[1].cancel()
    assert store.held is not None
    store.held.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [results[0], *results[2:]] == [WRITTEN] * 3
    assert isinstance(results[1], asyncio.CancelledError)
    assert await stored_offset(store) == 4
    assert len(store.sizes) - before == 2


async def test_a_cancelled_wait_does_not_stop_the_write(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    (task,) = await _hold_first(store, writer, one, 1)
    task.cancel()
    assert store.held is not None
    store.held.set()
    assert await writer.write(one, state(2)) is WRITTEN
    assert await stored_offset(store) == 2


async def test_abandoned_writes_are_answered(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    tasks = await _hold_first(store, writer, one, 1, 2)
    store.script = [StoreUnavailableError("away")] * 3
    writer.abandon(one)
    assert store.held is not None
    store.held.set()
    assert await asyncio.gather(*tasks) == [FENCED, FENCED]
    assert await writer.write(one, state(3)) is FENCED
    assert await stored_offset(store) is None


async def test_a_closed_writer_says_that_it_does_not_know(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    tasks = await _hold_first(store, writer, one, 1, 2)
    await writer.close()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [StoreIndeterminateError] * 2
    with pytest.raises(StoreIndeterminateError, match="was closed"):
        await writer.write(one, state(3))


async def test_a_record_of_another_start_is_refused(writer: ShareStateWriter, led: Led) -> None:
    one = await opened(writer, ONE, led)
    with pytest.raises(ValueError, match="has epoch 4, legal is that of its start, 0"):
        await writer.write(one, state(3, state_epoch=4))
    with pytest.raises(ValueError, match="start offset -3, legal are 0"):
        await writer.write(one, state(-3))
    assert await writer.write(one, state(3)) is WRITTEN


async def test_a_write_that_the_store_refuses_ends_the_partition(
    store: ScriptedStore, writer: ShareStateWriter, led: Led, caplog: pytest.LogCaptureFixture
) -> None:
    one = await opened(writer, ONE, led)
    store.script = [ValueError("too large")]
    with pytest.raises(ValueError, match="too large"):
        await writer.write(one, state(3))
    assert await writer.write(one, state(3)) is FENCED
    assert "a background task failed" in caplog.text


async def test_load_says_why_there_is_nothing(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    assert await writer.load(partition(1), await elect(store, 1)) is ShareLoadRefusal.NOT_INITIALIZED
    assert await writer.load(ONE, replace(led, revision=led.revision - 1)) is ShareLoadRefusal.FENCED
    store.script = [StoreUnavailableError("away")]
    with pytest.raises(StoreError, match="away"):
        await writer.load(ONE, led)
    await apply(store, (Put(keys.share_state(ONE), b"\x00\x01"),))
    with pytest.raises(CorruptDataError, match="share-states/"):
        await writer.load(ONE, led)


async def test_a_state_of_a_later_start_is_corrupt(
    store: ScriptedStore, writer: ShareStateWriter, led: Led
) -> None:
    one = await opened(writer, ONE, led)
    altered = alter({ONE: 3}, {ONE: one.start}, CHANGE)
    await apply(store, altered.operations)
    one = await opened(writer, ONE, led)
    assert await writer.write(one, state(5, state_epoch=1)) is WRITTEN
    await initialized(store, ONE)
    assert (await opened(writer, ONE, led)).state is None
    await apply(store, altered.operations)
    again = await opened(writer, ONE, led)
    assert await writer.write(again, state(5, state_epoch=1)) is WRITTEN
    await apply(store, (Put(*_start_of_epoch_0()),))
    with pytest.raises(CorruptDataError, match=r"state epoch is 1; the start's is 0"):
        await writer.load(ONE, led)


def _start_of_epoch_0() -> tuple[str, bytes]:
    (made,) = (one for one in alter({ONE: 3}, {}, CHANGE).operations if isinstance(one, Put))
    return made.key, made.value


async def test_loads_and_reads_back_share_requests(store: ScriptedStore, writer: ShareStateWriter) -> None:
    parts = [partition(index) for index in range(100)]
    await initialized(store, *parts)
    led = [await elect(store, index) for index in range(100)]
    before = store.read
    handles = await asyncio.gather(*(opened(writer, one, led[one.partition]) for one in parts))
    assert store.read - before == 3
    before = store.read
    store.script = [True] * 2
    assert set(await asyncio.gather(*(writer.write(one, state(1)) for one in handles))) == {WRITTEN}
    assert store.script == []
    assert store.read - before <= 5


@pytest.mark.parametrize("fault", ERRORS)
async def test_any_call_may_fail_once(fault: Fault) -> None:
    """Whichever it is: of a shared write, of the read after it, or of the next attempt."""
    parts = [partition(index) for index in range(60)]
    for at in range(1, 8):
        inner = MemoryStore()
        await initialized(inner, *parts)
        led = [await elect(inner, index) for index in range(len(parts))]
        fuse = Fuse(0, fault)
        writer = ShareStateWriter(FusedMetadataStore(inner, fuse), retry_delay_sec=0)
        handles = await asyncio.gather(*(opened(writer, one, led[one.partition]) for one in parts))
        await elect(inner, 7, epoch=2)
        fuse.blow_in(at)
        for offset in (5, 6):
            results = await asyncio.gather(*(writer.write(one, state(offset)) for one in handles))
            assert [index for index, result in enumerate(results) if result is not WRITTEN] == [7]
        assert fuse.blown.is_set()
        stored = (await inner.range(keys.SHARE_STATES)).items
        assert len(stored) == len(parts) - 1
        assert {decode_share_state(item.key, item.value) for item in stored} == {state(6)}
        await writer.close()
