"""The folder store's data is its owner's only, and it refuses links and files that are none."""

import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from kafscale.errors import ObjectNotFoundError, StoreUnavailableError
from kafscale.metadata.sqlite.file import SqliteFile
from kafscale.objects.local.store import LocalStore

KEY = "n/t/0/segment"


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


async def read(store: LocalStore, key: str) -> object:
    return await store.get(key)


async def read_size(store: LocalStore, key: str) -> object:
    return await store.size_bytes(key)


async def read_range(store: LocalStore, key: str) -> object:
    return await store.get_range(key, 0, 1)


async def read_into(store: LocalStore, key: str) -> object:
    return await store.read_into(key, 0, 1, [memoryview(bytearray(1))])


async def list_all(store: LocalStore, key: str) -> object:
    return [one async for one in store.list(key.rpartition("/")[0] + "/")]


def make_link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


def make_fifo(path: Path) -> None:
    os.mkfifo(path)


LOOKS = (read, read_size, read_range, read_into, list_all)


@pytest.mark.usefixtures("usual_umask")
async def test_objects_and_folders_are_their_owners_only(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "made" / "objects")
    await store.put_if_absent(KEY, [b"small"])
    await store.put_if_absent(KEY + "-big", [bytes(1 << 20)])
    await store.put(KEY, [b"replaced"])
    await store.close()
    for path in (tmp_path / "made" / "objects").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.usefixtures("usual_umask")
def test_metadata_files_are_their_owners_only(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "metadata.db", fsync=True)
    try:
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        file.close()
    assert len(modes) >= 3  # the file, its log and its lock at least
    assert set(modes.values()) == {0o600}, modes


@pytest.mark.parametrize("make", [make_link, make_fifo])
@pytest.mark.parametrize("look", LOOKS)
async def test_no_regular_file_is_refused(
    store: LocalStore,
    tmp_path: Path,
    make: Callable[[Path], None],
    look: Callable[[LocalStore, str], Awaitable[object]],
) -> None:
    folder = tmp_path / "objects" / "n" / "t" / "0"
    folder.mkdir(parents=True)
    (folder / "elsewhere").write_bytes(b"not an object of ours")
    make(folder / "segment")
    with pytest.raises(StoreUnavailableError, match=r"segment is a (symbolic link|FIFO), which .* refuses"):
        await look(store, KEY)


async def overwrite(store: LocalStore, key: str) -> None:
    await store.put(key, [b"more"])


async def create(store: LocalStore, key: str) -> None:
    await store.put_if_absent(key + "-new", [b"more"])


async def delete(store: LocalStore, key: str) -> None:
    await store.delete([key])


@pytest.mark.parametrize("use", [*LOOKS, overwrite, create, delete])
async def test_folder_that_is_a_link_is_refused(
    store: LocalStore, tmp_path: Path, use: Callable[[LocalStore, str], Awaitable[object]]
) -> None:
    outside = tmp_path / "outside"
    (outside / "0").mkdir(parents=True)
    (outside / "0" / "segment").write_bytes(b"somebody's")
    (tmp_path / "objects" / "n").mkdir()
    (tmp_path / "objects" / "n" / "t").symlink_to(outside)
    with pytest.raises(StoreUnavailableError, match="n/t is a symbolic link"):
        await use(store, KEY)
    assert [path.name for path in (outside / "0").iterdir()] == ["segment"]
    assert (outside / "0" / "segment").read_bytes() == b"somebody's"


async def test_store_whose_root_is_a_link_works(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "objects").symlink_to(tmp_path / "disk")
    store = LocalStore(tmp_path / "objects")
    await store.put_if_absent(KEY, [b"1"])
    assert await store.get(KEY) == b"1"
    await store.close()


async def test_folder_is_no_object(store: LocalStore) -> None:
    await store.put_if_absent(KEY, [b"1"])
    with pytest.raises(ObjectNotFoundError):
        await store.get("n/t/0")
