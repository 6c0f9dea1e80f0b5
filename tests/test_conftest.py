"""`--no-skips`: continuous integration must not be green because tests were left out."""

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")


def run(folder: Path, test_source: str, *options: str) -> subprocess.CompletedProcess[str]:
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
    return subprocess.run(
        [*command, "-rs"], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )


SKIPPING = "import pytest\ndef test_a(): pass\ndef test_b(): pytest.skip('no kcat here')\n"
SKIPPED_WHOLE = "import pytest\npytest.skip('no kcat here', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("source", "options"), [(SKIPPING, ["-n", "1"]), (SKIPPED_WHOLE, [])], ids=["xdist", "module"]
)
def test_a_skip_fails_the_run_and_its_reason_is_shown(
    tmp_path: Path, source: str, options: list[str]
) -> None:
    finished = run(tmp_path, source, "--no-skips", *options)
    assert finished.returncode == pytest.ExitCode.TESTS_FAILED, finished.stdout
    assert "no kcat here" in finished.stdout
    assert "1 skipped, which --no-skips counts as failure" in finished.stdout


def test_a_skip_is_no_failure_otherwise(tmp_path: Path) -> None:
    assert run(tmp_path, SKIPPING).returncode == pytest.ExitCode.OK


def test_a_run_without_skips_passes(tmp_path: Path) -> None:
    assert run(tmp_path, "def test_a(): pass\n", "--no-skips").returncode == pytest.ExitCode.OK
