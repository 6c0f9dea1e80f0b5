"""Which files the embedded store takes and which it refuses to start on, untouched and by name."""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kafscale.errors import StartupError
from kafscale.metadata.sqlite.store import SqliteStore
from kafscale.metadata.store import Put


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.db"


async def fill(path: Path, keys: int = 200) -> None:
    store = await SqliteStore.open(path)
    for index in range(keys):
        await store.transact([], [Put(f"topics/{index}", bytes(3000))])
    await store.close()


def run_sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def contents(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


async def refused(path: Path, match: str) -> None:
    before = contents(path)
    with pytest.raises(StartupError, match=match) as caught:
        await SqliteStore.open(path)
    assert str(path) in str(caught.value)
    assert contents(path) == before


async def test_a_file_that_is_no_database(path: Path) -> None:
    write(path, b"These are the notes of somebody else.\n" * 200)
    await refused(path, "corrupt or no metadata file")


async def test_another_programs_database(path: Path) -> None:
    run_sql(path, "CREATE TABLE entries (key TEXT)", "INSERT INTO entries VALUES ('theirs')")
    await refused(path, "another program")
    run_sql(path, "PRAGMA application_id = 77")
    await refused(path, "another program")


async def test_a_version_of_the_future(path: Path) -> None:
    await fill(path, keys=1)
    run_sql(path, "PRAGMA user_version = 2")
    await refused(path, "format version 2; this program knows 1")


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def overwrite(path: Path, start: int, length: int) -> None:
    with path.open("r+b") as file:
        file.seek(start)
        file.write(b"\xa5" * length)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: overwrite(path, 0, 100),
        lambda path: overwrite(path, 4096, 4096),
        lambda path: overwrite(path, 40 * 4096, 4096),
        lambda path: os.truncate(path, 100 * 4096),
        lambda path: os.truncate(path, 50),
    ],
    ids=["header", "root page", "leaf page", "half the file", "half a header"],
)
async def test_a_damaged_file(path: Path, damage: Callable[[Path], None]) -> None:
    await fill(path)
    damage(path)
    await refused(path, "corrupt or no metadata file")


def index_leaves(path: Path) -> list[int]:
    """The positions of the pages of type 10, the leaves of an index."""
    data = path.read_bytes()
    return [start for start in range(4096, len(data), 4096) if data[start] == 10]


async def test_a_damaged_page_that_no_read_would_meet(path: Path) -> None:
    await fill(path, keys=1000)
    leaves = index_leaves(path)
    assert len(leaves) > 2
    overwrite(path, leaves[-1], 4096)
    await refused(path, "corrupt or no metadata file")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries WHERE key = ''",
        "UPDATE entries SET mod_revision = 1 WHERE key = ''",
        "UPDATE entries SET value = 'text' WHERE key = 'topics/3'",
        "UPDATE entries SET mod_revision = 0 WHERE key = 'topics/3'",
        "UPDATE entries SET key = x'00ff' WHERE key = 'topics/3'",
        "UPDATE entries SET key = CAST(x'00ff' AS TEXT) WHERE key = 'topics/3'",
    ],
)
async def test_rows_that_make_no_sense(path: Path, statement: str) -> None:
    await fill(path, keys=5)
    run_sql(path, statement)
    await refused(path, "corrupt or no metadata file")


async def test_a_log_whose_file_is_gone(path: Path) -> None:
    log = path.with_name("metadata.db-wal")
    write(log, bytes(5000))
    await refused(path, "missing or empty")
    write(path, b"")
    await refused(path, "missing or empty")
    assert contents(log) == bytes(5000)


async def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    await refused(tmp_path / "none" / "metadata.db", "cannot be used")
    await refused(tmp_path, "cannot be used")


async def test_a_second_store_on_the_file(path: Path) -> None:
    first = await SqliteStore.open(path)
    with pytest.raises(StartupError, match="in use"):
        await SqliteStore.open(path)
    assert (await first.transact([], [Put("k", b"v")])).succeeded
    await first.close()
    second = await SqliteStore.open(path)
    assert await second.get("k") is not None
    await second.close()


async def test_a_second_process_on_the_file(path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys\n"
        "from kafscale.errors import StartupError\n"
        "from kafscale.metadata.sqlite.store import SqliteStore\n"
        "try:\n"
        "    asyncio.run(SqliteStore.open(pathlib.Path(sys.argv[1])))\n"
        "except StartupError as problem:\n"
        "    print(problem)\n"
    )
    first = await SqliteStore.open(path)
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await second.communicate()
    assert f"{path} is in use by another process" in output.decode()
    assert (await first.transact([], [Put("k", b"v")])).succeeded
    await first.close()


async def test_a_creation_that_was_cut_short_goes_on(path: Path) -> None:
    write(path, b"")
    await fill(path, keys=1)
    write(path, b"")
    run_sql(path, "PRAGMA journal_mode = WAL", "VACUUM")
    assert contents(path)
    await fill(path, keys=1)
    store = await SqliteStore.open(path)
    assert await store.get("topics/0") is not None
    await store.close()
