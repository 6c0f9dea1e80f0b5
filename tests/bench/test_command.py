"""`python -m bench`: what it lists, prints and writes down."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.__main__ import main
from bench.goals import GOALS
from bench.workloads.registry import WORKLOADS
from tests.support.waiting import PATIENCE_SEC


def test_list_shows_time_and_driver_limit_of_each_workload() -> None:
    told = CliRunner().invoke(main, ["--list"], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    for workload in WORKLOADS.values():
        assert f"\n{workload.name} " in f"\n{told.output}"
        assert f"limited by {workload.limited_by}" in told.output


@pytest.mark.nightly
def test_a_run_prints_tables_and_times_and_writes_every_value(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    arguments = ["--quick", "--repeat", "1", "--only", "tiny", "--peer", "noop"]
    places = ["--work-dir", str(tmp_path), "--json", str(path)]
    told = CliRunner().invoke(main, [*arguments, *places], catch_exceptions=False)
    assert told.exit_code == 0, told.output
    assert "tiny requests, raw frames" in told.output
    assert all(goal.name in told.output for goal in GOALS)
    assert " minutes: tiny " in told.output
    written = json.loads(path.read_text())
    assert written["about"]["failures"] == written["about"]["to_reach"] == []
    assert list(written["about"]["seconds"]) == list(written["about"]["expected_seconds"]) == ["tiny"]
    rows = {(one["peer"], one["workload"], one["metric"]) for one in written["measurements"]}
    assert ("noop", "tiny requests, raw frames", "requests/s") in rows


@pytest.mark.nightly
def test_interrupted_run_reports_results_and_cleans_up(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    work_dir = tmp_path / "work"
    work_dir.mkdir()
    command = [
        sys.executable,
        "-m",
        "bench",
        "--quick",
        "--only",
        "partitions",
        "--standing",
        "0",
        "--peer",
        "kafscale",
    ]
    places = ["--work-dir", str(work_dir), "--json", str(path)]
    with subprocess.Popen(
        [*command, *places], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as told:
        assert told.stderr is not None
        while "resident MB" not in told.stderr.readline():
            assert told.poll() is None, "it ended before it was told to"
        told.send_signal(signal.SIGTERM)
        output, _ = told.communicate(timeout=PATIENCE_SEC)
    assert told.returncode == 0
    assert "FAILED interrupted" in output
    assert any(one["metric"] == "resident MB" for one in json.loads(path.read_text())["measurements"])
    assert list(work_dir.iterdir()) == []
