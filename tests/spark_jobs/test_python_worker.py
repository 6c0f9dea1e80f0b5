"""Spark's Python processes save work between tasks, and nothing else changes."""

import gc
import importlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_jobs.source import python_worker
from spark_jobs.source.python_worker import spare_work_between_tasks


def make_archive(path: Path, module: str) -> Path:
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", "")
        archive.writestr(f"{module}/later.py", "VALUE = 7")
    return path


@pytest.fixture(
    params=["python/lib/pyspark.zip", "python/lib/py4j-0.10.9-src.zip", "jars/spark-core_2.13-4.1.1.jar"]
)
def archives(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Path, Path]]:
    """One of Spark's and a user's, both on the path and imported from, in a process that Spark uses again."""
    sparks = make_archive(tmp_path / request.param, "of_sparks_archive")
    users = make_archive(tmp_path / "mine" / "jobs.zip", "of_users_archive")
    monkeypatch.setattr(sys, "path", [str(sparks), str(users), *sys.path])
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(python_worker, "_state", {"is_frozen": False})
    importlib.import_module("of_sparks_archive")
    importlib.import_module("of_users_archive")
    yield sparks, users
    gc.unfreeze()
    for name in [name for name in sys.modules if name.startswith(("of_sparks_archive", "of_users_archive"))]:
        del sys.modules[name]
    for path in [path for path in sys.path_importer_cache if path.startswith(str(tmp_path))]:
        del sys.path_importer_cache[path]


def finders_of(archive: Path) -> list[str]:
    return [path for path in sys.path_importer_cache if path.startswith(str(archive))]


def test_sparks_archive_is_not_read_before_the_next_import(archives: tuple[Path, Path]) -> None:
    sparks, users = archives
    assert finders_of(sparks)
    spare_work_between_tasks()
    assert not finders_of(sparks)
    assert finders_of(users)


def test_imports_from_sparks_archive_go_on(archives: tuple[Path, Path]) -> None:
    spare_work_between_tasks()
    later = importlib.import_module("of_sparks_archive.later")
    assert later.VALUE == 7
    assert str(archives[0]) in str(later.__file__)


def test_what_is_loaded_is_no_longer_looked_at_as_garbage(archives: tuple[Path, Path]) -> None:
    spare_work_between_tasks()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    kept: list[list[int]] = [[] for _ in range(5000)]
    spare_work_between_tasks()
    # What is frozen can only get less: the objects of later tasks stay collectable.
    assert gc.get_freeze_count() <= frozen
    del kept


def test_a_process_that_is_not_sparks_is_left_alone(
    archives: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    before = gc.get_freeze_count()
    spare_work_between_tasks()
    assert finders_of(archives[0])
    assert gc.get_freeze_count() == before
