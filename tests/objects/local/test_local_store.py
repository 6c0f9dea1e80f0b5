"""Promises of the folder store beyond the contract: durability, failures, leftovers, threads."""

import asyncio
import errno
import fcntl
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from kafscale.errors import (
    ObjectExistsError,
    StartupError,
    StoreIndeterminateError,
    StoreUnavailableError,
)
from kafscale.objects.local import folders
from kafscale.objects.local.store import LocalStore
from tests.support.waiting import PATIENCE_SEC

BIG = 3 * 1024 * 1024 + 5


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Writes to the disk and names that become visible, in order, with paths relative to the store's folder."""
    seen: list[str] = []
    fdatasync, fsync, link, replace = os.fdatasync, os.fsync, os.link, os.replace

    def relative(path: str | int) -> str:
        full = _path_of(path) if isinstance(path, int) else path
        return os.path.relpath(full, tmp_path / "objects")

    def synced_data(descriptor: int) -> None:
        fdatasync(descriptor)
        path = relative(descriptor)
        # Linux calls a file so that has no name, or none any more.
        is_temporary = path.startswith(".tmp/") or path.endswith(" (deleted)")
        seen.append("data " + ("temporary" if is_temporary else "?"))

    def synced_folder(descriptor: int) -> None:
        fsync(descriptor)
        seen.append("folder " + relative(descriptor))

    def linked(source: str, target: str, *, dst_dir_fd: int | None = None) -> None:
        link(source, target, dst_dir_fd=dst_dir_fd)
        seen.append("name " + relative(target if dst_dir_fd is None else f"{_path_of(dst_dir_fd)}/{target}"))

    def replaced(source: str, target: str) -> None:
        replace(source, target)
        seen.append("name " + relative(target))

    monkeypatch.setattr(os, "fdatasync", synced_data)
    monkeypatch.setattr(os, "fsync", synced_folder)
    monkeypatch.setattr(os, "link", linked)
    monkeypatch.setattr(os, "replace", replaced)
    return seen


def _path_of(descriptor: int) -> str:
    return os.readlink(f"/proc/self/fd/{descriptor}")


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="paths of descriptors are read from /proc")
@pytest.mark.parametrize("size_bytes", [10, BIG])
async def test_put_syncs_bytes_then_name_then_new_folders(
    store: LocalStore, events: list[str], size_bytes: int
) -> None:
    events.clear()
    await store.put_if_absent("n/t/0/a", [bytes(size_bytes)])
    assert events == ["data temporary", "name n/t/0/a", "folder n/t/0", "folder n/t", "folder n", "folder ."]
    events.clear()
    await store.put_if_absent("n/t/0/b", [bytes(size_bytes)])
    assert events == ["data temporary", "name n/t/0/b", "folder n/t/0"]
    events.clear()
    await store.put_if_absent("n/t/1/a", [bytes(size_bytes)])
    assert events == ["data temporary", "name n/t/1/a", "folder n/t/1", "folder n/t"]
    events.clear()
    await store.put("n/t/1/a", [bytes(size_bytes)])
    assert events == ["data temporary", "name n/t/1/a", "folder n/t/1"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="paths of descriptors are read from /proc")
async def test_a_folder_that_went_and_came_back_reaches_the_disk_again(
    store: LocalStore, events: list[str]
) -> None:
    await store.put_if_absent("n/t/0/a", [b"x"])
    await store.put_if_absent("n/keeps/0/a", [b"x"])
    events.clear()
    await store.delete(["n/t/0/a"])
    assert events == ["folder n"]
    events.clear()
    await store.put_if_absent("n/t/0/a", [b"x"])
    assert events == ["data temporary", "name n/t/0/a", "folder n/t/0", "folder n/t", "folder n"]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="paths of descriptors are read from /proc")
async def test_existing_object_is_synced_before_it_is_reported(
    store: LocalStore, events: list[str], tmp_path: Path
) -> None:
    """Whoever put it may have died between link and fsync, and the caller may go on to rely on it."""
    (tmp_path / "objects" / "n").mkdir()
    (tmp_path / "objects" / "n" / "a").write_bytes(b"theirs")
    events.clear()
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("n/a", [b"ours"])
    assert events == ["data temporary", "folder n", "folder ."]


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="paths of descriptors are read from /proc")
async def test_without_fsync_nothing_waits_for_the_disk(tmp_path: Path, events: list[str]) -> None:
    store = LocalStore(tmp_path / "objects", fsync=False)
    events.clear()
    await store.put_if_absent("n/a", [bytes(BIG)])
    await store.put("n/b", [b"x"])
    await store.delete(["n/b"])
    await store.close()
    assert events == ["name n/a", "name n/b"]


async def test_nothing_but_the_objects_is_left_in_the_folder(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    await store.put_if_absent("n/t/0/a", [b"x"])
    with suppress(ObjectExistsError):
        await store.put_if_absent("n/t/0/a", [b"y"])
    await store.put("n/t/0/a", [bytes(BIG)])
    assert files_below(tmp_path) == ["n/t/0/a"]
    await store.close()
    assert sorted(os.listdir(tmp_path)) == [".tmp", "n"]
    assert os.listdir(tmp_path / ".tmp") == []


async def test_a_folder_goes_with_its_last_object(store: LocalStore, tmp_path: Path) -> None:
    for key in ("n/t/0/a", "n/t/0/b", "n/u/0/a"):
        await store.put_if_absent(key, [b"x"])
    await store.delete(["n/t/0/a", "n/t/0/b"])
    assert sorted(path.name for path in (tmp_path / "objects" / "n").iterdir()) == ["u"]
    await store.delete(["n/u/0/a"])
    assert sorted(path.name for path in (tmp_path / "objects").iterdir()) == [".tmp"]


async def test_opening_deletes_files_of_dead_processes_only(tmp_path: Path) -> None:
    living = LocalStore(tmp_path)
    [folder_of_living] = (tmp_path / ".tmp").iterdir()
    (folder_of_living / "7").write_bytes(b"being written")
    (tmp_path / ".tmp" / "of-a-dead-process").mkdir()
    (tmp_path / ".tmp" / "of-a-dead-process" / "3").write_bytes(b"half")
    (tmp_path / ".tmp" / "stray").write_bytes(b"half")
    second = LocalStore(tmp_path)
    assert files_below(tmp_path) == [f".tmp/{folder_of_living.name}/7"]
    await living.put_if_absent("n/a", [b"living"])
    await second.put_if_absent("n/b", [b"second"])
    await living.close()
    await second.close()
    assert files_below(tmp_path) == ["n/a", "n/b"]


async def test_temporary_files_are_neither_listed_nor_reachable(store: LocalStore, tmp_path: Path) -> None:
    [folder] = (tmp_path / "objects" / ".tmp").iterdir()
    (folder / "1").write_bytes(b"x")
    for prefix in ("", ".", ".tmp", ".tmp/", f".tmp/{folder.name}/"):
        assert [info async for info in store.list(prefix)] == []
    for refused in (
        store.get(f".tmp/{folder.name}/1"),
        store.put(".tmp/a", [b"x"]),
        store.delete([".tmp/a"]),
    ):
        with pytest.raises(ValueError, match=r"\.tmp"):
            await refused


async def test_objects_outlive_the_store(tmp_path: Path) -> None:
    first = LocalStore(tmp_path / "made" / "on" / "the" / "way")
    await first.put_if_absent("n/a", [b"x"])
    await first.close()
    second = LocalStore(tmp_path / "made" / "on" / "the" / "way")
    assert await second.get("n/a") == b"x"
    await second.close()


@pytest.mark.parametrize("place", ["file", "file/below", "dangling"])
def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "at" / "all")
    with pytest.raises(StartupError) as caught:
        LocalStore(tmp_path / place)
    assert str(tmp_path / place) in str(caught.value)


@pytest.mark.parametrize("code", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_may_not_be_written_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    monkeypatch.setattr(os, "mkdir", failing(code))
    with pytest.raises(StartupError, match=os.strerror(code)) as caught:
        LocalStore(tmp_path / "objects")
    assert str(tmp_path / "objects") in str(caught.value)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_hard_links_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: int
) -> None:
    monkeypatch.setattr(os, "link", failing(code))
    with pytest.raises(StartupError, match="hard links"):
        LocalStore(tmp_path)
    assert list((tmp_path / ".tmp").iterdir()) == []


def test_a_file_system_whose_links_replace_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    link = os.link

    def replacing(source: str, target: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(target)
        link(source, target)

    monkeypatch.setattr(os, "link", replacing)
    with pytest.raises(StartupError, match="replace"):
        LocalStore(tmp_path)
    assert list((tmp_path / ".tmp").iterdir()) == []


def failing(code: int) -> Callable[..., None]:
    def fail(*arguments: object, **named: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("size_bytes", [10, BIG])
@pytest.mark.parametrize("call", ["open", "write", "fdatasync", "link"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EACCES])
@pytest.mark.parametrize("before", [[], ["n/before"]], ids=["a new folder", "an open folder"])
async def test_a_failure_before_the_name_is_known_to_have_done_nothing(
    store: LocalStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    code: int,
    size_bytes: int,
    before: list[str],
) -> None:
    for key in before:
        await store.put_if_absent(key, [b"x"])
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing(code))
        with pytest.raises(StoreUnavailableError, match="n/a"):
            await store.put_if_absent("n/a", [bytes(size_bytes)])
    assert files_below(tmp_path / "objects") == before
    await store.put_if_absent("n/a", [b"x"])


async def test_a_failure_after_the_name_is_indeterminate(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(folders, "sync_folder", failing(errno.EIO))
        with pytest.raises(StoreIndeterminateError, match="n/a"):
            await store.put_if_absent("n/a", [b"x"])
        with pytest.raises(StoreIndeterminateError, match="n/a"):
            await store.put("n/a", [b"x"])
    assert await store.get("n/a") == b"x"
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("n/a", [b"y"])


async def test_a_failing_read_or_deletion_is_not_taken_for_an_absence(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_if_absent("n/a", [b"x"])
    await store.put_if_absent("n/b", [b"x"])
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing(errno.EIO))
        with pytest.raises(StoreUnavailableError, match="n/a"):
            await store.get("n/a")
        with pytest.raises(StoreUnavailableError, match="n/a"):
            await store.get_range("n/a", 0, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", failing(errno.EIO))
        with pytest.raises(StoreUnavailableError, match="'n'"):
            await anext(aiter(store.list("n/")))
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing(errno.EIO))
        with pytest.raises(StoreUnavailableError):
            await store.delete(["n/a", "n/b"])
    with monkeypatch.context() as patch:
        patch.setattr(folders, "sync_folder", failing(errno.EIO))
        with pytest.raises(StoreIndeterminateError):
            await store.delete(["n/a", "n/b"])


async def test_a_key_cannot_be_an_object_and_a_folder(store: LocalStore) -> None:
    await store.put_if_absent("n/a", [b"x"])
    with pytest.raises(StoreUnavailableError, match="n/a/b"):
        await store.put_if_absent("n/a/b", [b"x"])
    with pytest.raises(StoreUnavailableError, match="is a folder"):
        await store.put_if_absent("n", [b"x"])
    with pytest.raises(StoreUnavailableError):
        await store.put("n", [b"x"])


async def test_folder_that_goes_during_makedirs_is_made_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.makedirs` then reports that the folder exists, which is not a file on the way."""
    mkdir = os.mkdir
    refused: list[str] = []

    def mkdir_of_a_folder_that_goes(path: str, mode: int = 0o777) -> None:
        if not refused:
            refused.append(path)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", mkdir_of_a_folder_that_goes)
    await store.put_if_absent("n/t/0/a", [b"x"])
    assert len(refused) == 1
    assert await store.get("n/t/0/a") == b"x"


@pytest.mark.parametrize("refused_by", ["open", "write"])
async def test_file_system_without_direct_io_uses_the_page_cache(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, refused_by: str
) -> None:
    if not hasattr(os, "O_DIRECT"):
        pytest.skip("this system has no O_DIRECT")
    open_, write = os.open, os.write
    refused = []

    def refusing_open(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            refused.append(path)
            os.close(open_(path, flags & ~os.O_DIRECT, mode))  # Linux leaves the file behind.
            raise OSError(errno.EINVAL, "no direct I/O")
        return open_(path, flags, mode)

    def refusing_write(descriptor: int, data: bytes) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(str(descriptor))
            raise OSError(errno.EINVAL, "no direct I/O")
        return write(descriptor, data)

    if refused_by == "open":
        monkeypatch.setattr(os, "open", refusing_open)
    else:
        monkeypatch.setattr(os, "write", refusing_write)
    body = os.urandom(BIG)
    await store.put_if_absent("n/a", [body])
    await store.put_if_absent("n/b", [body[::-1]])
    assert await store.get("n/a") == body
    assert await store.get("n/b") == body[::-1]
    assert refused


@pytest.mark.parametrize("at_once", [1, 4095, 4096, 1_000_000])
async def test_short_writes_are_completed(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    write = os.write
    short = iter([True] * 5)

    def short_write(descriptor: int, data: memoryview) -> int:
        return write(descriptor, data[:at_once] if next(short, False) else data)

    body = os.urandom(BIG)
    monkeypatch.setattr(os, "write", short_write)
    await store.put_if_absent("n/a", [body])
    assert await store.get("n/a") == body


async def test_short_reads_are_completed(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    pread = os.pread
    body = os.urandom(10_000)
    await store.put_if_absent("n/a", [body])
    monkeypatch.setattr(os, "pread", lambda fd, length, start: pread(fd, min(length, 999), start))
    assert await store.get("n/a") == body
    assert await store.get_range("n/a", 5, 5000) == body[5:5005]


class Gate:
    """A system call that waits until the test lets it go."""

    def __init__(self, call: Callable[[int], None]) -> None:
        self._call = call
        self.reached = threading.Event()
        self.open = threading.Event()

    def __call__(self, descriptor: int) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE_SEC)
        self._call(descriptor)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """Stands before every fdatasync."""
    gate = Gate(os.fdatasync)
    monkeypatch.setattr(os, "fdatasync", gate)
    return gate


async def test_the_event_loop_runs_while_the_disk_does_not(store: LocalStore, gate: Gate) -> None:
    putting = asyncio.create_task(store.put_if_absent("n/a", [b"x"]))
    assert await asyncio.to_thread(gate.reached.wait, 60)
    assert [info async for info in store.list("")] == []
    assert not putting.done()
    gate.open.set()
    await putting


async def test_cancelled_put_returns_once_its_memory_is_unread(store: LocalStore, gate: Gate) -> None:
    putting = asyncio.create_task(store.put_if_absent("n/a", [b"x"]))
    assert await asyncio.to_thread(gate.reached.wait, 60)
    for _ in range(3):  # More than one cancellation changes nothing.
        putting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not putting.done()
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await store.get("n/a") == b"x"


async def test_a_put_that_is_cancelled_before_its_turn_never_happens(tmp_path: Path, gate: Gate) -> None:
    store = LocalStore(tmp_path, threads=1)
    first = asyncio.create_task(store.put_if_absent("n/first", [b"x"]))
    assert await asyncio.to_thread(gate.reached.wait, 60)
    second = asyncio.create_task(store.put_if_absent("n/second", [b"x"]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    gate.open.set()
    await first
    assert [info.key async for info in store.list("")] == ["n/first"]
    await store.close()


async def test_closing_waits_for_calls_in_progress(tmp_path: Path, gate: Gate) -> None:
    store = LocalStore(tmp_path)
    putting = asyncio.create_task(store.put_if_absent("n/a", [b"x"]))
    assert await asyncio.to_thread(gate.reached.wait, 60)
    closing = asyncio.create_task(store.close())
    gate.open.set()
    await closing
    await putting
    assert (tmp_path / "n" / "a").read_bytes() == b"x"


async def test_what_is_no_object_is_not_listed(store: LocalStore, tmp_path: Path) -> None:
    root = os.fsencode(tmp_path / "objects")
    os.mkdir(root + b"/n")
    for name in (b"/n/fine", b"/n/\xff\xfe"):
        os.close(os.open(root + name, os.O_CREAT))
    assert [info.key async for info in store.list("")] == ["n/fine"]
