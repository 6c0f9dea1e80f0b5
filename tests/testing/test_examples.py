"""The examples of tests: by day with what is installed, by night in an environment of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.project import ROOT
from tests.support.waiting import PATIENCE_SEC
from tests.testing.pytest_run import run_pytest

pytest_plugins = ("pytester",)

EXAMPLES = ROOT / "examples" / "testing"
_INSTALL_SEC = 1200


def test_example_of_confluent_kafka_passes(pytester: pytest.Pytester) -> None:
    shutil.copy(EXAMPLES / "test_confluent.py", pytester.path)
    run_pytest(pytester).assert_outcomes(passed=2)


@pytest.mark.nightly
def test_examples_pass_where_only_kafscale_is_installed(tmp_path: Path) -> None:
    source, examples = tmp_path / "source", tmp_path / "examples"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("kafscale", "spark_jobs", "pyspark_kafscale"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(EXAMPLES, examples, ignore=shutil.ignore_patterns("__pycache__"))
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True, timeout=PATIENCE_SEC)
    python = environment / "bin" / "python"
    packages = (str(source), "pytest", "-r", str(EXAMPLES / "requirements.txt"))
    install = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    subprocess.run(install, check=True, timeout=_INSTALL_SEC)
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "PYTHON"))}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "."],
        cwd=examples,
        env=own,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SEC,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed" in done.stdout
