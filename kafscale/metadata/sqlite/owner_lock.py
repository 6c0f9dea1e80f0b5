"""The lock that makes one process the owner of a metadata file, beside the file so that others can look into it.

Theory of operation. It is a lock of an open file description (F_OFD_SETLK): the kernel ends it with the process
however that ends, a second opening in the same process is refused like any other, and others can ask who holds
it without taking it for a moment themselves, so nobody who only looks is ever in an owner's way. The file holds
nothing and is never removed: a lock on a removed file keeps nobody out.
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
    """Where the lock of a metadata file lies."""
    return path.with_name(f"{path.name}-lock")


class OwnerLock:
    """The lock, held from construction to `close`. Raises `InUseError`, `OSError`."""

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
        """Let others own the file."""
        os.close(self._descriptor)


def is_owned(path: Path) -> bool:
    """Whether a process owns the metadata file now. Raises `OSError` when that cannot be found out."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A lock that could only be had shared is asked for: this descriptor may not write.
        answer = fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _range(fcntl.F_RDLCK))
    finally:
        os.close(descriptor)
    return _kind(answer) != fcntl.F_UNLCK


class InUseError(StartupError):
    """Another process owns the metadata file."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"metadata file {path} is in use by another process: stop that one first")


def _range(kind: int) -> bytes:
    """A lock of this kind over the whole file, however long it gets."""
    if sys.platform == "darwin":
        return _FLOCK.pack(0, 0, 0, kind, os.SEEK_SET)
    return _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0)


def _kind(answer: bytes) -> int:
    fields = _FLOCK.unpack(answer)
    return int(fields[3] if sys.platform == "darwin" else fields[0])
