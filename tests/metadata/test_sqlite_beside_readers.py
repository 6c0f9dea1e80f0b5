"""An embedded store's owner beside processes that look: they never make it fail, refuse, or mistake anything."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafscale.errors import StartupError, StoreIndeterminateError, StoreUnavailableError
from kafscale.metadata.sqlite.file import SqliteFile
from kafscale.metadata.sqlite.owner_lock import InUseError, OwnerLock, is_owned, lock_path
from kafscale.metadata.sqlite.reader import SqliteReader
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import ABSENT, NO_LEASE, Compare, KeyValue, Put
from tests.metadata.looking import reading
from tests.support.waiting import PATIENCE_SEC

_write = SqliteFile.write


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@asynccontextmanager
async def owner_of(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path)
    try:
        yield store
    finally:
        await store.close()


def log_of(path: Path) -> Path:
    return path.with_name("metadata.db-wal")


def copied(path: Path, folder: Path) -> Path:
    """The files after a crash of the machine: the database and its log, which no process has open."""
    folder.mkdir()
    for file in (path, log_of(path)):
        shutil.copy(file, folder / file.name)
    return folder / path.name


async def test_writes_and_checkpoints_beside_a_read_in_progress(path: Path) -> None:
    async with owner_of(path) as store:
        await store.transact([], [Put("k", b"first")])
        with reading(path) as reader:
            for count in range(300):
                result = await store.transact([], [Put(f"k{count % 7}", bytes([count % 251]) * 100_000)])
                assert result.succeeded
            # The reader keeps its snapshot from being overwritten, and no process from writing.
            assert reader.again() == reader.first
            assert log_of(path).stat().st_size > 25_000_000
            async with asyncio.timeout(PATIENCE_SEC):
                other = await SqliteReader.open(path)
                assert (await other.range("")) == await store.range("")
                await other.close()
            reader.end()
        for count in range(60):
            await store.transact([], [Put(f"k{count % 7}", bytes([count % 13]) * 100_000)])
        assert log_of(path).stat().st_size < 20_000_000
        found = await store.range("")
    async with owner_of(path) as again:
        assert await again.range("") == found


@pytest.mark.parametrize("how", ["readonly_shm=1", "cache=private"], ids=["as ours", "as SQLite's own shell"])
async def test_an_owner_opens_beside_the_reader_of_a_killed_one(path: Path, how: str) -> None:
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.metadata.write_load", path, stdout=asyncio.subprocess.PIPE
    )
    assert first.stdout is not None
    for _ in range(100):
        await first.stdout.readline()
    first.kill()
    await first.communicate()
    with reading(path, how) as reader:
        async with owner_of(path) as store:
            for count in range(50):
                assert (await store.transact([], [Put("k", bytes([count]) * 100_000)])).succeeded
            assert reader.again() == reader.first
            found = await store.range("")
        # The owner has gone before its reader: the log stays, as it must.
        assert reader.again() == reader.first
        async with owner_of(path) as store:
            assert await store.range("") == found


@pytest.mark.parametrize("happened", [True, False])
async def test_a_failed_commit_is_settled_beside_a_reader(
    path: Path, happened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = False

    def write(file: SqliteFile, revision: int, keys: Mapping[str, KeyValue | None]) -> None:
        if happened or not failing:
            _write(file, revision, keys)
        if failing:
            raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(SqliteFile, "write", write)
    async with owner_of(path) as store:
        await store.transact([], [Put("k", b"old")])
        with reading(path) as reader:
            failing = True
            asked = store.transact([], [Put("k", b"new")])
            if happened:
                assert (await asked).succeeded
            else:
                with pytest.raises(StoreUnavailableError):
                    await asked
            failing = False
            found = await store.get("k")
            assert found is not None
            assert found.value == (b"new" if happened else b"old")
            assert (await store.transact([Compare("other", ABSENT)], [Put("other", b"v")])).succeeded
            assert reader.again() == reader.first
        found = await store.get("k")
    async with owner_of(path) as again:
        assert await again.get("k") == found


def hide_last_commit(path: Path, shared_memory: bytes) -> None:
    """As when fsync fails: the commit's pages are in the log, and no connection knows of them.

    By another process: closing the shared memory here would end this process's locks on it.
    """
    program = "import os, sys; os.pwrite(os.open(sys.argv[1], os.O_RDWR), sys.stdin.buffer.read(), 0)"
    shared = path.with_name("metadata.db-shm")
    subprocess.run([sys.executable, "-c", program, shared], input=shared_memory, check=True)


def read_shared_memory(path: Path) -> bytes:
    program = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"
    shared = path.with_name("metadata.db-shm")
    return subprocess.run([sys.executable, "-c", program, shared], capture_output=True, check=True).stdout


async def test_a_failed_commit_does_not_come_back(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = False

    def write(file: SqliteFile, revision: int, keys: Mapping[str, KeyValue | None]) -> None:
        if not failing:
            _write(file, revision, keys)
            return
        before = read_shared_memory(path)
        _write(file, revision, keys)
        hide_last_commit(path, before)
        assert value_in(copied(path, tmp_path / "at the failure")) == b"new", (
            "the test does not do what it says"
        )
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(SqliteFile, "write", write)
    store = await SqliteStore.open(path)
    await store.transact([], [Put("k", b"old")])
    with reading(path):
        failing = True
        with pytest.raises(StoreUnavailableError):
            await store.transact([], [Put("k", b"new")])
        assert value_in(copied(path, tmp_path / "after a crash")) == b"old"
        failing = False
        await store.close()
    async with owner_of(path) as again:
        found = await again.get("k")
    assert found is not None
    assert found.value == b"old"


def value_in(path: Path) -> bytes:
    """Of the key `k`, as SQLite finds it when it opens the file as the first one."""
    connection = sqlite3.connect(path)
    (value,) = connection.execute("SELECT value FROM entries WHERE key = 'k'").fetchone()
    connection.close()
    assert isinstance(value, bytes)
    return value


async def test_a_commit_is_believed_once_its_bytes_are_on_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    broken = False

    def fsync(descriptor: int) -> None:
        if broken:
            raise OSError(5, "Input/output error")
        synced.append(os.pread(descriptor, 1_000_000, 0))

    file = SqliteFile(path, fsync=True)
    file.load()
    file.write(1, {"k": KeyValue(key="k", value=b"new", mod_revision=1, lease=NO_LEASE)})
    with reading(path) as reader:
        monkeypatch.setattr(os, "fsync", fsync)
        before = log_of(path).read_bytes()
        broken = True
        with pytest.raises(sqlite3.OperationalError, match="Input/output error"):
            file.reopen(0)
        broken = False
        assert file.reopen(0) == 1
        assert synced == [before]
        assert reader.again() == reader.first
    file.close()


async def test_who_gets_past_the_lock_is_noticed(path: Path) -> None:
    async with owner_of(path) as first:
        await first.transact([], [Put("k", b"1")])
        os.unlink(lock_path(path))
        async with owner_of(path) as second:
            await second.transact([], [Put("k", b"2")])
            with pytest.raises(StoreIndeterminateError):
                await first.transact([], [Put("k", b"3")])
            with pytest.raises(StoreUnavailableError, match="another process has changed it, restart"):
                await first.get("k")
            found = await second.get("k")
            assert found is not None
            assert found.value == b"2"


def test_there_is_one_owner(path: Path) -> None:
    assert not is_owned(path)
    assert not lock_path(path).exists()
    lock = OwnerLock(path)
    assert is_owned(path)
    with pytest.raises(InUseError, match="is in use by another process: stop that one first"):
        OwnerLock(path)
    assert is_owned(path)
    lock.close()
    assert not is_owned(path)
    OwnerLock(path).close()


def test_the_lock_goes_with_its_process(path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from kafscale.metadata.sqlite.owner_lock import OwnerLock\n"
        "lock = OwnerLock(pathlib.Path(sys.argv[1]))\n"
        "print('owned', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"owned\n"
        assert is_owned(path)
        with pytest.raises(InUseError):
            OwnerLock(path)
        process.kill()
        process.wait()
        assert not is_owned(path)
        OwnerLock(path).close()


def test_a_query_of_the_owner_excludes_no_owner(path: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from kafscale.metadata.sqlite.owner_lock import is_owned\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "print('asking', flush=True)\n"
        "while True:\n"
        "    is_owned(path)\n"
    )
    OwnerLock(path).close()
    with subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(3000):
            OwnerLock(path).close()
        assert process.poll() is None
        process.kill()


async def test_a_file_that_cannot_be_locked(path: Path) -> None:
    lock_path(path).mkdir()
    with pytest.raises(StartupError, match="cannot be used: Is a directory"):
        await SqliteStore.open(path)
    assert os.listdir(path.parent) == [lock_path(path).name]
