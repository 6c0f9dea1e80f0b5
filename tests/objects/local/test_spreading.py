"""New files far apart where a file system is slow beside many that were deleted."""

import os
import shutil
from pathlib import Path

import pytest

from kafscale.errors import StoreUnavailableError
from kafscale.objects.local import spreading
from kafscale.objects.local.spreading import SPREAD_FOLDERS, NewFileFolders
from kafscale.objects.local.store import LocalStore

DEVICE = "disk7"
OWN = "/where/the/file/will/be"


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A system that tells of its file systems: the folder is on ext4, on the device "disk7", without a journal."""
    if not hasattr(os, "major"):
        pytest.skip("this system does not number devices as Linux does")
    system = tmp_path / "system"
    for name in ("block", "ext4", "jbd2"):
        (system / name).mkdir(parents=True)
    device = tmp_path.stat().st_dev
    (system / "block" / f"{os.major(device)}:{os.minor(device)}").symlink_to(f"../../devices/{DEVICE}")
    (system / "ext4" / DEVICE).mkdir()
    monkeypatch.setattr(spreading, "_DEVICES", str(system / "block"))
    monkeypatch.setattr(spreading, "_FILE_SYSTEMS", str(system / "ext4"))
    monkeypatch.setattr(spreading, "_JOURNALS", str(system / "jbd2"))
    return system


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    parent = tmp_path / "parent"
    parent.mkdir()
    return parent


def test_ext4_without_a_journal_gets_several_folders(system: Path, parent: Path) -> None:
    folders = NewFileFolders(str(parent))
    first_round = [folders.next(OWN) for _ in range(SPREAD_FOLDERS)]
    assert len(set(first_round)) == SPREAD_FOLDERS
    assert {str(path) for path in parent.iterdir()} == set(first_round)
    assert [folders.next(OWN) for _ in range(SPREAD_FOLDERS)] == first_round
    assert all(path.stat().st_mode & 0o777 == 0o700 for path in parent.iterdir())


def test_a_journal_needs_none(system: Path, parent: Path) -> None:
    (system / "jbd2" / f"{DEVICE}-8").mkdir()
    assert NewFileFolders(str(parent)).next(OWN) == OWN
    assert not list(parent.iterdir())


def test_the_journal_of_another_device_is_none(system: Path, parent: Path) -> None:
    (system / "jbd2" / f"{DEVICE}1-8").mkdir()
    assert NewFileFolders(str(parent)).next(OWN) != OWN


@pytest.mark.parametrize("untold", ["block", "ext4", "jbd2"])
def test_a_system_that_does_not_tell_gets_none(system: Path, parent: Path, untold: str) -> None:
    (system / untold).rename(system / "elsewhere")
    assert NewFileFolders(str(parent)).next(OWN) == OWN


def test_a_file_system_without_the_hint_is_used(
    system: Path, parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spreading, "_GET_FLAGS", 0)
    assert os.path.isdir(NewFileFolders(str(parent)).next(OWN))


async def test_objects_come_from_the_folders_and_leave_none(system: Path, tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "store")
    for number in range(SPREAD_FOLDERS + 2):
        await store.put_if_absent(f"folder/{number}", [b"content"])
    assert await store.get(f"folder/{SPREAD_FOLDERS + 1}") == b"content"
    assert [found.key async for found in store.list("")] == sorted(
        f"folder/{number}" for number in range(SPREAD_FOLDERS + 2)
    )
    await store.close()
    assert not list((tmp_path / "store" / ".tmp").iterdir())


@pytest.mark.parametrize("removed", [".tmp", ".tmp/*", ".tmp/*/part-*"])
async def test_folders_that_were_removed_come_back(system: Path, tmp_path: Path, removed: str) -> None:
    store = LocalStore(tmp_path / "store")
    refused = 0
    for number in range(3 * SPREAD_FOLDERS):
        if number == SPREAD_FOLDERS:
            for path in (tmp_path / "store").glob(removed):
                shutil.rmtree(path)
        try:
            await store.put_if_absent(f"folder/{number}", [b"content"])
        except StoreUnavailableError:
            refused += 1  # its caller tries again
    assert refused == 1
    assert len([found async for found in store.list("")]) == 3 * SPREAD_FOLDERS - refused
    await store.close()
