"""Processes that Spark starts, found by who started them (Linux)."""

import contextlib
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """The processes that this one started and that still run."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended meanwhile
            found += [int(child) for child in path.read_text().split()]
    return found


def descendants_of(pid: int) -> list[int]:
    """Its children, theirs, and so on."""
    found = children_of(pid)
    return found + [one for child in found for one in descendants_of(child)]


def command_of(pid: int) -> str:
    """The command line; empty when the process has gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
