"""Opening a folder as a store: it is usable, files of dead processes go, temporary files get a place."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kafscale.errors import StartupError
from kafscale.objects.local.folders import make_private_folders
from kafscale.objects.local.spreading import NewFileFolders
from kafscale.system import FILE_FLAGS, OPENS_FOLDERS, lock, sync_folder, try_lock

TEMPORARY_FOLDER = ".tmp"
_LOCK_FILE = "lock"


class TemporaryFolder:
    """The folder in which one open store writes files before they get their name. Its lock says that it is in use."""

    def __init__(self, path: str, locked: int) -> None:
        """Raises `OSError`."""
        self.path = path
        self._locked = locked
        self.folders = NewFileFolders(path)

    def remove(self) -> None:
        """Remove it with all that is in it. What cannot be removed is removed at a later opening."""
        _remove_locked(self.path, self._locked)


def open_root(root: str) -> TemporaryFolder:
    """Make the folder usable as a store. Raises `StartupError` that names the folder when it is not."""
    try:
        _make_folder(root)
        parent = os.path.join(root, TEMPORARY_FOLDER)
        make_private_folders(parent)
        with _locked(parent):
            _remove_abandoned(parent)
            path = tempfile.mkdtemp(dir=parent)
            locked = _open_lock(path)
            lock(locked)
            temporary = TemporaryFolder(path, locked)
    except OSError as problem:
        raise StartupError(
            f"cannot keep objects in the folder {root}: {problem.strerror or problem}; "
            "make it a folder that this user may write"
        ) from problem
    try:
        _probe_exclusive_link(root, path)
    except BaseException:
        temporary.remove()
        raise
    return temporary


def _make_folder(root: str) -> None:
    """Make the folder and those above it, on the disk on return."""
    missing = []
    folder = root
    while not os.path.lexists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    make_private_folders(root)
    for folder in missing:
        sync_folder(os.path.dirname(folder))


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    """One process at a time looks for files of dead ones: a folder is locked as soon as others can see it."""
    descriptor = _open_lock(folder)
    try:
        lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _open_lock(folder: str) -> int:
    """The descriptor that locks the folder: its own or, where folders cannot be opened, that of a file in it."""
    if OPENS_FOLDERS:
        return os.open(folder, os.O_RDONLY | FILE_FLAGS)
    return os.open(os.path.join(folder, _LOCK_FILE), os.O_RDWR | os.O_CREAT | FILE_FLAGS, 0o600)


def _remove_abandoned(parent: str) -> None:
    """Remove the folders of processes that have ended: those that no process has locked."""
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        if not OPENS_FOLDERS and not os.path.isdir(path):
            continue  # The lock of the folder itself.
        try:
            descriptor = _open_lock(path)
        except FileNotFoundError:
            continue  # Its store was closed this moment.
        is_abandoned = False
        try:
            is_abandoned = try_lock(descriptor)
        finally:
            if is_abandoned:
                _remove_locked(path, descriptor)
            else:
                os.close(descriptor)


def _remove_locked(path: str, descriptor: int) -> None:
    """Remove what is there, best-effort, and close the descriptor that locks it."""
    try:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    finally:
        os.close(descriptor)
    if not OPENS_FOLDERS:
        # An open file cannot be removed there, nor its folder.
        shutil.rmtree(path, ignore_errors=True)


def _probe_exclusive_link(root: str, folder: str) -> None:
    """Creating an object at most once rests on hard links that never replace: see that they do."""
    source, target = os.path.join(folder, "probe"), os.path.join(folder, "probe-link")
    try:
        with open(source, "xb"):
            pass
        os.link(source, target)
    except OSError as problem:
        raise StartupError(
            f"cannot keep objects in the folder {root}: its file system has no hard links, "
            f"which creating an object at most once rests on ({problem.strerror or problem})"
        ) from problem
    with suppress(FileExistsError):
        os.link(source, target)
        raise StartupError(f"cannot keep objects in the folder {root}: its hard links replace existing files")
    os.unlink(target)
    os.unlink(source)
