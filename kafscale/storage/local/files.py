"""New files written so that they survive a crash, at little CPU: the folder store's system calls.

Why O_DIRECT, and the measurements: docs/decisions/0004-local-folder-store.md.
"""

import errno
import fcntl
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from mmap import mmap

from kafscale.protocol.types import Buffer
from kafscale.storage.pieces import Pieces

DIRECT_THRESHOLD_BYTES = 128 * 1024
STAGING_BYTES = 1024 * 1024
ALIGNMENT_BYTES = 4096
# A single pread returns at most this much on Linux.
_MAX_READ_BYTES = 0x7FFF_F000
# Linux takes 1024 views in one call.
_MAX_VIEWS = 1024

_O_DIRECT: int = getattr(os, "O_DIRECT", 0)


def sync_data(descriptor: int) -> None:
    """Return once the file's bytes and its size are on the disk."""
    if sys.platform == "darwin":
        # There fsync leaves the bytes in the drive's own cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


def sync_folder(path: str) -> None:
    """Return once the folder's entries are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class FileWriter:
    """Writes new files. Usable from several threads; each has its own staging memory, kept while it lives."""

    def __init__(self, *, fsync: bool) -> None:
        self._fsync = fsync
        self._direct_flag = _O_DIRECT
        self._local = threading.local()

    def write(self, path: str, parts: Sequence[Buffer]) -> None:
        """Create the file from the joined parts, on the disk on return if `fsync`. Raises `OSError`."""
        direct = sum(memoryview(part).nbytes for part in parts) >= DIRECT_THRESHOLD_BYTES
        descriptor = self._create(path, direct)
        try:
            if direct:
                self._write_staged(descriptor, parts)
            else:
                _write_all(descriptor, memoryview(b"".join(parts)))
            if self._fsync:
                sync_data(descriptor)
        finally:
            os.close(descriptor)

    def _create(self, path: str, direct: bool) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        if direct and self._direct_flag:
            try:
                return os.open(path, flags | self._direct_flag, 0o644)
            except OSError as problem:
                if problem.errno != errno.EINVAL:
                    raise
                # The file system has no direct I/O; Linux creates the file before it finds out.
                self._direct_flag = 0
                flags &= ~os.O_EXCL
        return os.open(path, flags, 0o644)

    def _write_staged(self, descriptor: int, parts: Sequence[Buffer]) -> None:
        """Copy the parts into page-aligned memory, which direct I/O needs, and write it piece by piece."""
        staging = self._staging()
        filled = 0
        for part in parts:
            view = memoryview(part).cast("B")
            position = 0
            while position < len(view):
                length = min(STAGING_BYTES - filled, len(view) - position)
                staging[filled : filled + length] = view[position : position + length]
                filled += length
                position += length
                if filled == STAGING_BYTES:
                    _write_all(descriptor, staging)
                    filled = 0
        aligned = filled - filled % ALIGNMENT_BYTES
        _write_all(descriptor, staging[:aligned])
        if aligned < filled:
            # Direct I/O takes whole blocks only; the rest goes through the page cache, to the same fdatasync.
            _leave_direct_io(descriptor)
            _write_all(descriptor, staging[aligned:filled])

    def _staging(self) -> memoryview:
        staging: memoryview | None = getattr(self._local, "staging", None)
        if staging is None:
            staging = self._local.staging = memoryview(mmap(-1, STAGING_BYTES))
        return staging


def _write_all(descriptor: int, data: memoryview) -> None:
    while data:
        try:
            written = os.write(descriptor, data)
        except OSError as problem:
            # Refused only now, or the rest after a short write is not aligned: go on through the page cache.
            if problem.errno != errno.EINVAL or not _leave_direct_io(descriptor):
                raise
            continue
        if not written:
            raise OSError(errno.EIO, "a write of more than zero bytes wrote none")
        data = data[written:]


def _leave_direct_io(descriptor: int) -> bool:
    """Whether the file was written directly until now."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    if not flags & _O_DIRECT:
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
    return True


def read_exactly(descriptor: int, start: int, length: int) -> bytes:
    """`length` bytes from `start`, fewer when the file ends before. Raises `OSError`."""
    data = os.pread(descriptor, min(length, _MAX_READ_BYTES), start)
    if len(data) == length:
        return data
    pieces = [data]
    while pieces[-1]:
        start += len(pieces[-1])
        length -= len(pieces[-1])
        pieces.append(os.pread(descriptor, min(length, _MAX_READ_BYTES), start))
    return b"".join(pieces)


def read_into(descriptor: int, start: int, length: int, targets: Sequence[memoryview]) -> int:
    """Read up to `length` bytes from `start` to the beginning of the targets; returns how many there were.

    Large reads pass by the page cache where the file system and the memory's alignment let them: what they
    bring is kept by the broker's own cache. More than `length` may be read, as far as the targets reach.
    Raises `OSError`.
    """
    wanted = -(-length // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    if length >= DIRECT_THRESHOLD_BYTES and start % ALIGNMENT_BYTES == 0 and wanted <= sum(map(len, targets)):
        _enter_direct_io(descriptor)
    else:
        wanted = length
    room = Pieces(targets)
    filled = 0
    while filled < length:
        try:
            count = os.preadv(descriptor, room.slices(filled, wanted)[:_MAX_VIEWS], start + filled)
        except OSError as problem:
            # Refused only now, or the rest after a short read is not aligned: go on through the page cache.
            if problem.errno != errno.EINVAL or not _leave_direct_io(descriptor):
                raise
            continue
        if not count:
            break
        filled += count
    return min(filled, length)


def _enter_direct_io(descriptor: int) -> None:
    if _O_DIRECT:
        with suppress(OSError):  # The file system has none.
            fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | _O_DIRECT)
