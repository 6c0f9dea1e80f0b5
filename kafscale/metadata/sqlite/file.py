"""The SQLite file of the embedded metadata store: its schema, its checks, one write at a time.

Stored format: docs/format/metadata.md. Everything here blocks and belongs to one thread.
"""

import logging
import os
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from kafscale.errors import StartupError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.sqlite.owner_lock import InUseError, OwnerLock
from kafscale.metadata.sqlite.schema import (
    APPLICATION_ID,
    CREATE_ENTRIES,
    REVISION_KEY,
    VERSION,
    Row,
    corrupt_text,
    is_legal,
    is_new,
    says_busy,
    says_corrupt,
)
from kafscale.metadata.sqlite.snapshot_read import READ_LOCK
from kafscale.metadata.sqlite.write_ahead_log import is_not_empty, log_path, rewrite
from kafscale.metadata.store import NO_LEASE, KeyValue
from kafscale.system import FILE_FLAGS, sync_folder

_PAGE_BYTES = 4096
# A checkpoint is due after about 8 MiB: rare enough to write a busy page once for many changes of it, small
# enough that the next start reads little.
_CHECKPOINT_PAGES = 2048
_MAX_IDLE_WAL_BYTES = 16 * 1024 * 1024
# A checkpoint that a reader has kept from completing is tried again after about 2 MiB.
_PAGES_TO_NEXT_ATTEMPT = 512
# For SQLite's own locks: a reader has them for a moment; an owner that does not know `OwnerLock` keeps them.
_BUSY_TIMEOUT_SEC = 1.0
# Rows in one statement: 4 parameters each must stay under SQLite's 32766, and 999 before SQLite 3.32.
_MAX_ROWS = 128

_log = logging.getLogger(__name__)


def _put_statement(rows: int) -> str:
    # The last parameter is the revision that the file must be at: otherwise the row of the revision becomes
    # NULL, which it may not be, and the statement fails as a whole.
    return (
        f"INSERT INTO entries VALUES {','.join(['(?,?,?,?)'] * rows)} ON CONFLICT(key) DO UPDATE SET"
        " value = excluded.value, lease = excluded.lease, mod_revision ="
        " CASE WHEN excluded.key > '' OR entries.mod_revision = ? THEN excluded.mod_revision END"
    )


def _delete_statement(rows: int) -> str:
    return f"DELETE FROM entries WHERE key IN ({','.join('?' * rows)})"


# Powers of two only, so that every statement is prepared once: the rows are padded with repetitions.
_SIZES = tuple(1 << exponent for exponent in range(_MAX_ROWS.bit_length()))
_PUT = {size: _put_statement(size) for size in _SIZES}
_DELETE = {size: _delete_statement(size) for size in _SIZES}


class SqliteFile:
    """An open metadata file with one owner, which other processes may read (`SqliteReader`).

    The owner is the process that has `OwnerLock`. In case a second one gets past that (the lock's file was
    deleted), every write also compares the revision with the one that this owner wrote last, and fails if they
    differ.

    Raises `StartupError` if the file is in use, corrupt, of another program or of an unknown version.
    After any `sqlite3.Error` from `write` only `reopen` shows what is in the file.
    """

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._path = path.absolute()
        self._log = log_path(self._path)
        self._fsync = fsync
        self._pages_since_checkpoint = 0
        self._written_revision = 0
        self._is_changed_by_others = False
        self._lock = self._own()
        try:
            self._refuse_log_without_file()
            self._connection = self._connect(create=True)
        except BaseException as problem:
            self._lock.close()
            if isinstance(problem, (sqlite3.Error, OSError)):
                raise self._startup_error(problem) from problem
            raise

    def load(self) -> Keyspace:
        """Everything in the file; deletes the keys that were bound to a lease of an earlier process first.

        Raises `StartupError` if the file is corrupt.
        """
        try:
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise self._startup_error(verdict)
            rows: list[Row] = self._connection.execute("SELECT * FROM entries").fetchall()
            revision = self._written_revision = self._revision()
            items = []
            for row in rows:
                key, value, mod_revision, lease = row
                if key != REVISION_KEY:
                    if not is_legal(row, revision):
                        raise self._startup_error(f"key {key!r} is not legal at revision {revision}")
                    items.append(KeyValue(key=key, value=value, mod_revision=mod_revision, lease=lease))
            ended = [item.key for item in items if item.lease != NO_LEASE]
            if ended:
                revision += 1
                self.write(revision, dict.fromkeys(ended))
        except sqlite3.Error as problem:
            raise self._startup_error(problem) from problem
        return Keyspace((item for item in items if item.lease == NO_LEASE), revision)

    def write(self, revision: int, keys: Mapping[str, KeyValue | None]) -> None:
        """Write the keys' values (None: delete the key) and the revision, in one SQLite transaction, durably.

        Every call into SQLite releases the interpreter lock and, while the event loop is busy, waits a whole
        switch interval (5 ms) to get it back. So all puts are one statement, which is its own transaction if
        there is no other statement.
        """
        puts: list[Row] = [(REVISION_KEY, b"", revision, NO_LEASE)]
        deletes = []
        for key, item in keys.items():
            if item is None:
                deletes.append(key)
            else:
                puts.append((key, item.value, item.mod_revision, item.lease))
                self._pages_since_checkpoint += 1 + len(item.value) // _PAGE_BYTES
        self._pages_since_checkpoint += 1 + len(deletes)
        if not deletes and len(puts) <= _MAX_ROWS:
            self._put(puts)
        else:
            self._connection.execute("BEGIN IMMEDIATE")
            for start in range(0, len(deletes), _MAX_ROWS):
                self._delete(deletes[start : start + _MAX_ROWS])
            for start in range(0, len(puts), _MAX_ROWS):
                self._put(puts[start : start + _MAX_ROWS])
            self._connection.execute("COMMIT")
        self._written_revision = revision

    @property
    def checkpoint_is_due(self) -> bool:
        """True if the write-ahead log has grown enough to be copied into the file."""
        return self._pages_since_checkpoint >= _CHECKPOINT_PAGES

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file, so that the next write starts it again. Best-effort.

        A read in progress keeps later pages from being copied: then the log goes on growing.
        """
        self._pages_since_checkpoint = 0
        try:
            busy, logged, copied = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as problem:
            _log.warning("checkpoint of %s failed, it will be tried again: %s", self._path, problem)
            return
        if busy or copied < logged:
            self._pages_since_checkpoint = _CHECKPOINT_PAGES - _PAGES_TO_NEXT_ATTEMPT

    def reopen(self, expected_revision: int) -> int:
        """Open the file again and return the revision in it, which is durable.

        `expected_revision` is the one that is known to be durable. Raises `sqlite3.Error` or `StartupError`
        if the file cannot be read now; then call it again later.
        """
        self._connection.close()
        if self._is_changed_by_others:
            # Even a revision equal to ours may be the other process's.
            raise StartupError("another process has changed it, restart the broker")
        try:
            # A reader that has the file open keeps the log; otherwise it was copied into the file and deleted.
            is_log_kept = is_not_empty(self._log)
            self._connection = self._connect(create=False)
            revision = self._written_revision = self._revision()
            if revision != expected_revision:
                if self._fsync:
                    rewrite(self._log)
            elif is_log_kept:
                self._displace_failed_commit()
        except OSError as problem:
            raise sqlite3.OperationalError(f"{self._log}: {problem.strerror or problem}") from problem
        return revision

    def close(self) -> None:
        """Close the file; copies the write-ahead log into it first.

        SQLite does that by itself, and deletes the log, only if no other process has the file open.
        """
        try:
            with suppress(sqlite3.Error):  # The log stays, and the next owner copies it.
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            self._connection.close()
        finally:
            self._lock.close()

    def _own(self) -> OwnerLock:
        if self._path.is_dir():
            raise StartupError(f"metadata file {self._path} cannot be used: it is a folder")
        try:
            return OwnerLock(self._path)
        except OSError as problem:
            raise self._startup_error(problem) from problem

    def _displace_failed_commit(self) -> None:
        """Make sure that the commit that failed does not take effect later.

        Its pages may be in the log, whole, behind the valid ones, where the next process that opens the file
        first would find them. A commit that changes nothing is written over them.
        """
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.execute(f"PRAGMA user_version = {VERSION}")
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            code = getattr(problem, "sqlite_errorcode", 0)
            if code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE):
                raise
            # A disk without room for this page had none for the failed commit's.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _put(self, rows: list[Row]) -> None:
        size = 1 << (len(rows) - 1).bit_length()
        rows += rows[-1:] * (size - len(rows))
        fields: list[object] = []
        for row in rows:
            fields += row
        fields.append(self._written_revision)
        try:
            self._connection.execute(_PUT[size], fields)
        except sqlite3.IntegrityError:
            self._is_changed_by_others = True
            raise

    def _delete(self, keys: list[str]) -> None:
        size = 1 << (len(keys) - 1).bit_length()
        self._connection.execute(_DELETE[size], keys + keys[-1:] * (size - len(keys)))

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        if create:
            _make_private(self._path)
        uri = f"{self._path.as_uri()}?mode={'rwc' if create else 'rw'}"
        connection = sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_SEC, isolation_level=None)
        try:
            with READ_LOCK:
                # The first access maps the shared memory, for writing.
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if is_new(connection, self._path):
                if not create:
                    raise StartupError(f"metadata file {self._path} is empty now; it was not before")
                self._create(connection)
            (journal_mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal_mode != "wal":
                raise StartupError(f"metadata file {self._path}: SQLite has no write-ahead log here")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'OFF'}")
            # The worker makes checkpoints, after the callers were answered.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_IDLE_WAL_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _refuse_log_without_file(self) -> None:
        """SQLite would delete such a log, and acknowledged transactions with it."""
        if is_not_empty(self._log) and not is_not_empty(self._path):
            raise StartupError(
                f"metadata file {self._path} is missing or empty but {self._log} is there: restore the file"
            )

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(CREATE_ENTRIES)
        connection.execute(_PUT[1], (REVISION_KEY, b"", 0, NO_LEASE, 0))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        if self._fsync:
            sync_folder(self._path.parent)

    def _revision(self) -> int:
        row = self._connection.execute(
            "SELECT mod_revision FROM entries WHERE key = ?", (REVISION_KEY,)
        ).fetchone()
        if row is None or not isinstance(row[0], int):
            raise self._startup_error("the revision is missing")
        return row[0]

    def _startup_error(self, problem: sqlite3.Error | OSError | str) -> StartupError:
        if isinstance(problem, OSError):
            return StartupError(f"metadata file {self._path} cannot be used: {problem.strerror or problem}")
        if isinstance(problem, str) or says_corrupt(problem):
            return StartupError(corrupt_text(self._path, problem))
        if says_busy(problem):
            return InUseError(self._path)
        return StartupError(f"metadata file {self._path} cannot be used: {problem}")


def _make_private(path: Path) -> None:
    """Create the file for its owner only; SQLite gives its log the same mode, and would take both from the umask."""
    # Not opened if it exists: closing it would end the locks that SQLite has on it in this process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | FILE_FLAGS, 0o600))
