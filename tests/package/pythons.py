"""The Pythons of this machine that Kafscale supports."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.support.waiting import PATIENCE_SEC

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
OWN = f"{sys.version_info[0]}.{sys.version_info[1]}"


def find_python(version: str) -> Path | None:
    """An interpreter of that version which runs; None if there is none."""
    return next((path for path in _candidates(version) if _version_of(path) == version), None)


def _candidates(version: str) -> Iterator[Path]:
    if version == OWN:
        yield Path(sys.executable)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{version}.*/bin/python"), reverse=True)
    if found := shutil.which(f"python{version}"):
        yield Path(found)


def _version_of(path: Path) -> str | None:
    code = "import sys, venv; print('%d.%d' % sys.version_info[:2])"
    try:
        told = subprocess.run(
            [str(path), "-c", code], capture_output=True, text=True, timeout=PATIENCE_SEC, check=False
        )
    except OSError:
        return None
    return told.stdout.strip() if told.returncode == 0 else None
