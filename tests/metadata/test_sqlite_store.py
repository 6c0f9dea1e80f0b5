"""The embedded store in good health: group commit, what readers see, leases, restarts, its log's size."""

import asyncio
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.metadata.sqlite.file import SqliteFile
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import ABSENT, Changes, Compare, Delete, KeyValue, Put, Snapshot
from tests.support.waiting import PATIENCE_SEC


class Gate:
    """Holds every write of every file until it is opened, and counts them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.writes = 0
        write = SqliteFile.write

        def held(file: SqliteFile, revision: int, keys: Mapping[str, KeyValue | None]) -> None:
            self.writes += 1
            self.entered.set()
            assert self.opened.wait(PATIENCE_SEC)
            write(file, revision, keys)

        monkeypatch.setattr(SqliteFile, "write", held)

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(path)
    yield opened
    await opened.close()


async def reopened(store: SqliteStore, path: Path) -> Snapshot:
    """Close the store and read everything back from its file."""
    await store.close()
    again = await SqliteStore.open(path)
    try:
        return await again.range("")
    finally:
        await again.close()


def size_bytes(path: Path) -> int:
    return path.stat().st_size


async def test_everything_is_there_after_a_restart(store: SqliteStore, path: Path) -> None:
    await store.transact([], [Put("a", b"1"), Put("b", bytes(100_000)), Put("ü/\U0001f600\x00", b"")])
    await store.transact([], [Put("a", b"2"), Put("c", b"3")])
    await store.transact([], [Delete("c")])
    before = await store.range("")
    assert len(before.items) == 3
    assert await reopened(store, path) == before


async def test_the_revision_never_goes_back(store: SqliteStore, path: Path) -> None:
    created = (await store.transact([], [Put("k", b"1")])).revision
    deleted = (await store.transact([], [Delete("k")])).revision
    await store.close()
    again = await SqliteStore.open(path)
    assert (await again.range("")).revision == deleted
    assert (await again.transact([], [Put("k", b"2")])).revision > deleted > created
    await again.close()


async def test_many_callers_share_a_commit(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    first = asyncio.ensure_future(store.transact([], [Put("first", b"1")]))
    await gate.wait_entered()
    rest = asyncio.gather(*(store.transact([], [Put(f"k{index:03}", b"v")]) for index in range(300)))
    await asyncio.sleep(0)
    gate.opened.set()
    results = [await first, *await rest]
    assert gate.writes == 2
    assert len({result.revision for result in results}) == 301
    assert [(await reopened(store, path)).items[index].key for index in (0, 300)] == ["first", "k299"]


async def test_each_transaction_of_a_group_has_its_own_outcome(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    first = asyncio.ensure_future(store.transact([], [Put("first", b"1")]))
    await gate.wait_entered()
    group = asyncio.gather(
        store.transact([Compare("k", ABSENT)], [Put("k", b"winner"), Put("gone", b"1")]),
        store.transact([Compare("k", ABSENT)], [Put("k", b"loser"), Delete("first")]),
        store.transact([Compare("first", 1)], [Put("first", b"2"), Delete("gone")]),
    )
    await asyncio.sleep(0)
    gate.opened.set()
    await first
    winner, loser, other = await group
    assert gate.writes == 2
    assert (winner.succeeded, loser.succeeded, other.succeeded) == (True, False, True)
    assert loser.found == (KeyValue(key="k", value=b"winner", mod_revision=winner.revision),)
    stored = await reopened(store, path)
    assert {item.key: item.value for item in stored.items} == {"first": b"2", "k": b"winner"}


async def test_nothing_is_seen_before_it_is_durable(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = (await store.transact([], [Put("k", b"old")])).revision
    async with aclosing(store.watch("k")) as events:
        await anext(events)
        seen = asyncio.ensure_future(anext(events))
        gate = Gate(monkeypatch)
        writing = asyncio.ensure_future(store.transact([Compare("k", old)], [Put("k", b"new")]))
        await gate.wait_entered()
        # The loop is free and readers are served while the commit takes its time.
        for _ in range(10):
            assert await store.get("k") == KeyValue(key="k", value=b"old", mod_revision=old)
            assert (await store.range("")).revision == old
            await asyncio.sleep(0.001)
        assert not seen.done()
        assert not writing.done()
        gate.opened.set()
        new = KeyValue(key="k", value=b"new", mod_revision=(await writing).revision)
        assert await store.get("k") == new
        assert await seen == Changes(puts_and_deletes=(new,), revision=new.mod_revision)


async def test_a_caller_that_left_does_not_hold_up_the_others(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)
    leaving = asyncio.ensure_future(store.transact([], [Put("left", b"1")]))
    await gate.wait_entered()
    leaving.cancel()
    await asyncio.wait([leaving])
    gate.opened.set()
    assert (await store.transact([], [Put("k", b"1")])).succeeded


async def test_close_answers_what_was_asked_before(path: Path) -> None:
    store = await SqliteStore.open(path)
    asked = [asyncio.ensure_future(store.transact([], [Put(f"k{index}", b"v")])) for index in range(20)]
    await asyncio.sleep(0)
    stored = await reopened(store, path)
    assert all(task.result().succeeded for task in asked)
    assert len(stored.items) == 20


async def test_a_closed_store_refuses(store: SqliteStore) -> None:
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.get("k")
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.transact([], [Put("k", b"v")])
    assert not any(thread.name == "kafscale-metadata" for thread in threading.enumerate())


async def test_leases_follow_the_clock(path: Path) -> None:
    now = 100.0
    store = await SqliteStore.open(path, clock=lambda: now)
    lease, other = await store.grant_lease(10), await store.grant_lease(30)
    await store.transact([], [Put("k", b"v", lease), Put("other", b"v", other)])
    now = 109.0
    assert await store.renew_lease(lease)
    now = 118.9
    assert await store.renew_lease(other)
    assert await store.get("k") is not None
    now = 119.0
    # Whatever is served lets the thread look at the clock.
    assert await store.renew_lease(other)
    assert not await store.renew_lease(lease)
    assert [item.key for item in (await store.range("")).items] == ["other"]
    await store.close()


async def test_keys_of_an_earlier_process_lease_go_at_the_start(store: SqliteStore, path: Path) -> None:
    lease = await store.grant_lease(3600)
    keys = [f"leaders/t/{index}" for index in range(300)]
    for start in range(0, 300, 100):
        await store.transact([], [Put(key, b"1", lease) for key in keys[start : start + 100]])
    last = await store.transact([], [Put("topics/t", b"stays")])
    await store.close()
    again = await SqliteStore.open(path)
    left = await again.range("")
    assert [item.key for item in left.items] == ["topics/t"]
    assert left.revision > last.revision
    assert not await again.renew_lease(lease)
    assert await reopened(again, path) == left


async def test_the_log_does_not_grow_without_bound(path: Path) -> None:
    store = await SqliteStore.open(path, fsync=False)
    largest = 0
    for count in range(600):
        # Other bytes each time: SQLite does not write an overflow page that stays as it was.
        await store.transact([], [Put(f"k{count % 7}", bytes([count % 251]) * 100_000)])
        largest = max(largest, size_bytes(path.with_name("metadata.db-wal")))
    await store.close()
    assert largest < 20_000_000
    assert size_bytes(path) < 2_000_000


async def test_a_slow_watcher_starts_over(path: Path) -> None:
    store = await SqliteStore.open(path, max_backlog_bytes=10_000)
    async with aclosing(store.watch("")) as events:
        await anext(events)
        for count in range(20):
            last = await store.transact([], [Put("k", bytes([count]) * 1000)])
        item = KeyValue(key="k", value=bytes([19]) * 1000, mod_revision=last.revision)
        assert await anext(events) == Snapshot(items=(item,), revision=last.revision)
    assert store.watcher_count == 0
    await store.close()


@pytest.mark.parametrize(("fsync", "level"), [(True, 2), (False, 0)])
def test_fsync_decides_how_synchronous_sqlite_is(path: Path, fsync: bool, level: int) -> None:
    file = SqliteFile(path, fsync=fsync)
    assert file._connection.execute("PRAGMA synchronous").fetchone() == (level,)
    assert file._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    file.close()
