"""The lock that makes one process the owner of a metadata file. It is a file of its own, so that others can read.

Theory of operation. It is a lock of an open file description (F_OFD_SETLK): the kernel ends it with the process,
however that ends; a second opening in the same process is refused like any other; and a process can query it
without taking it for a moment, so that a reader never keeps an owner out. The file is empty and never deleted: a
lock on a deleted file excludes no other process.
"""

import errno
import fcntl
import os
import struct
import sys
from pathlib import Path

from kafscale.errors import StartupError

# struct flock: Linux begins with the type and where the range is counted from, Darwin ends with them.
_FLOCK = struct.Struct("qqihh" if sys.platform == "darwin" else "hhqqi0q")
_HELD_BY_OTHERS = (errno.EACCES, errno.EAGAIN)


def lock_path(path: Path) -> Path:
    """The path of the lock of a metadata file."""
    return path.with_name(f"{path.name}-lock")


class OwnerLock:
    """The lock, taken by the constructor and released by `close`. Raises `InUseError`, `OSError`."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLK, _range(fcntl.F_WRLCK))
        except OSError as problem:
            os.close(self._descriptor)
            if problem.errno in _HELD_BY_OTHERS:
                raise InUseError(path) from problem
            raise

    def close(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


def is_owned(path: Path) -> bool:
    """True if a process owns the metadata file now. Raises `OSError` if that cannot be determined."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # Queries a shared lock, because this descriptor may not write.
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _range(fcntl.F_RDLCK))
    finally:
        os.close(descriptor)
    return _kind(answer) != fcntl.F_UNLCK


class InUseError(StartupError):
    """Another process owns the metadata file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"metadata file {path} is in use by another process: stop that one first")


def _range(kind: int) -> bytes:
    """A lock of this kind on the whole file, however long it becomes."""
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, kind, os.SEEK_SET)
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _kind(answer: bytes) -> int:
    fields = _FLOCK.unpack(answer)
    return int(fields[3] if sys.platform == "darwin" else fields[0])
