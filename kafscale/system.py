"""The operating system's file calls: all of Linux's, and what stands for those that macOS or Windows lack.

They are found by their names, not by the system's, so that a test can take any of them away. docs/install.md says
what is weaker without them. On Linux each of these is one system call, as before.
"""

import os
import re
import time
from collections.abc import Sequence
from typing import Any, Final

fcntl: Any
msvcrt: Any
try:
    import fcntl
except ImportError:
    fcntl = None
try:
    import msvcrt
except ImportError:
    msvcrt = None

# Windows would turn line ends into others without O_BINARY; its descriptors are never inherited.
FILE_FLAGS: Final[int] = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""For every file that is opened."""
NO_FOLLOW: Final[int] = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: Final[int] = getattr(os, "O_NONBLOCK", 0)
OPENS_FOLDERS: Final = hasattr(os, "O_DIRECTORY")
"""Windows opens none: they cannot be locked, and what is in them cannot be synced."""
FOLDER_FLAGS: Final[int] = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | FILE_FLAGS
NAMES_ARE_EXACT: Final = hasattr(os, "O_PATH")
"""Linux. Elsewhere file systems take "A" for "a" by default, and Windows "a." for "a"."""

_DEVICES: Final = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
_FULL_FSYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_PAUSE_SEC: Final = 0.02
_PATIENCE_SEC: Final = 1.0


def can_name_folder(name: str) -> bool:
    """False for a legal topic's name that Windows, on which this runs, gives no folder."""
    return msvcrt is None or not (name.endswith(".") or _DEVICES.fullmatch(name))


def read_at(descriptor: int, length: int, start: int) -> bytes:
    """`os.pread`. Where that is missing the descriptor must be its thread's own. Raises `OSError`."""
    if hasattr(os, "pread"):
        return os.pread(descriptor, length, start)
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, length)


def read_into_at(descriptor: int, views: Sequence[memoryview], start: int) -> int:
    """`os.preadv`; where that is missing, only the first view that has room is filled. Raises `OSError`."""
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, views, start)
    first = next((view for view in views if view), None)
    if first is None:
        return 0
    data = read_at(descriptor, len(first), start)
    first[: len(data)] = data
    return len(data)


def write_at(descriptor: int, data: bytes, start: int) -> int:
    """`os.pwrite`. Where that is missing the descriptor must be its thread's own. Raises `OSError`."""
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, data, start)
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.write(descriptor, data)


def sync_data(descriptor: int) -> None:
    """Return once the file's bytes and its size are on the disk. Raises `OSError`."""
    if _FULL_FSYNC is not None:
        # On macOS fsync leaves the bytes in the drive's own cache.
        fcntl.fcntl(descriptor, _FULL_FSYNC)
    elif hasattr(os, "fdatasync"):
        os.fdatasync(descriptor)
    else:
        os.fsync(descriptor)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Return once the folder's entries are on the disk; at once where folders cannot be opened. Raises `OSError`."""
    if not OPENS_FOLDERS:
        return
    descriptor = os.open(path, FOLDER_FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace(source: str, target: str) -> None:
    """`os.replace`. While a reader has the target open Windows refuses it: tried for a second. Raises `OSError`."""
    give_up_at = time.monotonic() + _PATIENCE_SEC
    while True:
        try:
            return os.replace(source, target)
        except PermissionError:
            if msvcrt is None or time.monotonic() >= give_up_at:
                raise
            time.sleep(_PAUSE_SEC)


def lock(descriptor: int) -> None:
    """Wait for the lock on an open file, which ends when it is closed, also by the end of the process.

    A second opening of the file is another user, in the same process too. Raises `OSError`.
    """
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return
    while not try_lock(descriptor):
        time.sleep(_PAUSE_SEC)


def try_lock(descriptor: int) -> bool:
    """False if another user has the lock. Raises `OSError`."""
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            os.lseek(descriptor, 0, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except (BlockingIOError, PermissionError):
        return False
    return True


def try_lock_patiently(descriptor: int) -> bool:
    """The same, but a user who only looks whether the file is locked, and so locks it for a moment, is waited for."""
    give_up_at = time.monotonic() + _PATIENCE_SEC
    while not try_lock(descriptor):
        if time.monotonic() >= give_up_at:
            return False
        time.sleep(_PAUSE_SEC)
    return True
