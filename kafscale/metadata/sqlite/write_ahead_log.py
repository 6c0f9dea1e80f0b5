"""SQLite's write-ahead log as a file: its path, and how to make it durable after a failed fsync.

SQLite locks the database and the shared memory beside it, not the log. So only the log may be opened and closed
by hand: closing one of the others would end the locks of the whole process.
"""

import os
from pathlib import Path
from typing import Final

from kafscale.system import FILE_FLAGS, read_at, write_at

_PIECE_BYTES: Final = 1024 * 1024


def log_path(path: Path) -> Path:
    """The path of the write-ahead log of a database."""
    return path.with_name(f"{path.name}-wal")


def shared_memory_path(path: Path) -> Path:
    """The path of the index of the log, which all processes that use a database share."""
    return path.with_name(f"{path.name}-shm")


def is_not_empty(file: Path) -> bool:
    """True if the file exists and has bytes. Raises `OSError`."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


def rewrite(log: Path) -> None:
    """Write the log over itself and wait for the disk; does nothing if there is no log.

    After a failed fsync the kernel may have marked the pages as clean all the same, and a later fsync that succeeds
    does not cover them. It covers bytes that are written again. Only the file's owner may call this; readers see
    the same bytes all the time. Raises `OSError`.
    """
    try:
        descriptor = os.open(log, os.O_RDWR | FILE_FLAGS)
    except FileNotFoundError:
        return
    try:
        position = 0
        while piece := read_at(descriptor, _PIECE_BYTES, position):
            position += write_at(descriptor, piece, position)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
