"""Folders for new files, far apart on a disk whose file system would look for room among what was just deleted.

ext4 without a journal, which virtual machines like, does not give the number (inode) of a deleted file to a new one
for minutes. It looks for a free one from the beginning of the folder's part of the disk (block group), past each of
those: 0.65 ms for a new file, more than writing and syncing it, once the entries of a journal have come and gone by
the thousand. So files begin in turn in folders of several parts, and are linked to where they belong. The figures
are in docs/decisions/0004-local-folder-store.md.
"""

import array
import itertools
import os
from contextlib import suppress

from kafscale.objects.local.folders import make_private_folders
from kafscale.system import FOLDER_FLAGS, fcntl

SPREAD_FOLDERS = 256
"""500 entries a second, each deleted within 5 minutes, are some 600 in each part."""

_DEVICES = "/sys/dev/block"
_FILE_SYSTEMS = "/proc/fs/ext4"
_JOURNALS = "/proc/fs/jbd2"

# linux/fs.h: FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_TOPDIR_FL ("chattr +T": folders in this one are unrelated)
_GET_FLAGS = 0x8008_6601
_SET_FLAGS = 0x4008_6602
_UNRELATED_FOLDERS = 0x0002_0000


class NewFileFolders:
    """Folders to begin files in, in turn; they are made in `parent`. Usable from several threads."""

    def __init__(self, parent: str) -> None:
        """Raises `OSError`."""
        self._parent = parent
        self._is_spread = _is_slow_beside_deleted(parent)
        self._numbers = itertools.count()
        self._made: set[str] = set()
        if self._is_spread:
            with suppress(OSError):  # A hint: without it the folders are of one part, as if there was one.
                _say_unrelated(parent)

    def next(self, own: str) -> str:
        """Where to begin a file that will be in the folder `own`: that folder, if nothing is gained by another.

        Raises `OSError`.
        """
        if not self._is_spread:
            return own
        folder = os.path.join(self._parent, f"part-{next(self._numbers) % SPREAD_FOLDERS}")
        if folder not in self._made:
            make_private_folders(folder)
            self._made.add(folder)
        return folder

    def forget_missing(self) -> None:
        """Folders that were removed are made once more, when it is their turn."""
        self._made = {folder for folder in tuple(self._made) if os.path.isdir(folder)}


def _is_slow_beside_deleted(folder: str) -> bool:
    """True on ext4 without a journal. False, too, where the system does not tell."""
    device = os.stat(folder).st_dev
    try:
        name = os.path.basename(os.readlink(f"{_DEVICES}/{os.major(device)}:{os.minor(device)}"))
        journals = os.listdir(_JOURNALS)
    except (OSError, AttributeError):  # Windows has no `os.major`.
        return False
    # Its journal is named after the device and its inode: "sda1-8".
    return os.path.exists(f"{_FILE_SYSTEMS}/{name}") and not any(
        journal.rpartition("-")[0] == name for journal in journals
    )


def _say_unrelated(folder: str) -> None:
    descriptor = os.open(folder, FOLDER_FLAGS)
    try:
        flags = array.array("l", [0])
        fcntl.ioctl(descriptor, _GET_FLAGS, flags)
        flags[0] |= _UNRELATED_FOLDERS
        fcntl.ioctl(descriptor, _SET_FLAGS, flags)
    finally:
        os.close(descriptor)
