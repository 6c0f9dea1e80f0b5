"""The plan of `make test`: every test runs in one run, and what failed decides the exit status."""

from pathlib import Path

import pytest
from _pytest.config import ExitCode

from tests.run import Ended, side_by_side, verdict
from tests.schedule import (
    NOT_HERE,
    PROCESSES,
    TESTS,
    TOGETHER,
    WAITING_PROCESSES,
    WITH_PROCESSES,
    WITH_SPARK,
    Run,
    entries,
    halves,
    plan,
)
from tests.support.longest_first import LONGEST, rank


def paths(run: Run) -> list[str]:
    return [Path(one).name for one in run.arguments if one.startswith(str(TESTS))]


def test_every_entry_is_in_exactly_one_run() -> None:
    planned = [name for run in plan(entries()) for name in paths(run)]
    assert sorted([*planned, *NOT_HERE]) == entries()


def test_every_entry_is_in_exactly_one_half() -> None:
    first, second = halves(entries())
    assert sorted(Path(one).name for one in (*first, *second)) == entries()
    assert min(len(first), len(second)) > 10


def test_every_test_file_is_below_an_entry() -> None:
    files = {path.relative_to(TESTS).parts[0] for path in TESTS.rglob("test_*.py")}
    assert files == set(entries())


def test_what_the_plan_names_is_there() -> None:
    assert {*WITH_SPARK, *WITH_PROCESSES, *NOT_HERE} <= set(entries())
    assert all((TESTS.parent / folder).is_dir() for folder in TOGETHER)
    assert set(LONGEST) <= {path.name for path in TESTS.rglob("test_*.py")}


def test_a_new_package_runs_beside_what_is_named() -> None:
    tests, processes, spark = plan(["brand_new", "compat", "spark_jobs", "k8s"])
    assert paths(tests) == ["brand_new"]
    assert paths(processes) == ["compat"]
    assert paths(spark) == ["spark_jobs"]


def test_the_callers_arguments_override_the_plans() -> None:
    for run in plan(["a"], ["-k", "produce", "-m", "nightly"]):
        last = len(run.arguments) - 1 - run.arguments[::-1].index("-m")
        assert run.arguments[last : last + 2] == ("-m", "nightly")
        assert "produce" in run.arguments


@pytest.mark.parametrize("arguments", [["-n", "3"], ["-n3"], ["-k", "a", "-n", "auto"]])
def test_workers_of_xdist_share_no_files_with_one_another(arguments: list[str]) -> None:
    """xdist hands them out itself."""
    assert [run.processes for run in plan(["a", "compat"])] == [PROCESSES, WAITING_PROCESSES]
    assert [run.processes for run in plan(["a", "compat"], arguments)] == [1, 1]


def test_the_longest_files_come_first() -> None:
    names = ["test_other.py", *reversed(LONGEST), "test_another.py"]
    assert sorted(names, key=rank) == [*LONGEST, "test_other.py", "test_another.py"]


@pytest.mark.parametrize(
    ("statuses", "status"),
    [
        ([ExitCode.OK, ExitCode.OK], ExitCode.OK),
        ([ExitCode.OK, ExitCode.NO_TESTS_COLLECTED], ExitCode.OK),
        ([ExitCode.NO_TESTS_COLLECTED] * 2, ExitCode.NO_TESTS_COLLECTED),
        ([ExitCode.OK, ExitCode.TESTS_FAILED], ExitCode.TESTS_FAILED),
        ([ExitCode.OK, -9], -9),
    ],
)
def test_the_first_failure_is_the_verdict(statuses: list[int], status: int) -> None:
    assert verdict(statuses) == status


def test_a_failed_run_names_its_tests() -> None:
    lines = ("x" * 5, "FAILED tests/a.py::test_b - assert", "ERROR tests/c.py", "=== 1 failed")
    assert Ended(ExitCode.TESTS_FAILED, lines).why() == lines[1:3]
    assert Ended(ExitCode.OK, lines).why() == ()


def test_a_broken_run_shows_its_last_lines() -> None:
    lines = tuple(f"line {number}" for number in range(40))
    assert Ended(-9, lines).why() == lines[-15:]


def test_runs_go_on_side_by_side(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each waits for the file that the other one makes."""
    waiting = """
import pathlib, sys, time
def test_it():
    pathlib.Path({own!r}).touch()
    while not pathlib.Path({other!r}).exists():
        time.sleep(0.01)
"""
    runs = []
    for own, other in (("first", "second"), ("second", "first")):
        test = tmp_path / f"test_{own}.py"
        test.write_text(waiting.format(own=str(tmp_path / own), other=str(tmp_path / other)))
        options = (
            "-p",
            "no:cacheprovider",
            "-p",
            "no:randomly",
            "-c",
            "/dev/null",
            "--rootdir",
            str(tmp_path),
        )
        runs.append(Run(own, (*options, str(test))))
    assert [one.status for one in side_by_side(runs)] == [ExitCode.OK, ExitCode.OK]
    shown = capfd.readouterr().out
    assert shown.index("test_first.py") < shown.index("--- second") < shown.index("test_second.py")
