"""A pytest plugin (`-p tests.support.shared_files`): processes of pytest share the test files of one run.

Each process gets the same files, and `--share FOLDER`. It takes a file by making its mark in the folder, which only
one of them can, and collects and runs the tests of the files that it took: to collect all of them costs each process
some ten seconds. pytest-xdist does the like with a process that hands tests out and hears of each step: seven
milliseconds of a slow core for each test, twice what a small one takes.

The files of a folder that is in or below a `--together FOLDER` are taken as one and run one after the other: they
share servers, such as a Java program that is slow at first, which every process would have to start.

`FOLDER/now.PID` has the test that a process is in: of one that was killed, nothing else says that.
"""

import contextlib
import itertools
import os
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.longest_first import rank


class Share:
    """This process's part of the files, by marks in a folder that all processes see.

    `together`: folders, as pytest names them.
    """

    def __init__(self, folder: Path, together: Sequence[str] = ()) -> None:
        self._folder = folder
        self._together = tuple(f"{name}/" for name in together)
        self._now = now_file(folder, os.getpid())

    def of(self, files: Sequence[pytest.File]) -> Iterator[list[pytest.File]]:
        """Files that no other process has, one or a whole folder of them; each is taken when it is its turn."""
        units: dict[str, list[pytest.File]] = {}
        for file in files:
            units.setdefault(self._unit_of(file.nodeid), []).append(file)
        for unit, members in units.items():
            if self._takes(unit):
                yield members

    def _unit_of(self, file: str) -> str:
        """The folder or the file that is taken with the file."""
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
def pytest_make_collect_report(collector: pytest.Collector) -> pytest.CollectReport | None:
    """Instead of looking into a file, note it. Its tests are collected when the file is taken."""
    files = collector.session.stash.setdefault(_files, [])
    if not _shares(collector.config) or not isinstance(collector, pytest.File) or collector in files:
        return None
    files.append(collector)
    return pytest.CollectReport(collector.nodeid, "passed", longrepr=None, result=[])


def pytest_report_collectionfinish(config: pytest.Config) -> str:
    """Explain why pytest found no tests."""
    return "each file's tests are collected when it is taken" if _shares(config) else ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """pytest's own loop, over this process's share."""
    config = session.config
    if not _shares(config) or session.testsfailed:
        return None
    share = Share(config.getoption("share"), config.getoption("together"))
    # A fixture of a module is torn down by the next test: the next file is taken before the last test of this one.
    for item, following in itertools.pairwise(itertools.chain(_tests(session, share), [None])):
        assert item is not None
        share.enter(item)
        session.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        _go_on(session)
    return True


_files = pytest.StashKey[list[pytest.File]]()


def _shares(config: pytest.Config) -> bool:
    return config.getoption("share") is not None and not config.getoption("collectonly")


def _tests(session: pytest.Session, share: Share) -> Iterator[pytest.Item]:
    """Of the files that this process takes: longest first, all others in an order by pytest-randomly's seed."""
    files = session.stash[_files]
    seed = session.config.getoption("randomly_seed", None)
    if seed is not None:
        random.Random(seed).shuffle(files)
    files.sort(key=lambda file: rank(file.path.name))
    for taken in share.of(files):
        tests = [test for file in taken for test in session.genitems(file)]
        _go_on(session)  # a file that cannot be collected has failed
        session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=tests)
        session.testscollected += len(tests)
        yield from tests


def _go_on(session: pytest.Session) -> None:
    """Raise what ends pytest's own loop, too."""
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
