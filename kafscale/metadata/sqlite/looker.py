"""Looks into a metadata file that others may be writing to, and leaves no trace of it.

Theory of operation. SQLite is opened read-only and its shared memory is opened read-only, too: nothing is written
and nobody is kept from writing. A read is one statement, so it sees one revision and lasts no longer than that.
Which files lie beside the database says how it is to be read:

* a log and its shared memory: by SQLite's own rules, with its locks; also when no process has the file open.
* no log, or an empty one: everything is in the database, and nobody is about to change it. It is read without
  any lock, and what was read counts when the files are the same afterwards.
* a log alone: its index is missing, and making one is for an owner.

The connection is kept from one read to the next for as long as the files stay the same ones.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn
from weakref import WeakSet

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

# Of this process. SQLite's connections of one process share one mapping of the shared memory, which stays
# read-only when a connection that may only read has made it.
_lookers: "WeakSet[SqliteLooker]" = WeakSet()
_one_at_a_time = threading.RLock()


@contextmanager
def lookers_step_aside() -> Iterator[None]:
    """For an owner that opens its file in the block: what this process has open to look into files is closed.

    Other processes are never in its way.
    """
    with _one_at_a_time:
        for looker in list(_lookers):
            looker.close()
        yield


class _NotNowError(Exception):
    """It could not be read this time; the next attempt may succeed."""


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it lies there. `size_bytes` and `modified_ns` change when it is written to."""

    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    def is_same(self, other: "_File | None") -> bool:
        """Whether it is the same file, whatever is in it now."""
        return other is not None and (self.device, self.inode) == (other.device, other.inode)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    """The database and what lies beside it."""

    database: _File | None
    log: _File | None
    shared_memory: _File | None

    @property
    def is_at_rest(self) -> bool:
        """Whether everything is in the database."""
        return self.log is None or (not self.log.size_bytes and self.shared_memory is None)

    def allow(self, others: "_Files") -> bool:
        """Whether a connection that was opened to these files may be used on those."""
        if self.is_at_rest:
            return self == others
        mine, theirs = self._together(), others._together()
        return all(one is not None and one.is_same(other) for one, other in zip(mine, theirs, strict=True))

    def _together(self) -> "tuple[_File | None, ...]":
        return (self.database, self.log, self.shared_memory)


class SqliteLooker:
    """Reads rows. Everything here blocks.

    Raises `StoreRefusedError` when the file is not there, damaged, of another program or of an unknown version,
    and `StoreUnavailableError` when it could not be read within `patience_sec`.
    """

    def __init__(self, path: Path, patience_sec: float) -> None:
        self._path = path.absolute()
        self._patience_sec = patience_sec
        self._connection: sqlite3.Connection | None = None
        self._files: _Files | None = None
        with _one_at_a_time:
            _lookers.add(self)

    def read(self, statement: str, parameters: Sequence[object]) -> tuple[list[Row], int]:
        """The rows that the statement selects, in the order of their keys, and the revision they are of.

        The statement selects the row of the revision, too. Rows that are bound to a lease are left out unless
        a process owns the file: leases end with it, although the rows stay until the next one comes.
        """
        give_up_at = time.monotonic() + self._patience_sec
        while True:
            try:
                with _one_at_a_time:
                    rows = self._attempt(statement, parameters)
                break
            except _NotNowError as problem:
                self.close()
                if time.monotonic() >= give_up_at:
                    raise StoreUnavailableError(str(problem)) from problem
                time.sleep(_PAUSE_SEC)
            except BaseException:
                self.close()
                raise
        return self._checked(rows)

    def close(self) -> None:
        """Give back what is open; it is opened again when it is needed."""
        with _one_at_a_time:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _attempt(self, statement: str, parameters: Sequence[object]) -> list[Row]:
        files = self._look()
        try:
            if self._connection is None or self._files is None or not self._files.allow(files):
                self.close()
                self._files = files
                self._connection = self._connect(files)
            rows: list[Row] = self._connection.execute(statement, parameters).fetchall()
        except sqlite3.Error as problem:
            self._raise(problem, files)
        except StartupError as refusal:
            self._check_same(files)
            raise StoreRefusedError(str(refusal)) from refusal
        self._check_same(files)
        return rows

    def _look(self) -> _Files:
        files = self._stat_all()
        if files.database is None:
            raise StoreRefusedError(
                f"there is no metadata file {self._path}: name the data folder of a broker that has run, or the"
                " etcd of a cluster"
            )
        if not files.database.size_bytes:
            raise _NotNowError(f"metadata file {self._path} is empty: start the broker, which fills it")
        if not files.is_at_rest and files.shared_memory is None:
            raise _NotNowError(
                f"metadata file {self._path} cannot be read as it is: beside it lies a log without its index, as"
                " an older Kafscale has it or leaves it when it is killed: start a broker of this version once"
            )
        return files

    def _stat_all(self) -> _Files:
        return _Files(
            database=self._stat(self._path),
            log=self._stat(log_path(self._path)),
            shared_memory=self._stat(shared_memory_path(self._path)),
        )

    def _stat(self, path: Path) -> _File | None:
        try:
            found = os.stat(path)
        except FileNotFoundError:
            return None
        except OSError as problem:
            raise StoreRefusedError(f"{path} cannot be read: {problem.strerror or problem}") from problem
        return _File(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)

    def _connect(self, files: _Files) -> sqlite3.Connection:
        how = "immutable=1" if files.is_at_rest else "readonly_shm=1"
        uri = f"{self._path.as_uri()}?mode=ro&{how}"
        # Not of one thread only: `lookers_step_aside` closes it from the owner's.
        connection = sqlite3.connect(
            uri, uri=True, timeout=_BUSY_TIMEOUT_SEC, isolation_level=None, check_same_thread=False
        )
        try:
            if is_new(connection, self._path):
                raise _NotNowError(f"metadata file {self._path} has nothing in it yet: start the broker")
        except BaseException:
            connection.close()
            raise
        return connection

    def _raise(self, problem: sqlite3.Error, files: _Files) -> NoReturn:
        self._check_same(files)
        if says_corrupt(problem):
            raise StoreRefusedError(corrupt_text(self._path, problem)) from problem
        if says_busy(problem):
            text = "another process keeps others out: an older Kafscale, or another program"
        else:
            text = f"{problem}; it and the files beside it must be readable for this user"
        raise _NotNowError(f"metadata file {self._path} cannot be read: {text}") from problem

    def _check_same(self, files: _Files) -> None:
        """What was read, or went wrong, means nothing when the files are others by now."""
        if not files.allow(self._stat_all()):
            raise _NotNowError(f"metadata file {self._path} changes hands all the time")

    def _checked(self, rows: list[Row]) -> tuple[list[Row], int]:
        revisions = [row[2] for row in rows if row[0] == REVISION_KEY]
        if len(revisions) != 1 or not isinstance(revisions[0], int):
            raise StoreRefusedError(corrupt_text(self._path, "the revision is missing"))
        found = [row for row in rows if row[0] != REVISION_KEY]
        for row in found:
            if not is_legal(row, revisions[0]):
                problem = f"key {row[0]!r} is not legal at revision {revisions[0]}"
                raise StoreRefusedError(corrupt_text(self._path, problem))
        if any(row[3] != NO_LEASE for row in found) and not self._is_owned():
            found = [row for row in found if row[3] == NO_LEASE]
        return sorted(found), revisions[0]

    def _is_owned(self) -> bool:
        try:
            return is_owned(self._path)
        except OSError as problem:
            raise StoreUnavailableError(
                f"who owns metadata file {self._path} cannot be told: {problem.strerror or problem}"
            ) from problem
