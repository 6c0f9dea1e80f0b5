"""The environment that tests see, and `--no-skips`: no run is green because tests were left out."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SEC

CONFTEST = Path(__file__).with_name("conftest.py")


def run(folder: Path, test_source: str, *options: str, **settings: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(CONFTEST.read_text())
    (folder / "test_it.py").write_text(test_source)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        *options,
    ]
    # Half of the time that pytest takes to start.
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if "-n" not in options else {}
    return subprocess.run(
        [*command, "-rs"],
        cwd=folder,
        env=os.environ | settings | alone,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SEC,
    )


SKIPPING = "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no kcat here')\n"
SKIPPED_WHOLE = "import pytest\npytest.skip('no kcat here', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("source", "options"),
    [
        pytest.param(SKIPPING, [], id="alone"),
        pytest.param(SKIPPING, ["-n", "1"], id="xdist", marks=pytest.mark.nightly),
        pytest.param(SKIPPED_WHOLE, [], id="module"),
    ],
)
def test_a_skip_fails_the_run_and_its_reason_is_shown(
    tmp_path: Path, source: str, options: list[str]
) -> None:
    finished = run(tmp_path, source, "--no-skips", *options)
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout
    assert "no kcat here" in finished.stdout
    assert "1 skipped, which --no-skips counts as failure" in finished.stdout


@pytest.mark.nightly
def test_a_skip_is_no_failure_otherwise(tmp_path: Path) -> None:
    assert run(tmp_path, SKIPPING).returncode == pytest.ExitCode.OK


def test_a_run_without_skips_passes(tmp_path: Path) -> None:
    assert run(tmp_path, "def test_a(): pass\n", "--no-skips").returncode == pytest.ExitCode.OK


SEEING = """
import os, subprocess, sys
NAMES = ["KAFSCALE_BROKER_ID", "KAFSCALE_LOG_LEVEL", "KAFSCALE_TEST_SEED"]
AT_IMPORT = [name for name in NAMES if name in os.environ]
def test_a():
    ask = [sys.executable, "-c", f"import os; print([name for name in {NAMES} if name in os.environ])"]
    told = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    assert AT_IMPORT == ["KAFSCALE_TEST_SEED"]
    assert told == "['KAFSCALE_TEST_SEED']\\n"
"""


@pytest.mark.parametrize(
    "options",
    [pytest.param([], id="alone"), pytest.param(["-n", "1"], id="xdist", marks=pytest.mark.nightly)],
)
def test_the_callers_settings_are_not_seen(tmp_path: Path, options: list[str]) -> None:
    finished = run(
        tmp_path, SEEING, *options, KAFSCALE_LOG_LEVEL="debug", KAFSCALE_BROKER_ID="7", KAFSCALE_TEST_SEED="4"
    )
    assert finished.returncode == pytest.ExitCode.OK, finished.stdout
