"""The embedded store on a failing disk: it never reports a wrong outcome, and recovers by itself."""

import asyncio
import resource
import sqlite3
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path

import pytest

from kafscale.errors import StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.sqlite.file import SqliteFile
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import ABSENT, Changes, Compare, KeyValue, Put, Snapshot
from tests.support.waiting import PATIENCE_SEC

_write = SqliteFile.write
_reopen = SqliteFile.reopen


class Disk:
    """A disk that the test breaks. Writes fail before or after they took place; reopening may fail, too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fails_before = False
        self.fails_after = False
        self.unreadable = False
        disk = self

        def write(file: SqliteFile, revision: int, keys: Mapping[str, KeyValue | None]) -> None:
            if not disk.fails_before:
                _write(file, revision, keys)
            if disk.fails_before or disk.fails_after:
                raise sqlite3.OperationalError("disk I/O error")

        def reopen(file: SqliteFile, expected_revision: int) -> int:
            if disk.unreadable:
                raise sqlite3.OperationalError("unable to open database file")
            return _reopen(file, expected_revision)

        monkeypatch.setattr(SqliteFile, "write", write)
        monkeypatch.setattr(SqliteFile, "reopen", reopen)

    def heal(self) -> None:
        self.fails_before = self.fails_after = self.unreadable = False


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@pytest.fixture
async def store(path: Path, disk: Disk) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(path)
    yield opened
    disk.heal()
    await opened.close()


async def stored(store: SqliteStore, path: Path) -> Snapshot:
    """Close the store and read its file."""
    await store.close()
    again = await SqliteStore.open(path)
    found = await again.range("")
    await again.close()
    return found


async def readable(store: SqliteStore) -> Snapshot:
    """The store's content, as soon as it can be read. Sends only reads."""
    async with asyncio.timeout(PATIENCE_SEC):
        while True:
            try:
                return await store.range("")
            except StoreUnavailableError:
                await asyncio.sleep(0.01)


async def test_a_commit_that_did_not_happen_is_unavailable(
    store: SqliteStore, disk: Disk, path: Path
) -> None:
    await store.transact([], [Put("k", b"old")])
    before = await store.range("")
    disk.fails_before = True
    group = [store.transact([], [Put(key, b"new")]) for key in ("k", "other")]
    outcomes = await asyncio.gather(*group, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailableError] * 2
    assert "disk I/O error" in str(outcomes[0])
    assert str(path) in str(outcomes[0])
    assert await store.range("") == before
    disk.heal()
    assert (await store.transact([Compare("other", ABSENT)], [Put("other", b"new")])).succeeded
    after = await store.range("")
    assert await stored(store, path) == after


async def test_a_failed_compare_in_a_failed_group_is_not_believed(store: SqliteStore, disk: Disk) -> None:
    disk.fails_before = True
    first, second = await asyncio.gather(
        *(store.transact([Compare("k", ABSENT)], [Put("k", b"v")]) for _ in range(2)), return_exceptions=True
    )
    assert isinstance(first, StoreUnavailableError)
    assert isinstance(second, StoreUnavailableError)


async def test_a_commit_that_happened_all_the_same_is_answered(
    store: SqliteStore, disk: Disk, path: Path
) -> None:
    async with aclosing(store.watch("")) as events:
        await anext(events)
        disk.fails_after = True
        result = await store.transact([], [Put("k", b"v")])
        disk.heal()
        item = KeyValue(key="k", value=b"v", mod_revision=result.revision)
        assert await store.get("k") == item
        assert await anext(events) == Changes(puts_and_deletes=(item,), revision=result.revision)
    assert (await stored(store, path)).items == (item,)


@pytest.mark.parametrize("happened", [True, False])
async def test_while_the_outcome_is_unknown_nothing_is_served(
    store: SqliteStore, disk: Disk, path: Path, happened: bool
) -> None:
    await store.transact([], [Put("k", b"old")])
    async with asyncio.timeout(PATIENCE_SEC), aclosing(store.watch("")) as events:
        await anext(events)
        disk.unreadable = True
        disk.fails_after, disk.fails_before = happened, not happened
        with pytest.raises(StoreIndeterminateError):
            await store.transact([], [Put("k", b"new")])
        # Reading the old value back would say that the put is lost, which is not known.
        for refused in (store.get("k"), store.range(""), store.grant_lease(5), store.transact([], [])):
            with pytest.raises(StoreUnavailableError):
                await refused
        disk.heal()
        found = await readable(store)
        assert found.items[0].value == (b"new" if happened else b"old")
        last = await store.transact([], [Put("last", b"v")])
        changes: list[object] = []
        while KeyValue(key="last", value=b"v", mod_revision=last.revision) not in changes:
            event = await anext(events)
            assert isinstance(event, Changes)
            changes += event.puts_and_deletes
        assert changes[:-1] == (list(found.items) if happened else [])
    after = await readable(store)
    assert await stored(store, path) == after


async def test_leases_outlive_an_outage(path: Path, disk: Disk) -> None:
    now = 0.0
    store = await SqliteStore.open(path, clock=lambda: now)
    lease = await store.grant_lease(10)
    await store.transact([], [Put("k", b"v", lease)])
    disk.fails_before = disk.unreadable = True
    with pytest.raises(StoreIndeterminateError):
        await store.transact([], [Put("other", b"v")])
    now = 1000.0
    disk.heal()
    await readable(store)
    assert await store.renew_lease(lease)
    assert await store.get("k") is not None
    now = 2000.0
    # The first request is served before the clock is looked at, the second after it.
    await store.grant_lease(10)
    assert await store.get("k") is None
    await store.close()


async def test_an_expiry_that_cannot_be_written_comes_later(path: Path, disk: Disk) -> None:
    now = 0.0
    store = await SqliteStore.open(path, clock=lambda: now)
    lease = await store.grant_lease(10)
    await store.transact([], [Put("k", b"v", lease)])
    disk.fails_before = True
    now = 100.0
    with pytest.raises(StoreUnavailableError):
        await store.grant_lease(10)
    assert await store.get("k") is not None
    disk.heal()
    now = 200.0
    await store.grant_lease(10)
    assert await store.get("k") is None
    assert (await stored(store, path)).items == ()


async def test_a_full_disk(path: Path) -> None:
    """The kernel's limit on a file's size stands for the full disk: write(2) fails in the same place."""
    store = await SqliteStore.open(path)
    await store.transact([], [Put("k0", bytes(3000))])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    acknowledged = ["k0"]
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        for index in range(1, 1000):
            key = f"k{index}"
            try:
                await store.transact([], [Put(key, bytes(3000))])
            except StoreUnavailableError:
                break
            acknowledged.append(key)
        else:
            pytest.fail("the disk was never full")
        assert sorted(item.key for item in (await store.range("")).items) == sorted(acknowledged)
        assert await store.renew_lease(await store.grant_lease(10))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await store.transact([], [Put("after", b"v")])
    after = await store.range("")
    assert sorted(item.key for item in after.items) == sorted([*acknowledged, "after"])
    assert await stored(store, path) == after


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_dead_thread_leaves_no_caller_waiting(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await SqliteStore.open(path)

    def broken(*_: object) -> None:
        raise RuntimeError("a mistake in the program")

    monkeypatch.setattr(SqliteFile, "write", broken)
    async with asyncio.timeout(PATIENCE_SEC):
        with pytest.raises(StoreIndeterminateError, match="died"):
            await store.transact([], [Put("k", b"v")])
        with pytest.raises(StoreUnavailableError, match="died"):
            await store.get("k")
        with pytest.raises(StoreUnavailableError, match="died"):
            await store.transact([], [Put("k", b"v")])
        await store.close()
