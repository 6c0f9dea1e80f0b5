"""The marks of a metadata file and its one table. Stored format: docs/format/metadata.md."""

import sqlite3
from pathlib import Path
from typing import Final

from kafscale.errors import StartupError

APPLICATION_ID: Final = 0x4B41464D  # "KAFM"
VERSION: Final = 1

CREATE_ENTRIES: Final = """
CREATE TABLE entries (
    key TEXT NOT NULL PRIMARY KEY,
    value BLOB NOT NULL,
    mod_revision INTEGER NOT NULL,
    lease INTEGER NOT NULL
)
"""
REVISION_KEY: Final = ""
"""No caller's key. Its row has the store's revision, so that one statement writes both."""

Row = tuple[str, bytes, int, int]
"""Key, value, mod_revision, lease."""


def is_new(connection: sqlite3.Connection, path: Path) -> bool:
    """True if the file has no content at all. Raises `StartupError` if it is no metadata file of this version."""
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application_id == version == objects == 0:
        return True
    if application_id != APPLICATION_ID:
        raise StartupError(
            f"{path} is a SQLite file of another program (application id {application_id:#x}, not"
            f" {APPLICATION_ID:#x}): choose another data folder or move the file away"
        )
    if version != VERSION:
        raise StartupError(
            f"metadata file {path} has format version {version}; this program knows {VERSION}:"
            " use the version of Kafscale that wrote it, or a newer one"
        )
    return False


def is_legal(row: tuple[object, ...], revision: int) -> bool:
    """True if a file at this revision may have such a row of a key."""
    key, value, mod_revision, lease = row
    return (
        isinstance(key, str)
        and isinstance(value, bytes)
        and isinstance(mod_revision, int)
        and isinstance(lease, int)
        and 0 < mod_revision <= revision
    )


def says_busy(problem: sqlite3.Error) -> bool:
    """True if the lock of another process is in the way."""
    return _primary_code(problem) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def says_corrupt(problem: sqlite3.Error) -> bool:
    """True if the file is damaged or no database. SQLite has no code for text that is not UTF-8."""
    return _primary_code(problem) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, 0)


def corrupt_text(path: Path, problem: object) -> str:
    """The message for a damaged file."""
    return f"metadata file {path} is corrupt or no metadata file ({problem}): restore it from a backup"


def _primary_code(problem: sqlite3.Error) -> int:
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF
