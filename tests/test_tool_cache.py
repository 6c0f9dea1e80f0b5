"""Compiled programs and jars that checkouts share: all or none, and never one that was damaged."""

import os
from pathlib import Path

import pytest

from spark_jobs.jar_set import JarSet
from tests.support import tool_cache
from tests.support.installing import CannotInstallError, install_jars


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


# --- jars


def commands(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java, and a Maven that has two jars for every pom."""
    folder.mkdir()
    (folder / "java").write_text("#!/bin/sh\n")
    (folder / "mvn").write_text(
        "#!/bin/sh\n"
        'for one in "$@"; do case $one in -DoutputDirectory=*) folder=${one#*=} ;; esac; done\n'
        'printf 1 > "$folder/one.jar"; printf 2 > "$folder/two.jar"\n'
    )
    for path in folder.iterdir():
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def jars_of(checkout: Path, pom: str) -> JarSet:
    checkout.mkdir()
    (checkout / "pom.xml").write_text(pom)
    return JarSet(checkout / "pom.xml", checkout / ".tools/jars")


def test_jars_are_taken_by_another_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path / "bin", monkeypatch)
    first, second, other = (jars_of(tmp_path / name, name[:4]) for name in ("pom-1", "pom-2", "else"))
    assert install_jars(first) == "2 jars (0 MB) fetched with Maven"
    assert install_jars(second) == "2 jars copied from the cache"
    assert [path.read_text() for path in second.paths()] == ["1", "2"]
    assert [path.name for path in second.folder.parent.iterdir()] == ["jars"]
    assert install_jars(second) == "there already"
    assert install_jars(other) == "2 jars (0 MB) fetched with Maven", "its pom is another one"


def test_jars_that_cannot_be_had_are_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands(tmp_path / "bin", monkeypatch)
    (tmp_path / "bin/mvn").write_text("#!/bin/sh\necho no such artifact; exit 1\n")
    wanted = jars_of(tmp_path / "checkout", "pom")
    with pytest.raises(CannotInstallError, match="no such artifact"):
        install_jars(wanted)
    assert not list(cache.rglob("*.zip"))
    assert not list(wanted.folder.parent.iterdir())
