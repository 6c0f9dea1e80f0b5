"""Processes beside an embedded store: one that is in the middle of a read, one that keeps all others out."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_READ = """
import sqlite3, sys
path, how = sys.argv[1:]
connection = sqlite3.connect(f"file:{path}?mode=ro&{how}", uri=True, isolation_level=None)
connection.execute("BEGIN")
count = "SELECT count(*), max(mod_revision) FROM entries"
print(*connection.execute(count).fetchone(), flush=True)
for line in sys.stdin:
    print(*connection.execute(count).fetchone(), flush=True)
connection.execute("COMMIT")
"""

# What opening the file was before its owner had a lock of its own.
_KEEP_OUT = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
try:
    print(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0], flush=True)
    connection.execute("INSERT INTO entries VALUES ('older', x'', 1, 0)")
    print("written", flush=True)
    sys.stdin.readline()
except sqlite3.OperationalError as problem:
    print(problem, flush=True)
"""


class Beside:
    """A process that has the file open; it continues on request."""

    first = ""

    def __init__(self, program: str, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        """The next line of its output."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def again(self) -> str:
        """Let it look again, in the same transaction; returns what it says."""
        assert self.process.stdin is not None
        self.process.stdin.write("again\n")
        self.process.stdin.flush()
        return self.line()

    def end(self) -> None:
        """Let it end its transaction, and itself."""
        self.process.communicate(timeout=30)


@contextlib.contextmanager
def _running(program: str, *arguments: object) -> Iterator[Beside]:
    beside = Beside(program, *arguments)
    try:
        yield beside
    finally:
        beside.process.kill()
        beside.process.communicate()


@contextlib.contextmanager
def reading(path: Path, how: str = "readonly_shm=1") -> Iterator[Beside]:
    """Somebody is in the middle of a read of the file, which must hold something."""
    with _running(_READ, path, how) as beside:
        beside.first = beside.line()
        assert beside.first, "it could not read"
        yield beside


@contextlib.contextmanager
def older_owner(path: Path) -> Iterator[Beside]:
    """A process opens the file as owners did that excluded all others; `line` shows if that succeeded."""
    with _running(_KEEP_OUT, path) as beside:
        yield beside
