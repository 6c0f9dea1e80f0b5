"""Compiled functions are cached for other processes if that is possible, and nothing fails if it is not."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE_SEC

REPOSITORY = Path(__file__).resolve().parents[2]

# Compiles one small function, and says whether it was loaded from what another process kept.
PROGRAM = """
from kafscale.arrow.compiled import compiled
@compiled("int64(int64, int64)")
def add(one, other):
    return one + other
assert add(2, 3) == 5
print(sum(add.stats.cache_hits.values()))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "installed"
    folder.mkdir()
    path = folder / "program.py"
    path.write_text(PROGRAM)
    return path


def run(program: Path, **environment: str) -> int:
    """The number of functions that the process did not have to compile."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    done = subprocess.run(
        [sys.executable, str(program)],
        env=known | {"PYTHONPATH": str(REPOSITORY)} | environment,
        cwd=program.parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SEC,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def closed(program: Path) -> None:
    """Nothing can be written beside the program, nor in the home folder, also by root: files are in the way."""
    (program.parent / "__pycache__").write_text("in the way")


def test_the_next_process_does_not_compile_again(program: Path) -> None:
    assert run(program) == 0
    assert run(program) == 1


@pytest.mark.nightly
def test_in_an_installation_that_cannot_be_written(program: Path, tmp_path: Path) -> None:
    closed(program)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {"HOME": "/dev/null", "TMPDIR": str(temporary)}
    assert run(program, **environment) == 0
    assert run(program, **environment) == 1
    (folder,) = temporary.glob("kafscale-compiled-*")
    assert folder.stat().st_mode & 0o077 == 0
    # Code in a folder that others can write is not run.
    folder.chmod(0o777)
    assert run(program, **environment) == 0
    shutil.rmtree(folder)
    folder.symlink_to(program.parent)
    assert run(program, **environment) == 0


@pytest.mark.nightly
def test_without_a_writable_cache_each_process_compiles(program: Path, tmp_path: Path) -> None:
    closed(program)
    name = f"kafscale-compiled-{os.getuid()}"
    (tmp_path / name).write_text("in the way")
    environment = {"HOME": "/dev/null", "TMPDIR": str(tmp_path)}
    assert run(program, **environment) == 0
    assert run(program, **environment) == 0
