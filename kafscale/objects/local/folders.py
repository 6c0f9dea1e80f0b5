"""Folders that appear with their first object, survive a crash with it, and go with their last one.

Files are only ever linked into folders while threads make and remove the same folders. Two rules keep that
sound: a folder that holds a file cannot be removed, so whatever is established about it *after* the link
stays true; and removing a folder and forgetting that it was durable happen under one lock.
"""

import errno
import os
import threading
from collections.abc import Callable

from kafscale.system import sync_folder

_ATTEMPTS = 100
_FOLDER_MODE = 0o700


def make_private_folders(path: str) -> None:
    """Make the folder, and those above it that are missing, for their owner only. Raises `OSError`.

    `os.makedirs` would leave all but the last to the umask.
    """
    parent = os.path.dirname(path)
    if not os.path.exists(parent):
        make_private_folders(parent)
    try:
        os.mkdir(path, _FOLDER_MODE)
    except FileExistsError:
        if not os.path.isdir(path):
            raise


class Folders:
    """The folders below `root`, an absolute path. Usable from several threads."""

    def __init__(self, root: str, *, fsync: bool) -> None:
        self._root = root
        self._fsync = fsync
        self._lock = threading.Lock()
        self._durable = {root}
        self._removals = 0

    def place(self, place: Callable[[str, str], None], temporary: str, path: str) -> None:
        """Call `place(temporary, path)`, making the folders on the way there. Raises `OSError`.

        `FileExistsError` only ever comes from `place` itself.
        """
        for _ in range(_ATTEMPTS):
            try:
                return place(temporary, path)
            except FileNotFoundError:
                if not os.path.exists(temporary):
                    raise
            try:
                make_private_folders(os.path.dirname(path))
            except (FileNotFoundError, FileExistsError):
                # A concurrent removal of an empty parent: once more from the start. It says "exists"
                # when the folder went between its mkdir and its look. A file on the way is no such case:
                # `place` has already said that it is not a folder.
                continue
        raise OSError(errno.EBUSY, f"the folder was removed {_ATTEMPTS} times while it was made", path)

    def sync(self, folder: str) -> None:
        """Return once the folder's entries, and the folder itself, are on the disk. Raises `OSError`.

        The folder holds a file of the caller's: it cannot be removed meanwhile.
        """
        if not self._fsync:
            return
        sync_folder(folder)
        if folder in self._durable:
            return
        with self._lock:
            removals = self._removals
        made_durable = []
        while folder not in self._durable:
            made_durable.append(folder)
            folder = os.path.dirname(folder)
            sync_folder(folder)
        with self._lock:
            # Only now that the whole way up is on the disk: who finds a folder here looks no further up. And
            # only without a removal meanwhile: it may have been of one of these, which was created again.
            if removals == self._removals:
                self._durable.update(made_durable)

    def sync_open(self, descriptor: int) -> None:
        """The same for a folder that `sync` was called with, and that was not removed since."""
        if self._fsync:
            os.fsync(descriptor)

    def remove_if_empty(self, folder: str) -> None:
        """After files left the folder: remove it and its parents as far as they are empty; sync the rest."""
        while folder != self._root:
            with self._lock:
                try:
                    os.rmdir(folder)
                except FileNotFoundError:
                    pass  # Another process deleted it, and perhaps not its parent.
                except OSError:
                    break  # Not empty, or made so that it cannot be removed: an empty folder does no harm.
                self._removals += 1
                self._durable.discard(folder)
            folder = os.path.dirname(folder)
        if self._fsync:
            self._sync_nearest(folder)

    def _sync_nearest(self, folder: str) -> None:
        while True:
            try:
                return sync_folder(folder)
            except FileNotFoundError:
                if folder == self._root:
                    raise
                folder = os.path.dirname(folder)
