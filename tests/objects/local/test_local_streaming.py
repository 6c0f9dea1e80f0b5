"""Streamed creation on a folder beyond the contract: what reaches the disk, what is left, what memory it takes."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from kafscale.errors import ObjectExistsError, StoreUnavailableError
from kafscale.objects.local.store import LocalStore
from kafscale.protocol.types import Buffer
from tests.support.waiting import PATIENCE_SEC

MIB = 2**20


def files_below(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


async def chunks_of(*chunks: Buffer) -> AsyncIterator[Buffer]:
    for chunk in chunks:
        yield chunk


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("fsync", [True, False])
async def test_bytes_reach_the_disk_before_the_name_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool
) -> None:
    seen: list[str] = []
    fdatasync, link = os.fdatasync, os.link

    def synced(descriptor: int) -> None:
        fdatasync(descriptor)
        seen.append(f"{os.fstat(descriptor).st_size} bytes")

    def linked(source: str, target: str) -> None:
        link(source, target)
        seen.append(f"name {os.path.basename(target)}")

    store = LocalStore(tmp_path / "objects", fsync=fsync)
    monkeypatch.setattr(os, "fdatasync", synced)
    monkeypatch.setattr(os, "link", linked)
    await store.put_if_absent_streamed("n/a", chunks_of(bytes(3 * MIB), b"12345"), 3 * MIB + 5)
    await store.close()
    assert seen == ([f"{3 * MIB + 5} bytes"] if fsync else []) + ["name a"]


async def test_chunks_are_written_as_they_come(store: LocalStore, tmp_path: Path) -> None:
    """Nothing is kept of them but what does not fill a write."""
    sizes = []

    async def chunks() -> AsyncIterator[Buffer]:
        for _ in range(6):
            yield bytes(MIB + 100_000)
            [temporary] = files_below(tmp_path / "objects")
            sizes.append((tmp_path / "objects" / temporary).stat().st_size)

    await store.put_if_absent_streamed("n/a", chunks(), 6 * (MIB + 100_000))
    assert all(size >= number * MIB for number, size in enumerate(sizes, start=1))


async def test_object_that_appears_meanwhile_is_all_that_stays(store: LocalStore, tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[Buffer]:
        yield b"ours "
        await store.put_if_absent("n/a", [b"theirs"])
        yield b"too late"

    with pytest.raises(ObjectExistsError):
        await store.put_if_absent_streamed("n/a", chunks(), 13)
    assert files_below(tmp_path / "objects") == ["n/a"]
    assert await store.get("n/a") == b"theirs"


async def test_failed_creation_leaves_no_file_and_no_descriptor(store: LocalStore, tmp_path: Path) -> None:
    async def failing() -> AsyncIterator[Buffer]:
        yield bytes(2 * MIB)
        raise KeyError("the caller's")

    await store.put_if_absent_streamed("n/a", chunks_of(b"x"), 1)
    before = open_descriptors()
    for _ in range(5):
        with pytest.raises(KeyError):
            await store.put_if_absent_streamed("n/b", failing(), 3 * MIB)
        with pytest.raises(ValueError, match="announced"):
            await store.put_if_absent_streamed("n/b", chunks_of(bytes(2 * MIB)), 3 * MIB)
        with pytest.raises(ObjectExistsError):
            await store.put_if_absent_streamed("n/a", chunks_of(bytes(2 * MIB)), 2 * MIB)
    assert files_below(tmp_path / "objects") == ["n/a"]
    assert open_descriptors() == before


def failing_call(code: int) -> Callable[..., None]:
    def fail(*arguments: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


@pytest.mark.parametrize("call", ["open", "write", "fdatasync", "link"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
async def test_a_failure_before_the_name_is_known_to_have_done_nothing(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing_call(code))
        with pytest.raises(StoreUnavailableError, match="n/a"):
            await store.put_if_absent_streamed("n/a", chunks_of(bytes(2 * MIB)), 2 * MIB)
    assert files_below(tmp_path / "objects") == []
    await store.put_if_absent_streamed("n/a", chunks_of(b"x"), 1)


async def test_cancelled_caller_gets_its_chunk_back_once_unread(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, go_on, write = threading.Event(), threading.Event(), os.write

    def held(descriptor: int, data: memoryview) -> int:
        reached.set()
        assert go_on.wait(PATIENCE_SEC)
        return write(descriptor, data)

    memory = bytearray(2 * MIB)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", held)
        creating = asyncio.create_task(
            store.put_if_absent_streamed("n/a", chunks_of(memoryview(memory)), 2 * MIB)
        )
        assert await asyncio.to_thread(reached.wait, 60)
        for _ in range(3):
            creating.cancel()
            await asyncio.sleep(0)
            assert not creating.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await creating
    assert files_below(tmp_path / "objects") == []
