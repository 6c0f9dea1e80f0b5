"""The time limit of tests: what exceeds it ends the run, and what ends in time does not."""

import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.support.time_limit import TimeLimit
from tests.support.waiting import PATIENCE_SEC

ROOT = Path(__file__).resolve().parents[1]
HANGS = "import threading\ndef test_quick(): pass\ndef test_hangs(): threading.Event().wait()\n"


def test_a_test_that_hangs_ends_the_run_with_its_stack(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(HANGS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.time_limit", "-p", "no:cacheprovider"]
    limits = [
        "-p",
        "no:randomly",
        "-c",
        os.devnull,
        "--rootdir",
        ".",
        "--timeout=1",
        "--timeout-method=thread",
    ]
    finished = subprocess.run(
        [*command, *limits],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )
    assert finished.returncode == 1, finished.stdout
    assert "Timeout" in finished.stdout + finished.stderr
    assert "in test_hangs" in finished.stdout + finished.stderr


def test_a_test_that_has_ended_is_not_late() -> None:
    limit, exceeded, done = TimeLimit(check_sec=0.01), list[str](), threading.Event()
    try:
        limit.begin(PATIENCE_SEC, lambda: exceeded.append("in time"))
        limit.end()
        limit.begin(0.0, done.set)
        assert done.wait(PATIENCE_SEC)
    finally:
        limit.close()
    assert exceeded == []
