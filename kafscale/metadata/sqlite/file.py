"""The SQLite file of the embedded metadata store: its schema, its checks, one write at a time.

Stored format: docs/format/metadata.md. Everything here blocks and belongs to one thread.
"""

import logging
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafscale.errors import StartupError
from kafscale.metadata.keyspace import Keyspace
from kafscale.metadata.store import NO_LEASE, KeyValue

APPLICATION_ID = 0x4B41464D  # "KAFM"
VERSION = 1

_PAGE_BYTES = 4096
# A checkpoint is due after about 8 MiB: rare enough to write a busy page once for many changes of it, small
# enough that the next start reads little.
_CHECKPOINT_PAGES = 2048
_MAX_IDLE_WAL_BYTES = 16 * 1024 * 1024
# Rows in one statement: 4 parameters each must stay under SQLite's 32766, and 999 before SQLite 3.32.
_MAX_ROWS = 128

_CREATE = """
CREATE TABLE entries (
    key TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    mod_revision INTEGER NOT NULL,
    lease INTEGER NOT NULL
)
"""
# The empty key is legal for no caller; its row holds the store's revision, so that one statement writes both.
_REVISION_KEY = ""

_log = logging.getLogger(__name__)


def _put_statement(rows: int) -> str:
    return (
        f"INSERT INTO entries VALUES {','.join(['(?,?,?,?)'] * rows)} ON CONFLICT(key) DO UPDATE"
        " SET value = excluded.value, mod_revision = excluded.mod_revision, lease = excluded.lease"
    )


def _delete_statement(rows: int) -> str:
    return f"DELETE FROM entries WHERE key IN ({','.join('?' * rows)})"


# Powers of two only, so that every statement is prepared once: the rows are padded with repetitions.
_SIZES = tuple(1 << exponent for exponent in range(_MAX_ROWS.bit_length()))
_PUT = {size: _put_statement(size) for size in _SIZES}
_DELETE = {size: _delete_statement(size) for size in _SIZES}

_Row = tuple[str, bytes, int, int]


class SqliteFile:
    """An open metadata file, held exclusively.

    Raises `StartupError` when the file is in use, corrupt, of another program or of an unknown version.
    After any `sqlite3.Error` from `write` only `reopen` says what is in the file.
    """

    def __init__(self, path: Path, *, fsync: bool) -> None:
        self._path = path.absolute()
        self._fsync = fsync
        self._pages_since_checkpoint = 0
        _refuse_wal_without_file(self._path)
        try:
            self._connection = self._connect(create=True)
        except sqlite3.Error as problem:
            raise self._startup_error(problem) from problem

    def load(self) -> Keyspace:
        """Everything in the file, once keys that were bound to a lease of an earlier process are removed.

        Raises `StartupError` when the file is corrupt.
        """
        try:
            (verdict,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise self._startup_error(verdict)
            rows: list[_Row] = self._connection.execute("SELECT * FROM entries").fetchall()
            items = [
                KeyValue(key=key, value=value, mod_revision=mod_revision, lease=lease)
                for key, value, mod_revision, lease in rows
                if key != _REVISION_KEY
            ]
            revision = self._revision()
            self._check(items, revision)
            ended = [item.key for item in items if item.lease != NO_LEASE]
            if ended:
                revision += 1
                self.write(revision, dict.fromkeys(ended))
        except sqlite3.Error as problem:
            raise self._startup_error(problem) from problem
        return Keyspace((item for item in items if item.lease == NO_LEASE), revision)

    def write(self, revision: int, keys: Mapping[str, KeyValue | None]) -> None:
        """Write what the keys hold (None: nothing) and the revision, in one SQLite transaction, durably.

        Every call into SQLite gives the interpreter lock away and, while the event loop is busy, waits a
        whole switch interval (5 ms) to get it back. So all puts are one statement, which, when it is alone,
        is its own transaction.
        """
        puts: list[_Row] = []
        deletes = []
        for key, item in keys.items():
            if item is None:
                deletes.append(key)
            else:
                puts.append((key, item.value, item.mod_revision, item.lease))
                self._pages_since_checkpoint += 1 + len(item.value) // _PAGE_BYTES
        puts.append((_REVISION_KEY, b"", revision, NO_LEASE))
        self._pages_since_checkpoint += 1 + len(deletes)
        if not deletes and len(puts) <= _MAX_ROWS:
            self._put(puts)
            return
        self._connection.execute("BEGIN IMMEDIATE")
        for start in range(0, len(deletes), _MAX_ROWS):
            self._delete(deletes[start : start + _MAX_ROWS])
        for start in range(0, len(puts), _MAX_ROWS):
            self._put(puts[start : start + _MAX_ROWS])
        self._connection.execute("COMMIT")

    @property
    def checkpoint_is_due(self) -> bool:
        """Whether the write-ahead log has grown enough to be copied into the file."""
        return self._pages_since_checkpoint >= _CHECKPOINT_PAGES

    def checkpoint(self) -> None:
        """Copy the write-ahead log into the file: the next write begins it anew. It may fail harmlessly."""
        self._pages_since_checkpoint = 0
        try:
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except sqlite3.Error as problem:
            _log.warning("checkpoint of %s failed, it will be tried again: %s", self._path, problem)

    def reopen(self, expected_revision: int) -> int:
        """Open the file again and return the revision in it, which is durable.

        `expected_revision` is the one that is known to be durable. Raises `sqlite3.Error` or `StartupError`
        when the file cannot be read now; then this may be called again.
        """
        self._connection.close()
        self._connection = self._connect(create=False)
        revision = self._revision()
        if revision != expected_revision:
            # The commit is in the log, but its fsync has failed, and the kernel may have marked the pages as
            # clean all the same. So copy them into the file, whose fsync covers what is written now.
            busy, _, _ = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise sqlite3.OperationalError("the write-ahead log could not be copied into the file")
        return revision

    def close(self) -> None:
        """Close the file; copies the write-ahead log into it first."""
        self._connection.close()

    def _put(self, rows: list[_Row]) -> None:
        size = 1 << (len(rows) - 1).bit_length()
        rows += rows[-1:] * (size - len(rows))
        self._connection.execute(_PUT[size], [field for row in rows for field in row])

    def _delete(self, keys: list[str]) -> None:
        size = 1 << (len(keys) - 1).bit_length()
        self._connection.execute(_DELETE[size], keys + keys[-1:] * (size - len(keys)))

    def _connect(self, *, create: bool) -> sqlite3.Connection:
        uri = f"{self._path.as_uri()}?mode={'rwc' if create else 'rw'}"
        connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)
        try:
            # Exclusive before the first access: no other process gets in from the first read on, and no shared
            # memory is needed.
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            if self._is_new(connection):
                if not create:
                    raise StartupError(f"metadata file {self._path} is empty now; it was not before")
                self._create(connection)
            (journal_mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if journal_mode != "wal":
                raise StartupError(f"metadata file {self._path}: SQLite has no write-ahead log here")
            connection.execute(f"PRAGMA synchronous = {'FULL' if self._fsync else 'OFF'}")
            # Checkpoints are the worker's, after the callers were answered.
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {_MAX_IDLE_WAL_BYTES}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        """Whether the file has nothing in it at all; raises `StartupError` when it is not ours."""
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if application_id == version == objects == 0:
            return True
        if application_id != APPLICATION_ID:
            raise StartupError(
                f"{self._path} is a SQLite file of another program (application id {application_id:#x}, not"
                f" {APPLICATION_ID:#x}): choose another data folder or move the file away"
            )
        if version != VERSION:
            raise StartupError(
                f"metadata file {self._path} has format version {version}; this program knows {VERSION}:"
                " use the version of Kafscale that wrote it, or a newer one"
            )
        return False

    def _create(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute(_CREATE)
        connection.execute(_PUT[1], (_REVISION_KEY, b"", 0, NO_LEASE))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        if self._fsync:
            _fsync_folder(self._path.parent)

    def _revision(self) -> int:
        row = self._connection.execute(
            "SELECT mod_revision FROM entries WHERE key = ?", (_REVISION_KEY,)
        ).fetchone()
        if row is None or not isinstance(row[0], int):
            raise self._startup_error("the revision is missing")
        return row[0]

    def _check(self, items: Sequence[KeyValue], revision: int) -> None:
        for item in items:
            if not (
                isinstance(item.key, str)
                and isinstance(item.value, bytes)
                and isinstance(item.mod_revision, int)
                and isinstance(item.lease, int)
                and 0 < item.mod_revision <= revision
            ):
                raise self._startup_error(f"key {item.key!r} is not legal at revision {revision}")

    def _startup_error(self, problem: sqlite3.Error | str) -> StartupError:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StartupError(
                f"metadata file {self._path} is in use by another process: stop that one first"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, 0):
            return StartupError(
                f"metadata file {self._path} is corrupt or no metadata file ({problem}):"
                " restore it from a backup"
            )
        return StartupError(f"metadata file {self._path} cannot be used: {problem}")


def _refuse_wal_without_file(path: Path) -> None:
    """SQLite would delete such a log, and with it what was acknowledged."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size and not (path.exists() and path.stat().st_size):
        raise StartupError(f"metadata file {path} is missing or empty but {log} is there: restore the file")


def _fsync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
