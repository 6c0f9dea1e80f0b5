"""Looking into the embedded store's file, beside a broker, after one and without one: what is seen, and no trace."""

import asyncio
import os
import shutil
import sqlite3
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafscale.errors import StartupError, StoreRefusedError, StoreUnavailableError
from kafscale.metadata.sqlite import snapshot_read
from kafscale.metadata.sqlite.owner_lock import is_owned
from kafscale.metadata.sqlite.reader import SqliteReader
from kafscale.metadata.sqlite.schema import is_new
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.sqlite.write_ahead_log import log_path
from kafscale.metadata.store import Delete, Put
from tests.metadata.looking import older_owner
from tests.metadata.write_load import WRITERS, decode
from tests.support.waiting import PATIENCE_SEC

IMPATIENT_SEC = 0.2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


@asynccontextmanager
async def reader_of(path: Path) -> AsyncIterator[SqliteReader]:
    reader = await SqliteReader.open(path, patience_sec=IMPATIENT_SEC)
    try:
        yield reader
    finally:
        await reader.close()


@asynccontextmanager
async def owner_of(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path)
    try:
        yield store
    finally:
        await store.close()


async def fill(path: Path, **values: bytes) -> None:
    async with owner_of(path) as store:
        await store.transact([], [Put(key, value) for key, value in values.items()])


def folder_of(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file beside the database, with the time of its last change and its bytes."""
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in path.parent.iterdir()}


def run_sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement)
    connection.close()


async def load(path: Path) -> asyncio.subprocess.Process:
    """A process that owns the file and writes until it is killed."""
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.metadata.write_load", path, stdout=asyncio.subprocess.PIPE
    )


async def acknowledged(process: asyncio.subprocess.Process, lines: int, counts: dict[int, int]) -> None:
    """Take in what the load says next."""
    assert process.stdout is not None
    for _ in range(lines):
        writer, count = (await process.stdout.readline()).split()
        counts[int(writer)] = int(count)


async def test_a_read_beside_a_writer_shows_one_acknowledged_revision(path: Path) -> None:
    process = await load(path)
    counts: dict[int, int] = {}
    try:
        await acknowledged(process, 100, counts)
        async with reader_of(path) as reader:
            revision = 0
            # Over several checkpoints and new beginnings of the log.
            for _ in range(150):
                await acknowledged(process, 20, counts)
                found = await reader.range("")
                assert found.revision >= revision
                revision = found.revision
                items = {item.key: item for item in found.items}
                assert [item.key for item in found.items] == sorted(items)
                for writer in range(WRITERS):
                    first, second = items[f"a/{writer}"], items[f"b/{writer}"]
                    assert (first.value, first.mod_revision) == (second.value, second.mod_revision)
                    assert decode(first.value) >= counts.get(writer, 0)
                assert max(item.mod_revision for item in found.items) == revision
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.parametrize("was_open", [True, False])
async def test_a_killed_writer_leaves_what_it_acknowledged(path: Path, was_open: bool) -> None:
    process = await load(path)
    counts: dict[int, int] = {}
    await acknowledged(process, 300, counts)
    async with reader_of(path) as early:
        process.kill()
        await process.communicate()
        if not was_open:
            await early.close()
        before = folder_of(path)
        assert len(before["metadata.db-wal"][1]) > 100_000
        async with reader_of(path) as late:
            found = await (early if was_open else late).range("a/")
        for item in found.items:
            assert decode(item.value) >= counts.get(int(item.key.removeprefix("a/")), 0)
        assert folder_of(path) == before
    async with owner_of(path) as store:
        # Only the next owner may find a transaction that was in flight at the kill.
        assert (await store.range("a/")).revision >= found.revision


async def test_a_reader_follows_owners_that_come_and_go(path: Path) -> None:
    await fill(path, k=b"0")
    async with reader_of(path) as reader:
        for count in range(5):
            item = await reader.get("k")
            assert item is not None
            assert item.value == b"%d" % count
            async with owner_of(path) as store:
                assert await reader.get("k") == item
                result = await store.transact([], [Put("k", b"%d" % (count + 1)), Delete("gone")])
                now = await reader.get("k")
                assert now is not None
                assert (now.value, now.mod_revision) == (b"%d" % (count + 1), result.revision)


async def test_no_trace_is_left_of_a_look_at_a_file_at_rest(path: Path) -> None:
    await fill(path, k=b"v")
    before = folder_of(path)
    assert "metadata.db-wal" not in before
    async with reader_of(path) as reader:
        assert [item.key for item in (await reader.range("")).items] == ["k"]
        assert folder_of(path) == before
    assert folder_of(path) == before


async def test_a_restored_file_is_read_and_not_the_one_before_it(path: Path, tmp_path: Path) -> None:
    await fill(path, k=b"backed up")
    backup = tmp_path / "backup"
    shutil.copy(path, backup)
    await fill(path, k=b"later")
    async with reader_of(path) as reader:
        assert (await reader.range("k")).items[0].value == b"later"
        os.replace(backup, path)
        assert (await reader.range("k")).items[0].value == b"backed up"


async def test_keys_of_leases_are_shown_while_a_process_owns_the_file(path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from kafscale.metadata.sqlite.store import SqliteStore\n"
        "from kafscale.metadata.store import Put\n"
        "async def main():\n"
        "    store = await SqliteStore.open(pathlib.Path(sys.argv[1]))\n"
        "    lease = await store.grant_lease(60)\n"
        "    await store.transact([], [Put('leaders/t/0', b'1', lease), Put('topics/t', b'stays')])\n"
        "    print('held', flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"held\n"
        async with reader_of(path) as reader:
            assert [item.key for item in (await reader.range("")).items] == ["leaders/t/0", "topics/t"]
            held = await reader.get("leaders/t/0")
            assert held is not None
            assert held.lease
            process.kill()
            await process.wait()
            assert not is_owned(path)
            assert [item.key for item in (await reader.range("")).items] == ["topics/t"]
            assert await reader.get("leaders/t/0") is None
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize(
    "prefix", ["", "a", "a/", "a/1", "a/\ud7ff", "\U0010ffff", "a/\U0010ffff", "b", "zz", "ü", "%", "_"]
)
async def test_ranges_are_those_of_the_store(path: Path, prefix: str) -> None:
    keys = [
        "a",
        "a/",
        "a/1",
        "a/10",
        "a/\ud7ff",
        "a/\ud7ff1",
        "a/\ue000",
        "a/\U0010ffff",
        "a/\U0010ffffz",
        "a0",
    ]
    keys += ["b", "A", "ü/\x00", "ü/\U0001f600", "\U0010ffff", "\U0010ffff\U0010ffff", "%", "_", "x"]
    async with owner_of(path) as store:
        await store.transact([], [Put(key, key.encode()) for key in keys])
        async with reader_of(path) as reader:
            assert await reader.range(prefix) == await store.range(prefix)
            for key in keys:
                assert await reader.get(key) == await store.get(key)
            assert await reader.get("") is None


async def test_nothing_is_made_of_what_is_not_there(path: Path, tmp_path: Path) -> None:
    for missing in (path, tmp_path / "none" / "metadata.db"):
        with pytest.raises(StartupError, match="there is no metadata file") as caught:
            await SqliteReader.open(missing)
        assert "name the data folder of a broker" in str(caught.value)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("spoil", "match"),
    [
        (lambda path: path.write_bytes(b""), "is empty: start the broker"),
        (lambda path: path.write_bytes(b"notes of somebody else\n" * 300), "corrupt or no metadata file"),
        (lambda path: run_sql(path, "PRAGMA user_version = 2"), "format version 2; this program knows 1"),
        (lambda path: run_sql(path, "PRAGMA application_id = 77"), "another program"),
        (lambda path: run_sql(path, "DELETE FROM entries WHERE key = ''"), "the revision is missing"),
        (lambda path: run_sql(path, "UPDATE entries SET value = 'x' WHERE key > ''"), "is not legal"),
        (lambda path: os.truncate(path, 4096), "corrupt or no metadata file"),
    ],
    ids=["empty", "no database", "version", "other program", "no revision", "row", "cut"],
)
async def test_what_cannot_be_read_is_refused_by_name(
    path: Path, spoil: Callable[[Path], None], match: str
) -> None:
    await fill(path, cluster=b"v" * 3000)
    spoil(path)
    before = folder_of(path)
    with pytest.raises(StartupError, match=match) as caught:
        await SqliteReader.open(path, patience_sec=IMPATIENT_SEC)
    assert str(path) in str(caught.value)
    assert folder_of(path) == before


async def test_what_is_refused_later_is_said_by_the_call(path: Path) -> None:
    await fill(path, k=b"v")
    async with reader_of(path) as reader:
        run_sql(path, "PRAGMA user_version = 2")
        with pytest.raises(StoreRefusedError, match="format version 2"):
            await reader.get("k")
        run_sql(path, "PRAGMA user_version = 1")
        assert await reader.get("k") is not None
        os.unlink(path)
        with pytest.raises(StoreRefusedError, match="there is no metadata file"):
            await reader.range("")


async def test_a_log_without_its_index_is_left_alone(path: Path) -> None:
    process = await load(path)
    await acknowledged(process, 50, {})
    process.kill()
    await process.communicate()
    path.with_name("metadata.db-shm").unlink()
    before = folder_of(path)
    with pytest.raises(StartupError, match="a log without its index"):
        await SqliteReader.open(path, patience_sec=IMPATIENT_SEC)
    assert folder_of(path) == before
    async with owner_of(path), reader_of(path) as reader:
        assert len((await reader.range("")).items) == 2 * WRITERS


async def test_an_older_owner_keeps_readers_and_owners_out(path: Path) -> None:
    await fill(path, k=b"v")
    with older_owner(path) as older:
        assert [older.line(), older.line()] == ["2", "written"]
        with pytest.raises(StartupError, match="older Kafscale"):
            await SqliteReader.open(path, patience_sec=IMPATIENT_SEC)
        with pytest.raises(StartupError, match="is in use by another process"):
            await SqliteStore.open(path)


async def test_an_older_owner_is_kept_out(path: Path) -> None:
    async with owner_of(path) as store:
        await store.transact([], [Put("k", b"v")])
        with older_owner(path) as older:
            assert older.line() == "database is locked"
        assert (await store.transact([], [Put("k", b"w")])).succeeded


_READ_AS_ANOTHER = """
import asyncio, os, pathlib, sys
from kafscale.metadata.sqlite.reader import SqliteReader
if os.geteuid() == 0:
    os.setegid(65534), os.seteuid(65534)
async def main():
    reader = await SqliteReader.open(pathlib.Path(sys.argv[1]))
    print(len((await reader.range("")).items))
    await reader.close()
asyncio.run(main())
"""


async def test_a_folder_that_the_reader_may_not_write_to() -> None:
    """As another user, if the tests may change it: rights stop no process of root."""
    # Not in pytest's own folders, which are for one user only.
    with tempfile.TemporaryDirectory(prefix="kafscale-reader-") as name:
        path = Path(name, "metadata.db")
        process = await load(path)
        await acknowledged(process, 50, {})
        process.kill()
        await process.communicate()
        for file in os.listdir(name):
            os.chmod(path.with_name(file), 0o444)
        os.chmod(name, 0o555)
        try:
            beside = await asyncio.create_subprocess_exec(
                sys.executable, "-c", _READ_AS_ANOTHER, path, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await beside.communicate()
        finally:
            os.chmod(name, 0o755)
    assert int(output) == 2 * WRITERS


async def test_an_owner_opens_in_the_process_of_a_reader(path: Path) -> None:
    """The reader has opened what SQLite shares between all connections of a process, and only for reading."""
    process = await load(path)
    await acknowledged(process, 50, {})
    process.kill()
    await process.communicate()
    async with reader_of(path) as reader:
        await reader.get("a/0")
        async with owner_of(path) as store:
            result = await store.transact([], [Put("k", b"v")])
            item = await reader.get("k")
            assert item is not None
            assert item.mod_revision == result.revision


async def test_an_owner_waits_for_a_read_of_its_process(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While that read has the shared memory open, an owner would get it read-only, too."""
    process = await load(path)
    await acknowledged(process, 50, {})
    process.kill()
    await process.communicate()
    is_open, go_on = threading.Event(), threading.Event()

    def open_for_long(connection: sqlite3.Connection, path: Path) -> bool:
        found = is_new(connection, path)
        is_open.set()
        assert go_on.wait(PATIENCE_SEC)
        return found

    async with reader_of(path) as reader:
        monkeypatch.setattr(snapshot_read, "is_new", open_for_long)
        read = asyncio.create_task(reader.get("a/0"))
        await asyncio.to_thread(is_open.wait, 60)
        opening = asyncio.create_task(SqliteStore.open(path))
        try:
            await asyncio.wait([opening], timeout=0.3)
        finally:
            go_on.set()
        store = await opening
        assert (await store.transact([], [Put("k", b"v")])).succeeded
        assert await read is not None
        await store.close()


async def test_an_idle_reader_does_not_keep_the_log(path: Path) -> None:
    async with owner_of(path) as store, reader_of(path) as reader:
        await store.transact([], [Put("k", b"v")])
        assert await reader.get("k") is not None
        await store.close()
        assert not log_path(path).exists()
        item = await reader.get("k")
        assert item is not None
        assert item.value == b"v"


async def test_a_closed_reader_refuses(path: Path) -> None:
    await fill(path, k=b"v")
    reader = await SqliteReader.open(path)
    await reader.close()
    await reader.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await reader.get("k")
