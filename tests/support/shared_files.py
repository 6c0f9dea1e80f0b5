"""A pytest plugin (`-p tests.support.shared_files`): processes of pytest share the test files of one run.

Each process gets the same files, and `--share FOLDER`. It takes a file by making its mark in the folder, which only
one of them can, and runs the tests of the files that it took. pytest-xdist does the like with a process that hands
tests out and hears of each step: seven milliseconds of a slow core for each test, twice what a small one takes.

The files of a folder that is in or below a `--together FOLDER` are taken as one and run one after the other: they
share servers, such as a Java program that is slow at first, which every process would have to start.

`FOLDER/PID` has the test that a process is in: of one that was killed, nothing else says that.
"""

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest


class Share:
    """This process's part of the files, by marks in a folder that all processes see.

    `together`: folders, as pytest names them.
    """

    def __init__(self, folder: Path, together: Sequence[str] = ()) -> None:
        self._folder = folder
        self._together = tuple(f"{name}/" for name in together)
        self._now = now_file(folder, os.getpid())

    def of(self, items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
        """The tests of files that no other process has; each file or folder is taken when it is its turn."""
        units: dict[str, list[pytest.Item]] = {}
        for item in items:
            units.setdefault(self._unit_of(item), []).append(item)
        for unit, tests in units.items():
            if self._takes(unit):
                yield from tests

    def _unit_of(self, item: pytest.Item) -> str:
        """The folder or the file that is taken with the test."""
        file = file_of(item)
        return file.rpartition("/")[0] if file.startswith(self._together) else file

    def _takes(self, name: str) -> bool:
        mark = self._folder / name.replace("/", "%")
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
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
    parser.addoption(
        "--together",
        action="append",
        default=[],
        help="of each folder in or below it, one process runs all files",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """pytest's own loop, over this process's share."""
    folder = session.config.getoption("share")
    if folder is None or session.config.getoption("collectonly") or session.testsfailed:
        return None
    share = Share(folder, session.config.getoption("together"))
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
