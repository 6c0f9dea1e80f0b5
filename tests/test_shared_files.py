"""Processes of pytest share the files of a run: each test runs once, and fixtures end where they should."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest
from _pytest.config import ExitCode

from tests.run import Ended, counted, side_by_side, verdict
from tests.schedule import Run
from tests.support.shared_files import Share, last_test, now_file

PLAIN = ("-p", "tests.support.shared_files", "-p", "no:cacheprovider", "-c", os.devnull)
NOTED = """
import pathlib, pytest, time
HERE = pathlib.Path(__file__).parent
def note(what):
    with (HERE / "noted").open("a") as noted:
        noted.write(what + chr(10))
@pytest.fixture(scope="module", autouse=True)
def module():
    yield
    note("end of {name}")
@pytest.mark.parametrize("n", range(3))
def test_it(n):
    note("{name} %d" % n)
"""
MEETING = """
    (HERE / "{own}").touch()
    while not (HERE / "{other}").exists():
        time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def _no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the time that pytest takes to start."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def run_in(folder: Path, processes: int = 2) -> list[Ended]:
    arguments = (*PLAIN, "--rootdir", str(folder), str(folder))
    return side_by_side([Run("shared", arguments, processes)])


def test_each_file_runs_once_and_both_processes_run_some(tmp_path: Path) -> None:
    """The first two files wait for one another; the rest goes to whoever is free."""
    for name, more in (("a", MEETING.format(own="1", other="2")), ("b", MEETING.format(own="2", other="1"))):
        (tmp_path / f"test_{name}.py").write_text(NOTED.format(name=name) + more)
    for name in "cdefg":
        (tmp_path / f"test_{name}.py").write_text(NOTED.format(name=name))
    ended = run_in(tmp_path)
    assert [one.status for one in ended] == [ExitCode.OK, ExitCode.OK]
    assert counted(ended) == "21 passed"
    noted = (tmp_path / "noted").read_text().splitlines()
    assert sorted(noted) == sorted(
        [f"{name} {n}" for name in "abcdefg" for n in range(3)] + [f"end of {name}" for name in "abcdefg"]
    )
    for name in "abcdefg":  # a module ends after its last test
        assert noted.index(f"end of {name}") > max(noted.index(f"{name} {n}") for n in range(3))


@pytest.mark.nightly
def test_a_failure_is_that_of_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_it(): assert False")
    (tmp_path / "test_b.py").write_text("def test_it(): pass")
    ended = run_in(tmp_path)
    assert verdict([one.status for one in ended]) == ExitCode.TESTS_FAILED
    assert counted(ended) == "1 passed, 1 failed"
    (why,) = (line for one in ended for line in one.why())
    assert why.startswith("FAILED ") and "test_a.py::test_it" in why


@pytest.mark.nightly
def test_the_first_failure_ends_a_process_that_is_told_so(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_one(): assert False\ndef test_two(): pass")
    arguments = (*PLAIN, "-x", "--rootdir", str(tmp_path), str(tmp_path))
    assert counted(side_by_side([Run("shared", arguments, 2)])) == "1 failed"


@pytest.mark.nightly
def test_a_killed_process_names_the_test_it_was_in(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import os\ndef test_fine(): pass\ndef test_deadly(): os.kill(os.getpid(), 9)"
    )
    ended = run_in(tmp_path)
    (killed,) = [one for one in ended if one.status == -signal.SIGKILL]
    assert killed.why()[-1] == "ended with status -9 in test_a.py::test_deadly"


@pytest.mark.nightly
def test_a_broken_file_fails_and_the_others_run(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("import not_there")
    (tmp_path / "test_b.py").write_text("def test_it(): pass")
    ended = run_in(tmp_path)
    assert verdict([one.status for one in ended]) == ExitCode.TESTS_FAILED
    (why,) = (line for one in ended if one.status == ExitCode.TESTS_FAILED for line in one.why())
    assert why.startswith("ERROR ") and why.endswith("/test_a.py")
    assert counted(ended) in ("1 passed, 1 error", "1 passed, 1 errors")


@pytest.mark.nightly
def test_a_broken_conftest_ends_the_run_before_it_begins(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("import not_there")
    (tmp_path / "test_a.py").write_text("def test_it(): pass")
    ended = run_in(tmp_path)
    assert [one.status for one in ended] == [ExitCode.USAGE_ERROR] * 2
    assert not any("1 passed" in line for one in ended for line in one.lines)


def test_a_file_is_imported_by_the_process_that_takes_it(tmp_path: Path) -> None:
    imported = "import pathlib; pathlib.Path(__file__).with_suffix('.imported').open('x')\n"
    for name in "abcd":
        (tmp_path / f"test_{name}.py").write_text(imported + "def test_good(): pass\ndef test_bad(): pass")
    ended = side_by_side(
        [Run("shared", (*PLAIN, "-k", "good", "--rootdir", str(tmp_path), str(tmp_path)), processes=2)]
    )
    assert counted(ended) == "4 passed"  # a second import would have failed
    assert verdict([one.status for one in ended]) == ExitCode.OK


@pytest.mark.nightly
def test_a_choice_that_leaves_nothing_is_said(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_it(): pass")
    arguments = (*PLAIN, "-k", "other", "--rootdir", str(tmp_path), str(tmp_path))
    ended = side_by_side([Run("shared", arguments, processes=2)])
    assert [one.status for one in ended] == [ExitCode.NO_TESTS_COLLECTED] * 2


@dataclass(eq=False)
class File:
    """A file of tests, as far as the share looks at it."""

    nodeid: str


def test_files_of_a_folder_stay_together(tmp_path: Path) -> None:
    names = ("d/a.py", "e/a.py", "d/f/a.py", "d/b.py", "d/f/b.py", "e/b.py", "de/a.py")
    files = [cast(pytest.File, File(name)) for name in names]
    taken = Share(tmp_path, ["d"]).of(files)
    assert [file.nodeid for file in next(taken)] == ["d/a.py", "d/b.py"]
    others = [[file.nodeid for file in unit] for unit in Share(tmp_path, ["d"]).of(files)]
    assert others == [["e/a.py"], ["d/f/a.py", "d/f/b.py"], ["e/b.py"], ["de/a.py"]]
    assert not list(taken)


def test_the_last_test_is_read_by_the_number_of_the_process(tmp_path: Path) -> None:
    assert last_test(tmp_path, 12) == ""
    now_file(tmp_path, 12).write_text("test_a.py::test_b")
    assert last_test(tmp_path, 12) == "test_a.py::test_b"


def test_a_late_process_takes_files_when_the_last_run_has_ended(tmp_path: Path) -> None:
    """Three files wait for one another: two processes alone would never end."""
    shared, single = tmp_path / "shared", tmp_path / "single"
    for folder in (shared, single):
        folder.mkdir()
    for own in "abc":
        meetings = (MEETING.format(own=own, other=other) for other in "abc" if other != own)
        (shared / f"test_{own}.py").write_text(NOTED.format(name=own) + "".join(meetings))
    (single / "test_it.py").write_text("def test_it(): pass")
    runs = [
        Run("shared", (*PLAIN, "--rootdir", str(shared), str(shared)), 2, has_late=True),
        Run("single", (*PLAIN, "--rootdir", str(single), str(single))),
    ]
    assert counted(side_by_side(runs)) == "10 passed"
