"""The bound of a watcher's backlog, and what it gets when that is not enough."""

import asyncio
from contextlib import aclosing

from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.store import Changes, KeyValue, Snapshot
from kafscale.metadata.watch_hub import WatchHub
from tests.support.waiting import PATIENCE_SEC

VALUE = bytes(1000)


class Store:
    """Just enough of a store to feed a hub."""

    def __init__(self, max_backlog_bytes: int) -> None:
        self.keyspace = Keyspace()
        self.hub = WatchHub(self.keyspace.range, max_backlog_bytes=max_backlog_bytes)

    def put(self, key: str) -> KeyValue:
        item = KeyValue(key=key, value=VALUE, mod_revision=self.keyspace.revision + 1)
        changes = Changes(puts_and_deletes=(item,), revision=item.mod_revision)
        self.keyspace.apply(changes)
        self.hub.publish([changes])
        return item


async def test_what_was_missed_comes_as_one() -> None:
    store = Store(max_backlog_bytes=100_000)
    async with aclosing(store.hub.watch("k")) as events:
        assert await anext(events) == Snapshot(items=(), revision=0)
        items = tuple(store.put("k") for _ in range(3))
        store.put("other")
        assert await anext(events) == Changes(puts_and_deletes=items, revision=3)


async def test_a_slow_watcher_starts_over_and_goes_on() -> None:
    store = Store(max_backlog_bytes=5_000)
    async with aclosing(store.hub.watch("k")) as events, aclosing(store.hub.watch("k")) as fast:
        await anext(events)
        await anext(fast)
        # Some of them after the backlog was thrown away: they are in the snapshot and must not come again.
        for _ in range(23):
            item = store.put("k")
            assert await anext(fast) == Changes(puts_and_deletes=(item,), revision=item.mod_revision)
        assert await anext(events) == Snapshot(items=(item,), revision=23)
        item = store.put("k")
        assert await anext(events) == Changes(puts_and_deletes=(item,), revision=24)


async def test_waiting_watcher_is_woken_by_a_backlog_overflow() -> None:
    store = Store(max_backlog_bytes=100)
    async with asyncio.timeout(PATIENCE_SEC), aclosing(store.hub.watch("k")) as events:
        await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        item = store.put("k")
        assert await waiting == Snapshot(items=(item,), revision=1)


async def test_other_prefixes_do_not_fill_the_backlog() -> None:
    store = Store(max_backlog_bytes=2_000)
    async with aclosing(store.hub.watch("k")) as events:
        await anext(events)
        for _ in range(20):
            store.put("other")
        item = store.put("k")
        assert await anext(events) == Changes(puts_and_deletes=(item,), revision=21)


async def test_closed_cancelled_and_forgotten_watches_are_freed() -> None:
    store = Store(max_backlog_bytes=2_000)
    closed, cancelled, forgotten = (store.hub.watch("k") for _ in range(3))
    assert store.hub.watcher_count == 0
    for events in (closed, cancelled, forgotten):
        await anext(events)
    assert store.hub.watcher_count == 3
    await closed.aclose()
    assert store.hub.watcher_count == 2
    waiting = asyncio.ensure_future(anext(cancelled))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    assert store.hub.watcher_count == 1
    del events, forgotten
    # The event loop closes a generator that nobody holds any more.
    for _ in range(5):
        await asyncio.sleep(0)
    assert store.hub.watcher_count == 0
