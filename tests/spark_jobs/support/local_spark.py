"""One small Spark in this process, with Iceberg, that leaves no process and no file when it ends."""

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest import mock

from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.spark_jobs.support.plain_files import plain_files
from tests.support.java import UNVERIFIED
from tests.support.spark_install import spark_libs
from tests.support.waiting import PATIENCE_SEC

CORES = 2
MEMORY = "1g"
EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


def spark_settings(folder: Path) -> dict[str, str]:
    """For a Spark that keeps everything below `folder`."""
    temporary = folder / "tmp"
    return {
        "spark.jars": ",".join(str(jar) for jar in spark_libs()),
        "spark.sql.extensions": EXTENSIONS,
        "spark.driver.memory": MEMORY,
        # A JVM for minutes: compile little, and throw nothing of it away; collect simply; believe the compiler of its
        # 26,000 classes, which takes a tenth of a small run. What it unpacks goes where the rest goes.
        "spark.driver.extraJavaOptions": (
            "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:-UsePerfData"
            f" {' '.join(UNVERIFIED)} -Djava.io.tmpdir={temporary}"
            f" -Dorg.sqlite.tmpdir={temporary} -Dderby.system.home={temporary}"
        ),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "sql-warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        **plain_files(),
        "spark.python.authenticate.socketTimeout": f"{PATIENCE_SEC:.0f}s",
    }


@contextlib.contextmanager
def local_spark(folder: Path, more: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session over a JVM of its own; both are gone after the block."""
    for part in ("tmp", "local", "sql-warehouse"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("kafscale-tests")
    for name, value in {**spark_settings(folder), **more}.items():
        builder = builder.config(name, value)
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}):
        os.environ.pop("SPARK_HOME", None)
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()
            _end_jvm()


def _end_jvm() -> None:
    """Spark's own `stop` leaves the JVM running for a next session."""
    gateway = SparkContext._gateway
    assert gateway is not None
    process = gateway.proc
    with contextlib.suppress(OSError):
        gateway.shutdown()
    # It waits for the end of its standard input and then ends.
    process.stdin.close()
    process.wait(PATIENCE_SEC)
    SparkContext._gateway = None
    SparkContext._jvm = None
