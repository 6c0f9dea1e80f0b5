"""Compiled programs that checkouts share: all or none, and never one that was damaged."""

from pathlib import Path

import pytest

from tests.support import tool_cache


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    """A folder with two programs that were just compiled."""
    folder = tmp_path / "built"
    folder.mkdir()
    for name in ("one", "two"):
        (folder / name).write_text(f"program {name}")
        (folder / name).chmod(0o755)
    return folder


def test_kept_programs_are_taken_by_another_checkout(built: Path, tmp_path: Path) -> None:
    tool_cache.keep(["one", "two"], "v1", built)
    assert tool_cache.take(["one", "two"], "v1", tmp_path / "other")
    assert (tmp_path / "other/two").read_text() == "program two"
    assert (tmp_path / "other/two").stat().st_mode & 0o111
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == ["one", "two"]


def test_another_version_is_not_taken(built: Path, tmp_path: Path) -> None:
    tool_cache.keep(["one"], "v1", built)
    assert not tool_cache.take(["one"], "v2", tmp_path / "other")


def test_programs_are_taken_together_or_not_at_all(built: Path, tmp_path: Path) -> None:
    tool_cache.keep(["one"], "v1", built)
    assert not tool_cache.take(["one", "two"], "v1", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_damaged_program_is_not_taken(built: Path, cache: Path, tmp_path: Path) -> None:
    tool_cache.keep(["one"], "v1", built)
    [kept] = cache.rglob("one")
    kept.write_text("program onE")
    assert not tool_cache.take(["one"], "v1", tmp_path / "other")


def test_a_cache_that_cannot_be_written_is_no_failure(
    built: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache.write_text("a file where the folder should be")
    tool_cache.keep(["one"], "v1", built)
    assert "not kept" in capsys.readouterr().out
