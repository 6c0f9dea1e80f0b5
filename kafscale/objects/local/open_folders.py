"""Folders that objects were put into a moment ago, held open: the next put asks only if the path still leads there.

The way to an object is looked at folder by folder (`entries.check_folders`), and its folder is opened for its sync.
A journal has thousands of entries in one folder, one after the other. A descriptor keeps the folder's inode, so its
number is not given to another folder: if the path leads to the same inode, then to the folder that was looked at.
"""

import os
import threading
from collections import OrderedDict

from kafscale.system import FOLDER_FLAGS, NO_FOLLOW

MOST_OPEN_FOLDERS = 64


class OpenFolder:
    """A folder below the store's root, on the disk itself. Closed with its last user, who may be another thread."""

    __slots__ = ("_identity", "descriptor")

    def __init__(self, path: str) -> None:
        """Raises `OSError`."""
        self.descriptor = os.open(path, FOLDER_FLAGS | NO_FOLLOW)
        self._identity = _identity(os.fstat(self.descriptor))

    def is_at(self, path: str) -> bool:
        """True if the path leads to this folder."""
        try:
            return _identity(os.lstat(path)) == self._identity
        except OSError:
            return False

    @property
    def is_there(self) -> bool:
        """False once the folder was removed, whatever its path leads to."""
        return os.fstat(self.descriptor).st_nlink > 0

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class OpenFolders:
    """The folders used last, by their paths. Usable from several threads."""

    def __init__(self) -> None:
        self._folders: OrderedDict[str, OpenFolder] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, path: str) -> OpenFolder | None:
        """The folder if it is open and still there; None otherwise."""
        with self._lock:
            folder = self._folders.get(path)
            if folder is None:
                return None
            self._folders.move_to_end(path)
        if folder.is_at(path):
            return folder
        self.forget(path)
        return None

    def remember(self, path: str) -> None:
        """The folder was reached without links and is on the disk, with those above it. Raises `OSError`."""
        folder = OpenFolder(path)
        with self._lock:
            self._folders[path] = folder
            self._folders.move_to_end(path)
            if len(self._folders) > MOST_OPEN_FOLDERS:
                self._folders.popitem(last=False)

    def forget(self, path: str) -> None:
        """The folder is not there any more, or another one is."""
        with self._lock:
            self._folders.pop(path, None)

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            self._folders.clear()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
