"""Puts into a folder that was used a moment ago: shorter, and with the same promises."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafscale.errors import ObjectExistsError, StoreIndeterminateError, StoreUnavailableError
from kafscale.objects.local import open_folders
from kafscale.objects.local.open_folders import OpenFolders
from kafscale.objects.local.store import LocalStore

BIG = 3 * 1024 * 1024 + 5
NEEDS_UNNAMED = pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="this system has no O_TMPFILE")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of `os` that look at paths, in order."""
    seen: list[str] = []
    for name in ("lstat", "open", "link", "unlink"):
        original = getattr(os, name)

        def noted(
            *arguments: object, name: str = name, original: object = original, **named: object
        ) -> object:
            seen.append(name)
            return original(*arguments, **named)  # type: ignore[operator]

        monkeypatch.setattr(os, name, noted)
    return seen


def _descriptors_of(path: Path) -> list[str]:
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except FileNotFoundError:  # that of the listing itself
            continue
        if target.startswith(str(path)):
            found.append(target)
    return found


@NEEDS_UNNAMED
async def test_put_into_an_open_folder_takes_few_calls(store: LocalStore, calls: list[str]) -> None:
    await store.put_if_absent("n/t/0/first", [b"x"])
    calls.clear()
    await store.put_if_absent("n/t/0/second", [b"y"])
    assert calls == ["lstat", "open", "link"]


@pytest.mark.parametrize("size_bytes", [10, BIG])
async def test_objects_of_an_open_folder_are_whole(store: LocalStore, size_bytes: int) -> None:
    content = os.urandom(size_bytes)
    for key in ("n/a", "n/b"):
        await store.put_if_absent(key, [content[:7], content[7:]])
        assert await store.get(key) == content


async def test_taken_name_in_an_open_folder_is_refused(store: LocalStore, tmp_path: Path) -> None:
    await store.put_if_absent("n/a", [b"first"])
    await store.put_if_absent("n/b", [b"second"])
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("n/b", [b"third"])
    assert await store.get("n/b") == b"second"
    (tmp_path / "objects" / "n" / "folder").mkdir()
    with pytest.raises(StoreUnavailableError, match="n/folder is a folder"):
        await store.put_if_absent("n/folder", [b"x"])


async def test_open_folder_that_was_removed_is_made_again(store: LocalStore, tmp_path: Path) -> None:
    await store.put_if_absent("n/t/0/a", [b"x"])
    shutil.rmtree(tmp_path / "objects" / "n")
    await store.put_if_absent("n/t/0/b", [b"y"])
    assert (tmp_path / "objects" / "n" / "t" / "0" / "b").read_bytes() == b"y"


@NEEDS_UNNAMED
@pytest.mark.parametrize("call", ["open", "link"])
async def test_open_folder_that_goes_during_a_put_is_made_again(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Linux finds the folder first, and ext4 makes no file in one that has gone then: EPERM."""
    await store.put_if_absent("n/t/0/a", [b"x"])
    original = getattr(os, call)

    def too_late(*arguments: Any, **named: Any) -> Any:
        if call == "link" and named.get("dst_dir_fd") is not None:
            shutil.rmtree(tmp_path / "objects" / "n")
        elif call == "open" and arguments[1] & os.O_TMPFILE == os.O_TMPFILE:
            shutil.rmtree(tmp_path / "objects" / "n")
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), arguments[0])
        return original(*arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, call, too_late)
        await store.put_if_absent("n/t/0/b", [b"y"])
    assert (tmp_path / "objects" / "n" / "t" / "0" / "b").read_bytes() == b"y"


@NEEDS_UNNAMED
async def test_refusal_in_an_open_folder_that_is_there_is_reported(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_if_absent("n/a", [b"x"])

    def refuse(*arguments: Any, **named: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        with pytest.raises(StoreUnavailableError, match="n/b"):
            await store.put_if_absent("n/b", [b"y"])
    await store.put_if_absent("n/b", [b"z"])


@pytest.mark.parametrize("level", ["n", "n/t", "n/t/0"])
async def test_open_folder_that_becomes_a_link_is_refused(
    store: LocalStore, tmp_path: Path, level: str
) -> None:
    await store.put_if_absent("n/t/0/a", [b"x"])
    path = tmp_path / "objects" / level
    shutil.copytree(path, tmp_path / "outside")
    shutil.rmtree(path)
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(StoreUnavailableError, match=f"{level} is a symbolic link"):
        await store.put_if_absent("n/t/0/b", [b"y"])
    assert list((tmp_path / "outside").rglob("b")) == []


async def test_failed_sync_of_an_open_folder_is_indeterminate(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_if_absent("n/a", [b"x"])

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StoreIndeterminateError, match="n/b"):
            await store.put_if_absent("n/b", [b"x"])
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("n/b", [b"y"])


@NEEDS_UNNAMED
@pytest.mark.parametrize("code", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
async def test_file_system_without_unnamed_files_takes_the_long_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    open_ = os.open

    def refusing(path: str, flags: int, *arguments: int, **named: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(code, os.strerror(code))
        return open_(path, flags, *arguments, **named)

    monkeypatch.setattr(os, "open", refusing)
    store = LocalStore(tmp_path)
    for key in ("n/a", "n/b"):
        await store.put_if_absent(key, [b"x"])
        assert await store.get(key) == b"x"
    with pytest.raises(ObjectExistsError):
        await store.put_if_absent("n/b", [b"y"])
    await store.close()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are listed from /proc")
async def test_open_folders_are_few_and_closed_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_folders, "MOST_OPEN_FOLDERS", 3)
    store = LocalStore(tmp_path)
    for number in range(10):
        await store.put_if_absent(f"n/{number}/a", [b"x"])
    assert len(_descriptors_of(tmp_path / "n")) == 3
    await store.close()
    assert _descriptors_of(tmp_path) == []


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are listed from /proc")
def test_folder_that_is_in_use_is_closed_by_its_last_user(tmp_path: Path) -> None:
    opened = OpenFolders()
    opened.remember(str(tmp_path))
    used = opened.find(str(tmp_path))
    assert used is not None
    opened.close()
    assert os.listdir(used.descriptor) == []
    del used
    assert _descriptors_of(tmp_path) == []
