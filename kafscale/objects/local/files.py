"""New files written so that they survive a crash, at little CPU: the folder store's system calls.

Why O_DIRECT, and the measurements: docs/decisions/0004-local-folder-store.md.
"""

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from mmap import mmap

from kafscale.memory.pieces import Pieces
from kafscale.protocol.types import Buffer
from kafscale.system import FILE_FLAGS, fcntl, read_at, read_into_at, sync_data

DIRECT_THRESHOLD_BYTES = 128 * 1024
STAGING_BYTES = 1024 * 1024
ALIGNMENT_BYTES = 4096
# A single pread returns at most this much on Linux.
_MAX_READ_BYTES = 0x7FFF_F000
# Linux takes 1024 views in one call.
_MAX_VIEWS = 1024

_O_DIRECT: int = getattr(os, "O_DIRECT", 0)
_O_TMPFILE: int = getattr(os, "O_TMPFILE", 0)
_DESCRIPTORS = "/proc/self/fd"
# What `open` says to O_TMPFILE: the file system does not have it, or not with direct I/O; the kernel does not.
_WITHOUT_UNNAMED = (errno.EOPNOTSUPP, errno.EINVAL, errno.EISDIR)
# Records are their owner's, whatever the umask says.
FILE_MODE = 0o600


class FileWriter:
    """Writes new files. Usable from several threads; each has its own staging memory, kept while it lives."""

    def __init__(self, *, fsync: bool) -> None:
        self._fsync = fsync
        self._direct_flag = _O_DIRECT
        self._links_unnamed = False
        self._local = threading.local()

    def write(self, path: str, parts: Sequence[Buffer]) -> None:
        """Create the file from the joined parts, on the disk on return if `fsync`. Raises `OSError`."""
        is_direct = _is_direct(parts)
        descriptor = self.create(path, direct=is_direct)
        try:
            self._fill(descriptor, parts, is_direct=is_direct)
        finally:
            os.close(descriptor)

    def probe_unnamed(self, folder: str) -> None:
        """See if files can be made without a name and be linked then, never over another one; else none are."""
        self._links_unnamed = bool(_O_TMPFILE) and _links_unnamed_files(folder)

    def write_linked(self, beginning: str, folder: int, name: str, parts: Sequence[Buffer]) -> bool:
        """The same without a temporary name: the file gets its only name once its bytes are there.

        `beginning`: a folder of the same file system to make it in; `folder`: the descriptor of its own. False
        where that is not possible, and nothing was done. Raises `OSError`, also if the folder was removed;
        `FileExistsError` if the name is taken.
        """
        if not self._links_unnamed:
            return False
        is_direct = _is_direct(parts)
        flags = os.O_WRONLY | os.O_CLOEXEC | _O_TMPFILE | (self._direct_flag if is_direct else 0)
        try:
            descriptor = os.open(beginning, flags, FILE_MODE)
        except OSError as problem:
            if problem.errno not in _WITHOUT_UNNAMED:
                raise
            # The file system has none, or no direct I/O.
            self._links_unnamed = False
            return False
        try:
            self._fill(descriptor, parts, is_direct=is_direct)
            _link_unnamed(descriptor, folder, name)
        finally:
            os.close(descriptor)
        return True

    def _fill(self, descriptor: int, parts: Sequence[Buffer], *, is_direct: bool) -> None:
        if is_direct:
            staged = _StagedWriter(descriptor, self._staging())
            for part in parts:
                staged.add(part)
            staged.finish()
        else:
            _write_all(descriptor, memoryview(b"".join(parts)))
        if self._fsync:
            sync_data(descriptor)

    def begin(self, path: str) -> "NewFile":
        """A file that comes piece by piece. Does not touch the disk yet."""
        return NewFile(self, path, fsync=self._fsync)

    def create(self, path: str, *, direct: bool) -> int:
        """The descriptor of a new file, with direct I/O where that is asked for and possible."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE_FLAGS
        if direct and self._direct_flag:
            try:
                return os.open(path, flags | self._direct_flag, FILE_MODE)
            except OSError as problem:
                if problem.errno != errno.EINVAL:
                    raise
                # The file system has no direct I/O; Linux creates the file before it finds out.
                self._direct_flag = 0
                flags &= ~os.O_EXCL
        return os.open(path, flags, FILE_MODE)

    def _staging(self) -> memoryview:
        staging: memoryview | None = getattr(self._local, "staging", None)
        if staging is None:
            staging = self._local.staging = _new_staging()
        return staging


class NewFile:
    """A file written piece by piece, by one thread at a time. Methods raise `OSError`; `close` comes last."""

    def __init__(self, writer: FileWriter, path: str, *, fsync: bool) -> None:
        self._writer = writer
        self._path = path
        self._fsync = fsync
        self._descriptor: int | None = None
        self._staged: _StagedWriter | None = None

    def append(self, part: Buffer) -> None:
        """Add the part, which is not needed any more on return."""
        self._opened().add(part)

    def finish(self) -> None:
        """There is no more; on the disk on return if `fsync`."""
        self._opened().finish()
        if self._fsync and self._descriptor is not None:
            sync_data(self._descriptor)

    def close(self) -> None:
        """Close the file, finished or not."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = self._staged = None

    def _opened(self) -> "_StagedWriter":
        if self._staged is None:
            self._descriptor = self._writer.create(self._path, direct=True)
            self._staged = _StagedWriter(self._descriptor, _new_staging())
        return self._staged


class _StagedWriter:
    """Copies parts into page-aligned memory, which direct I/O needs, and writes it whenever it is full."""

    def __init__(self, descriptor: int, staging: memoryview) -> None:
        self._descriptor = descriptor
        self._staging = staging
        self._filled = 0

    def add(self, part: Buffer) -> None:
        view = memoryview(part).cast("B")
        while view:
            length = min(STAGING_BYTES - self._filled, len(view))
            self._staging[self._filled : self._filled + length] = view[:length]
            self._filled += length
            view = view[length:]
            if self._filled == STAGING_BYTES:
                _write_all(self._descriptor, self._staging)
                self._filled = 0

    def finish(self) -> None:
        """Write what is left."""
        aligned = self._filled - self._filled % ALIGNMENT_BYTES
        _write_all(self._descriptor, self._staging[:aligned])
        if aligned < self._filled:
            # Direct I/O takes whole blocks only; the rest goes through the page cache, to the same fdatasync.
            _leave_direct_io(self._descriptor)
            _write_all(self._descriptor, self._staging[aligned : self._filled])


def _link_unnamed(descriptor: int, folder_descriptor: int, name: str) -> None:
    # With a folder's descriptor Python follows the link to the file itself; without, it would link the link.
    os.link(f"{_DESCRIPTORS}/{descriptor}", name, dst_dir_fd=folder_descriptor)


def _links_unnamed_files(folder: str) -> bool:
    name = "probe-unnamed"
    with ExitStack() as cleanup, suppress(OSError):
        folder_descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        cleanup.callback(os.close, folder_descriptor)
        descriptor = os.open(folder, os.O_WRONLY | os.O_CLOEXEC | _O_TMPFILE, FILE_MODE)
        cleanup.callback(os.close, descriptor)
        _link_unnamed(descriptor, folder_descriptor, name)
        cleanup.callback(os.unlink, name, dir_fd=folder_descriptor)
        try:
            _link_unnamed(descriptor, folder_descriptor, name)
        except FileExistsError:
            return True
    return False


def _is_direct(parts: Sequence[Buffer]) -> bool:
    return sum(memoryview(part).nbytes for part in parts) >= DIRECT_THRESHOLD_BYTES


def _new_staging() -> memoryview:
    return memoryview(mmap(-1, STAGING_BYTES))


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
    """True if the file was written directly until now."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) if _O_DIRECT else 0
    if not flags & _O_DIRECT:
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~_O_DIRECT)
    return True


def read_exactly(descriptor: int, start: int, length: int) -> bytes:
    """`length` bytes from `start`, fewer when the file ends before. Raises `OSError`."""
    data = read_at(descriptor, min(length, _MAX_READ_BYTES), start)
    if len(data) == length:
        return data
    pieces = [data]
    while pieces[-1]:
        start += len(pieces[-1])
        length -= len(pieces[-1])
        pieces.append(read_at(descriptor, min(length, _MAX_READ_BYTES), start))
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
            count = read_into_at(descriptor, room.slices(filled, wanted)[:_MAX_VIEWS], start + filled)
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
