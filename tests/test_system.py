"""The stand-ins for file calls that other systems lack do what Linux's calls do."""

import errno
import os
import threading
from pathlib import Path

import pytest

from kafscale import system
from kafscale.errors import StoreUnavailableError
from kafscale.metadata.sqlite import owner_lock
from kafscale.metadata.sqlite.owner_lock import InUseError, OwnerLock, is_owned
from kafscale.objects.local import entries
from kafscale.objects.local.store import LocalStore
from tests.support.waiting import PATIENCE_SEC


@pytest.fixture(params=["Linux", "without positioned calls"])
def positioned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "Linux":
        for name in ("pread", "preadv", "pwrite"):
            monkeypatch.delattr(os, name)


@pytest.mark.usefixtures("positioned")
def test_bytes_are_read_and_written_where_they_lie(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    descriptor = os.open(path, os.O_RDWR | system.FILE_FLAGS)
    try:
        assert system.read_at(descriptor, 3, 4) == b"456"
        assert system.write_at(descriptor, b"ab", 8) == 2
        assert system.read_at(descriptor, 9, 7) == b"7ab"
        assert system.read_at(descriptor, 9, 10) == b""
        room = bytearray(6)
        views = [memoryview(room)[:0], memoryview(room)[:4], memoryview(room)[4:]]
        count = system.read_into_at(descriptor, views, 5)
        assert 4 <= count <= 5
        assert room[:count] == b"567ab"[:count]
        assert system.read_into_at(descriptor, views[:1], 5) == 0
        assert system.read_into_at(descriptor, views, 10) == 0
    finally:
        os.close(descriptor)


def test_sync_works_without_fdatasync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.delattr(os, "fdatasync")
    monkeypatch.setattr(os, "fsync", synced.append)
    system.sync_data(7)
    system.sync_folder(tmp_path)
    assert synced[0] == 7
    assert len(synced) == 2
    monkeypatch.setattr(system, "OPENS_FOLDERS", False)
    system.sync_folder(tmp_path)
    assert len(synced) == 2


def test_replacing_waits_for_readers_where_they_hinder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, str]] = []

    def replace(source: str, target: str) -> None:
        calls.append((source, target))
        if len(calls) < 3:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(PermissionError):
        system.replace("a", "b")
    assert len(calls) == 1
    monkeypatch.setattr(system, "msvcrt", object())
    system.replace("a", "b")
    assert calls == [("a", "b")] * 3


@pytest.mark.parametrize("can_query", [True, False])
def test_one_owner_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_query: bool) -> None:
    monkeypatch.setattr(owner_lock, "_CAN_QUERY", can_query)
    monkeypatch.setattr(system, "_PATIENCE_SEC", 0.05)
    path = tmp_path / "metadata.db"
    assert not is_owned(path)
    lock = OwnerLock(path)
    assert is_owned(path)
    with pytest.raises(InUseError, match="in use by another process"):
        OwnerLock(path)
    lock.close()
    assert not is_owned(path)
    OwnerLock(path).close()


def test_owner_waits_for_one_who_only_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner_lock, "_CAN_QUERY", False)
    monkeypatch.setattr(system, "_PATIENCE_SEC", PATIENCE_SEC)
    path = tmp_path / "metadata.db"
    looker = os.open(owner_lock.lock_path(path), os.O_RDWR | os.O_CREAT)
    assert system.try_lock(looker)
    timer = threading.Timer(0.1, os.close, [looker])
    timer.start()
    OwnerLock(path).close()
    timer.join()


async def test_folder_of_another_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that does not tell `Orders` from `orders`: deleting the one would delete the other."""
    store = LocalStore(tmp_path, fsync=False)
    await store.put_if_absent("n/orders/0/a.kfs", [b"1"])
    os.symlink(tmp_path / "n" / "orders", tmp_path / "n" / "Orders")
    real, listdir = os.lstat, os.listdir
    monkeypatch.setattr(entries, "NAMES_ARE_EXACT", False)
    monkeypatch.setattr(
        os, "lstat", lambda path, **place: real(str(path).replace("Orders", "orders"), **place)
    )
    monkeypatch.setattr(os, "listdir", lambda path: [name for name in listdir(path) if name != "Orders"])
    try:
        assert await store.get("n/orders/0/a.kfs") == b"1"
        for call in (
            store.get("n/Orders/0/a.kfs"),
            store.put("n/Orders/0/b.kfs", [b"2"]),
            store.put_if_absent("n/Orders/0/b.kfs", [b"2"]),
            store.delete(["n/Orders/0/a.kfs"]),
        ):
            with pytest.raises(StoreUnavailableError, match="n/Orders leads to a folder of another name"):
                await call
        with pytest.raises(StoreUnavailableError, match="n/Orders leads to a folder of another name"):
            [info async for info in store.list("n/Orders/")]
        assert [info.key async for info in store.list("n/orders/")] == ["n/orders/0/a.kfs"]
    finally:
        await store.close()
