"""The lines of Spark that the jobs run with, and Iceberg's jars for each. It needs no package."""

import re
from dataclasses import dataclass
from typing import Final

from kafscale.errors import StartupError


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkLine:
    """A line of Spark such as 4.1. `pom`: the file beside this one that names Iceberg's jars for it.

    `has_data_sources`: whether `format("kafscale")` exists; without it a batch is read by `planned_records`.
    """

    version: str
    pom: str
    has_data_sources: bool


NEWEST: Final = SparkLine(version="4.1", pom="pom.xml", has_data_sources=True)
LINES: Final = (
    SparkLine(version="3.5", pom="pom-spark-3.5.xml", has_data_sources=False),
    SparkLine(version="4.0", pom="pom-spark-4.0.xml", has_data_sources=True),
    NEWEST,
)


def line_of(version: str) -> SparkLine:
    """The line that a version such as 4.0.2 is of. Raises `StartupError` for one that the jobs do not run with."""
    found = re.match(r"(\d+\.\d+)(\.|$)", version)
    for line in LINES:
        if found is not None and found[1] == line.version:
            return line
    known = ", ".join(line.version for line in LINES)
    raise StartupError(f"Spark {version} is not supported: the lake export runs with Spark {known}")


def installed_line() -> SparkLine:
    """The line of the PySpark that this Python imports; the newest if there is none. Raises `StartupError`."""
    try:
        from pyspark.version import __version__ as version
    except ImportError:  # jars are also fetched before PySpark is installed
        return NEWEST
    return line_of(version)
