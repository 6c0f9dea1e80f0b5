"""SQLite's write-ahead log as a file: where it lies, and how it gets onto a disk whose fsync has failed.

SQLite keeps its locks on the database and on the shared memory beside it, none on the log. So the log, and only
the log, may be opened and closed by hand: closing the others would end the locks of the whole process.
"""

import os
from pathlib import Path
from typing import Final

_PIECE_BYTES: Final = 1024 * 1024


def log_path(path: Path) -> Path:
    """Where the write-ahead log of a database lies."""
    return path.with_name(f"{path.name}-wal")


def shared_memory_path(path: Path) -> Path:
    """Where the index of the log lies, which the processes that use a database share."""
    return path.with_name(f"{path.name}-shm")


def holds_anything(log: Path) -> bool:
    """Whether there is a log with anything in it. Raises `OSError`."""
    try:
        return log.stat().st_size > 0
    except FileNotFoundError:
        return False


def write_anew(log: Path) -> None:
    """Write the log over itself and wait for the disk; nothing when there is none.

    After an fsync that failed the kernel may have marked the pages as clean all the same: the next one, which
    succeeds, says nothing about them. Bytes that are written anew it covers. To be called by the only writer;
    readers see the same bytes all the time. Raises `OSError`.
    """
    try:
        descriptor = os.open(log, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        position = 0
        while piece := os.pread(descriptor, _PIECE_BYTES, position):
            position += os.pwrite(descriptor, piece, position)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
