"""Spark's settings for files without permissions: Hadoop starts chmod for each file and folder that it creates."""

from pathlib import Path

import pyspark

from tests.support.java import compiled

_SOURCE = Path(__file__).resolve().parents[1] / "java" / "PlainLocalFileSystem.java"


def plain_files() -> dict[str, str]:
    """The class of the file system, and where the driver's JVM finds it."""
    jar = compiled(_SOURCE, libs=Path(pyspark.__file__).parent / "jars")
    return {"spark.hadoop.fs.file.impl": _SOURCE.stem, "spark.driver.extraClassPath": str(jar)}
