"""A pytest plugin (`-p tests.support.shared_files`): processes of pytest share the test files of one run.

Each process gets the same files, and `--share FOLDER`. It takes a file by making its mark in the folder, which only
one of them can, and runs the tests of the files that it took. pytest-xdist does the like with a process that hands
tests out and hears of each step: seven milliseconds of a slow core for each test, twice what a small one takes.

`FOLDER/PID` has the test that a process is in: of one that was killed, nothing else says that.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


class Share:
    """This process's part of the files, by marks in a folder that all processes see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._now = now_file(folder, os.getpid())
        self._taken: set[str] = set()

    def of(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        """The tests of files that no other process has; each file is taken when it is its turn."""
        for name, tests in itertools.groupby(items, file_of):
            if self._takes(name):
                yield from tests

    def _takes(self, name: str) -> bool:
        if name in self._taken:  # whoever ordered the tests has torn a file apart
            return True
        mark = self._folder / name.replace("/", "%")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        self._taken.add(name)
        return True

    def enter(self, item: pytest.Item) -> None:
        """This test begins."""
        self._now.write_text(item.nodeid)


def file_of(item: pytest.Item) -> str:
    """The file of the test, as pytest names it."""
    return item.nodeid.partition("::")[0]


def now_file(folder: Path, pid: int) -> Path:
    """Where a process writes which test it is in."""
    return folder / f"now.{pid}"


def last_test(folder: Path, pid: int) -> str:
    """The last test that the process began, empty if there was none."""
    with contextlib.suppress(FileNotFoundError):
        return now_file(folder, pid).read_text()
    return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--share`."""
    parser.addoption(
        "--share", type=Path, help="a folder with marks: run the files that no process marked before"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """pytest's own loop, over this process's share."""
    folder = session.config.getoption("share")
    if folder is None or session.config.getoption("collectonly") or session.testsfailed:
        return None
    share = Share(folder)
    # A fixture of a module is torn down by the next test: the next file is taken before the last test of this one.
    for item, following in itertools.pairwise(itertools.chain(share.of(session.items), [None])):
        assert item is not None
        share.enter(item)
        session.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    return True
