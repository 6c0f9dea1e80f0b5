"""The view of starts: differences only, whichever way they are shown; what cannot be read is not there."""

import asyncio
from collections.abc import AsyncGenerator

from kafscale.errors import StoreUnavailableError
from kafscale.formats.share_start_record import ShareStartRecord, encode_share_start
from kafscale.metadata import keys
from kafscale.metadata.keys import SharePartitionId
from kafscale.metadata.memory_store import MemoryStore
from kafscale.metadata.store import Changes, Delete, KeyValue, Snapshot
from kafscale.ops.item_failures import BackgroundWork, ItemFailures
from kafscale.share.state.starts import ShareStarts
from tests.share.state.partitions import GROUP, initialized, partition
from tests.support.waiting import PATIENCE_SEC

RECORD = ShareStartRecord(state_epoch=0, changed_ms=1)
ONE, TWO = partition(1), partition(2, "other")


def item(one: SharePartitionId, revision: int, record: ShareStartRecord = RECORD) -> KeyValue:
    return KeyValue(key=keys.share_start(one), value=encode_share_start(record), mod_revision=revision)


def view() -> tuple[ShareStarts, list[SharePartitionId]]:
    starts = ShareStarts(MemoryStore(), ItemFailures(BackgroundWork.VIEW))
    changes: list[SharePartitionId] = []
    starts.subscribe(changes.append)
    return starts, changes


def test_snapshots_name_differences_only() -> None:
    starts, changes = view()
    starts.apply(Snapshot(items=(item(ONE, 1), item(TWO, 2)), revision=2))
    assert changes == [ONE, TWO]
    starts.apply(Snapshot(items=(item(ONE, 1), item(TWO, 2)), revision=5))
    assert changes == [ONE, TWO]
    starts.apply(Snapshot(items=(item(TWO, 2),), revision=6))
    assert changes == [ONE, TWO, ONE]
    assert (len(starts), starts.get(ONE), dict(starts.of_group(GROUP))) == (1, None, {})
    assert starts.of_group("other")[TWO].revision == 2


def test_start_that_was_deleted_and_set_alike_is_another() -> None:
    starts, changes = view()
    starts.apply(Snapshot(items=(item(ONE, 1),), revision=1))
    starts.apply(Snapshot(items=(item(ONE, 7),), revision=7))
    assert changes == [ONE, ONE]


def test_start_that_cannot_be_read_is_not_there() -> None:
    starts, changes = view()
    bad = KeyValue(key=keys.share_start(ONE), value=b"\x00\x09", mod_revision=3)
    stray = KeyValue(key=f"{keys.SHARE_STARTS}?", value=b"", mod_revision=3)
    starts.apply(Snapshot(items=(item(ONE, 1),), revision=1))
    starts.apply(Changes(puts_and_deletes=(bad, stray), revision=3))
    assert (starts.get(ONE), starts.unreadable(), changes) == (None, 2, [ONE, ONE])
    starts.apply(Changes(puts_and_deletes=(item(ONE, 4), Delete(stray.key)), revision=4))
    assert (starts.get(ONE), starts.unreadable()) == ((RECORD, 4), 0)
    starts.apply(Changes(puts_and_deletes=(bad,), revision=5))
    starts.apply(Snapshot(items=(), revision=6))
    assert (len(starts), starts.unreadable()) == (0, 0)


def test_a_listener_that_fails_does_not_stop_the_others() -> None:
    starts, changes = view()

    def failing(one: SharePartitionId) -> None:
        raise RuntimeError(one)

    starts.subscribe(failing)()
    starts.subscribe(failing)
    later: list[SharePartitionId] = []
    starts.subscribe(later.append)
    starts.apply(Snapshot(items=(item(ONE, 1),), revision=1))
    assert changes == later == [ONE]


class BreakingStore(MemoryStore):
    """Its first watch breaks after the snapshot, and later ones show what was missed."""

    watches = 0

    async def watch(self, prefix: str) -> AsyncGenerator[Snapshot | Changes, None]:
        self.watches += 1
        async for event in super().watch(prefix):
            yield event
            if self.watches == 1:
                await initialized(self, ONE)
                raise StoreUnavailableError("broken")


async def test_many_starts_do_not_hold_up_the_event_loop() -> None:
    store = MemoryStore()
    await initialized(store, *(partition(index) for index in range(1200)))
    starts = ShareStarts(store, ItemFailures(BackgroundWork.VIEW))
    seen = set()
    starts.start()
    async with asyncio.timeout(PATIENCE_SEC):
        while len(starts) < 1200:
            await asyncio.sleep(0)
            seen.add(len(starts))
        await starts.shown()
    assert {500, 1000} <= seen
    await starts.close()


async def test_a_watch_that_breaks_is_begun_again() -> None:
    store = BreakingStore()
    starts = ShareStarts(store, ItemFailures(BackgroundWork.VIEW), retry_delay_sec=0)
    changed: asyncio.Queue[SharePartitionId] = asyncio.Queue()
    starts.subscribe(changed.put_nowait)
    starts.start()
    async with asyncio.timeout(PATIENCE_SEC):
        await starts.shown()
        assert await changed.get() == ONE
    assert store.watches == 2
    await starts.close()
