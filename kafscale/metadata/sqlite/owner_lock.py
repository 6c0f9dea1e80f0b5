"""The lock that makes one process the owner of a metadata file. It is a file of its own, so that others can read.

Theory of operation. It is a lock of an open file description (F_OFD_SETLK): the kernel ends it with the process,
however that ends; a second opening in the same process is refused like any other; and a process can query it
without taking it for a moment, so that a reader never keeps an owner out. The file is empty and never deleted: a
lock on a deleted file excludes no other process.

A system without such locks (Windows, an older macOS) has others that end with their process, but that cannot be
queried: there a reader takes the lock for a moment, and an owner that meets it tries again for a second.
"""

import errno
import os
import struct
import sys
from pathlib import Path

from kafscale.errors import StartupError
from kafscale.system import FILE_FLAGS, fcntl, try_lock, try_lock_patiently

# struct flock: Linux begins with the type and where the range is counted from, Darwin ends with them.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi0q")
_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN)
_CAN_QUERY = hasattr(fcntl, "F_OFD_SETLK")


def lock_path(path: Path) -> Path:
    """The path of the lock of a metadata file."""
    return path.with_name(f"{path.name}-lock")


class OwnerLock:
    """The lock, taken by the constructor and released by `close`. Raises `InUseError`, `OSError`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | FILE_FLAGS, 0o600)
        try:
            is_taken = _take(self._descriptor)
        except OSError:
            os.close(self._descriptor)
            raise
        if not is_taken:
            os.close(self._descriptor)
            raise InUseError(path)

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def is_owned(path: Path) -> bool:
    """True if a process owns the metadata file now. Raises `OSError` if that cannot be determined."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | FILE_FLAGS)
    except FileNotFoundError:
        return False
    try:
        if not _CAN_QUERY:
            return not try_lock(descriptor)
        # Queries a shared lock, because this descriptor may not write.
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _range(fcntl.F_RDLCK))
    finally:
        os.close(descriptor)
    return bool(_kind(answer) != fcntl.F_UNLCK)


class InUseError(StartupError):
    """Another process owns the metadata file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"metadata file {path} is in use by another process: stop that one first")


def _take(descriptor: int) -> bool:
    """False if another opening of the file has the lock. Raises `OSError`."""
    if not _CAN_QUERY:
        return try_lock_patiently(descriptor)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK))
    except OSError as problem:
        if problem.errno in _HELD_BY_OTHERS:
            return False
        raise
    return True


def _range(kind: int) -> bytes:
    """A lock of this kind on the whole file, however long it becomes."""
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, kind, os.SEEK_SET)
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _kind(answer: bytes) -> int:
    fields = _FLOCK.unpack(answer)
    return int(fields[3] if sys.platform == "darwin" else fields[0])
