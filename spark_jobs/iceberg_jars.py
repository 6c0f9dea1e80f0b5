"""Where Iceberg's jars are named and kept. It needs no package, so that the jars are fetched beside `pip install`."""

import os
from pathlib import Path

from kafscale.errors import StartupError
from spark_jobs.jar_set import JarSet
from spark_jobs.spark_lines import NEWEST, SparkLine, installed_line

_PACKAGE = Path(__file__).resolve().parent


def _tools_folder() -> Path:
    """`.tools` of the checkout; of an installed package, the user's cache."""
    if (_PACKAGE.parent / "pyproject.toml").exists():
        return _PACKAGE.parent / ".tools"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kafscale"


def iceberg_jars(line: SparkLine) -> JarSet:
    """Iceberg's jars for a line of Spark."""
    name = "spark-jars" if line is NEWEST else f"spark-jars-{line.version}"
    return JarSet(_PACKAGE / line.pom, _tools_folder() / name)


def _of_this_python() -> JarSet:
    try:
        return iceberg_jars(installed_line())
    except StartupError:
        return iceberg_jars(NEWEST)  # a session says that this Spark is not supported


ICEBERG = _of_this_python()
"""Iceberg's jars for the installed PySpark, which does not include them: `python -m spark_jobs.jars` fetches them,
`--list` lists them.

Their coordinates are in the pom files beside this file only. Without Maven a session leaves them to Spark itself
(`spark.jars.packages`).
"""
