"""Spark finds `format("kafscale")` by itself: it looks for packages of a certain name."""

import fnmatch
import pkgutil
import tomllib
from importlib import import_module
from pathlib import Path

from pyspark.sql.datasource import DataSource

ROOT = Path(__file__).resolve().parents[2]


def test_there_is_a_package_of_the_name_that_spark_looks_for() -> None:
    found = [one.name for one in pkgutil.iter_modules([str(ROOT)]) if one.name.startswith("pyspark_")]
    sources = [import_module(name).DefaultSource for name in found]
    assert all(issubclass(source, DataSource) for source in sources)
    assert [source.name() for source in sources] == ["kafscale"]


def test_it_is_installed_with_the_rest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    installed = project["tool"]["setuptools"]["packages"]["find"]["include"]
    assert any(fnmatch.fnmatch("pyspark_kafscale", pattern) for pattern in installed)
