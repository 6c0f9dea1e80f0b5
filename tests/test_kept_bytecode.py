"""Bytecode of one checkout serves another one, where the sources have the same bytes."""

import importlib.util
import marshal
import os
import py_compile
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

from tests.kept_bytecode import HEADER_BYTES, header_for, keep, restore, source_of

TEST = "def test_sum():\n    def two():\n        return 2\n    assert 1 + two() == 4\n"


@pytest.fixture
def first(tmp_path: Path) -> Path:
    """A checkout whose modules have been imported, one of them by pytest."""
    checkout = tmp_path / "first"
    for name, text in {
        "kafscale/a.py": "def f():\n    return __file__\n",
        "kafscale/b.py": "B = 1\n",
        "tests/test_sum.py": TEST,
        ".venv/lib/python3/site-packages/c.py": "C = 1\n",
    }.items():
        path = checkout / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if not name.startswith("tests"):
            py_compile.compile(str(path))
    assert _pytest(checkout).returncode == 1
    return checkout


@pytest.fixture
def second(first: Path, tmp_path: Path) -> Path:
    """A newer checkout of the same, without bytecode."""
    checkout = tmp_path / "second"
    shutil.copytree(first, checkout, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    for source in checkout.rglob("*.py"):
        os.utime(source, (1_700_000_000, 1_700_000_000))
    return checkout


def test_equal_sources_have_their_bytecode(first: Path, second: Path, tmp_path: Path) -> None:
    kept = tmp_path / "cache" / "kept.zip"
    assert keep(first, kept) == 4
    assert restore(second, kept) == (4, 0)
    compiled = list(_compiled(second))
    assert len(compiled) == 4
    for path in compiled:
        content = path.read_bytes()
        assert content[:HEADER_BYTES] == header_for(source_of(path), content)
    spec = importlib.util.spec_from_file_location("kept_a", second / "kafscale/a.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.f.__code__.co_filename == str(second / "kafscale/a.py")


def test_rewritten_assertions_name_the_new_file(first: Path, second: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.zip"
    keep(first, kept)
    restore(second, kept)
    (rewritten,) = (second / "tests").rglob("*.pyc")
    before = rewritten.read_bytes()
    named = {one.co_filename for one in _all_code(marshal.loads(before[HEADER_BYTES:]))}
    assert named == {str(second / "tests/test_sum.py")}
    shown = _pytest(second).stdout
    assert "assert 1 + two() == 4" in shown
    assert "assert (1 + 2) == 4" in shown, "rewritten"
    assert rewritten.read_bytes() == before, "and not once more"


def test_a_changed_source_is_compiled_again(first: Path, second: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.zip"
    keep(first, kept)
    (second / "kafscale/b.py").write_text("B = 2\n")
    (second / ".venv/lib/python3/site-packages/c.py").unlink()
    assert restore(second, kept) == (2, 2)
    assert {source_of(path).name for path in _compiled(second)} == {"a.py", "test_sum.py"}


def test_bytecode_of_an_earlier_source_is_not_kept(first: Path, tmp_path: Path) -> None:
    (first / "kafscale/b.py").write_text("B = 22\n")
    assert keep(first, tmp_path / "kept.zip") == 3


def test_without_an_archive_nothing_is_restored(first: Path, tmp_path: Path) -> None:
    assert restore(first, tmp_path / "none.zip") == (0, 0)


def _compiled(checkout: Path) -> Iterator[Path]:
    return checkout.rglob("*.pyc")


def _all_code(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _all_code(one)


def _pytest(checkout: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "tests"],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
