"""One read of a metadata file by a process that does not own it: beside an owner, after one, or without one.

Theory of operation. A read opens the file, runs one statement and closes the file: it sees one revision, and
between reads nothing is open that could become stale. SQLite opens the file and its shared memory read-only, so
nothing is written and no writer waits. The files beside the database decide how it is read:

* a log and its shared memory: by SQLite's own rules, with its locks; also if no process has the file open.
* no log, or an empty one: everything is in the database, and no process is about to change it. It is read without
  locks, and the rows count if the files are unchanged afterwards.
* a log alone: its index is missing, and only an owner may build one.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from kafscale.errors import StartupError, StoreRefusedError, StoreUnavailableError
from kafscale.metadata.sqlite.owner_lock import is_owned
from kafscale.metadata.sqlite.schema import (
    REVISION_KEY,
    Row,
    corrupt_text,
    is_legal,
    is_new,
    says_busy,
    says_corrupt,
)
from kafscale.metadata.sqlite.write_ahead_log import log_path, shared_memory_path
from kafscale.metadata.store import NO_LEASE

_BUSY_TIMEOUT_SEC: Final = 0.1
_PAUSE_SEC: Final = 0.02

SELECT_KEY: Final = "SELECT * FROM entries WHERE key IN ('', ?)"
SELECT_RANGE: Final = (
    "SELECT * FROM entries WHERE key = '' UNION ALL"
    " SELECT * FROM entries WHERE key > '' AND key >= ? AND key < ?"
)

READ_LOCK: Final = threading.Lock()
"""Held by every read of this process, and by an owner while it opens its file.

SQLite's connections of one process share one mapping of the shared memory, which stays read-only if a reader
made it. Reads of other processes are never in an owner's way.
"""


class _NotNowError(Exception):
    """The file could not be read this time; the next attempt may succeed."""


class _File(NamedTuple):
    """A file's identity and state: `size_bytes` and `modified_ns` change with every write."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int


class _Files(NamedTuple):
    """The database and the files beside it; None if one is missing."""

    database: _File | None
    log: _File | None
    shared_memory: _File | None

    @property
    def is_at_rest(self) -> bool:
        """True if everything is in the database."""
        return self.log is None or (not self.log.size_bytes and self.shared_memory is None)

    def is_unchanged(self, later: "_Files") -> bool:
        """True if rows that were read before `later` count: without locks, no file may have been written to."""
        if self.is_at_rest:
            return self == later
        return [file and file[:2] for file in self] == [file and file[:2] for file in later]


def read_snapshot(
    path: Path, statement: str, parameters: Sequence[object], patience_sec: float
) -> tuple[list[Row], int]:
    """The rows that `statement` selects, in the order of their keys, and their revision. Blocks.

    The statement must also select the row of the revision. Rows that are bound to a lease are omitted unless a
    process owns the file: leases end with it, although the rows stay until the next owner opens the file.

    Raises `StoreRefusedError` if the file is missing, damaged, of another program or of an unknown version, and
    `StoreUnavailableError` if it could not be read within `patience_sec`.
    """
    give_up_at = time.monotonic() + patience_sec
    while True:
        try:
            with READ_LOCK:
                rows = _attempt(path, statement, parameters)
            return _checked(path, rows)
        except _NotNowError as problem:
            if time.monotonic() >= give_up_at:
                raise StoreUnavailableError(str(problem)) from problem
            time.sleep(_PAUSE_SEC)


def _attempt(path: Path, statement: str, parameters: Sequence[object]) -> list[Row]:
    files = _look(path)
    _require_readable(path, files)
    rows: list[Row] = []
    problem: Exception | None = None
    try:
        rows = _select(path, files, statement, parameters)
    except (sqlite3.Error, StartupError) as caught:
        problem = caught
    if not files.is_unchanged(_look(path)):
        raise _NotNowError(f"metadata file {path} changes hands all the time") from problem
    if problem is not None:
        raise _explained(path, problem) from problem
    return rows


def _look(path: Path) -> _Files:
    return _Files(_stat(path), _stat(log_path(path)), _stat(shared_memory_path(path)))


def _stat(path: Path) -> _File | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise StoreRefusedError(f"{path} cannot be read: {problem.strerror or problem}") from problem
    return _File(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _require_readable(path: Path, files: _Files) -> None:
    if files.database is None:
        raise StoreRefusedError(
            f"there is no metadata file {path}: name the data folder of a broker that has run, or the etcd of a"
            " cluster"
        )
    if not files.database.size_bytes:
        raise _NotNowError(f"metadata file {path} is empty: start the broker, which fills it")
    if not files.is_at_rest and files.shared_memory is None:
        raise _NotNowError(
            f"metadata file {path} cannot be read as it is: beside it lies a log without its index, as an older"
            " Kafscale has it or leaves it when it is killed: start a broker of this version once"
        )


def _select(path: Path, files: _Files, statement: str, parameters: Sequence[object]) -> list[Row]:
    how = "immutable=1" if files.is_at_rest else "readonly_shm=1"
    uri = f"{path.as_uri()}?mode=ro&{how}"
    with closing(
        sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_SEC, isolation_level=None)
    ) as connection:
        if is_new(connection, path):
            raise _NotNowError(f"metadata file {path} has nothing in it yet: start the broker")
        rows: list[Row] = connection.execute(statement, parameters).fetchall()
        return rows


def _explained(path: Path, problem: Exception) -> Exception:
    """The error to raise for `problem`."""
    if not isinstance(problem, sqlite3.Error):
        return StoreRefusedError(str(problem))
    if says_corrupt(problem):
        return StoreRefusedError(corrupt_text(path, problem))
    if says_busy(problem):
        text = "another process keeps others out: an older Kafscale, or another program"
    else:
        text = f"{problem}; it and the files beside it must be readable for this user"
    return _NotNowError(f"metadata file {path} cannot be read: {text}")


def _checked(path: Path, rows: list[Row]) -> tuple[list[Row], int]:
    revisions = [row[2] for row in rows if row[0] == REVISION_KEY]
    if len(revisions) != 1 or not isinstance(revisions[0], int):
        raise StoreRefusedError(corrupt_text(path, "the revision is missing"))
    found = [row for row in rows if row[0] != REVISION_KEY]
    for row in found:
        if not is_legal(row, revisions[0]):
            problem = f"key {row[0]!r} is not legal at revision {revisions[0]}"
            raise StoreRefusedError(corrupt_text(path, problem))
    if any(row[3] != NO_LEASE for row in found) and not _is_owned(path):
        found = [row for row in found if row[3] == NO_LEASE]
    return sorted(found), revisions[0]


def _is_owned(path: Path) -> bool:
    try:
        return is_owned(path)
    except OSError as problem:
        raise StoreUnavailableError(
            f"the owner of metadata file {path} cannot be determined: {problem.strerror or problem}"
        ) from problem
