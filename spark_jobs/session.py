"""Opens the Spark session of a job: in a JVM that this process starts, or in the one that spark-submit has started.

Values that Spark's configuration already has (spark-submit's options, spark-defaults.conf, `--conf`) never change;
the others get defaults for a job that one command starts: all cores, Iceberg, UTC, no web page, a quiet log.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from kafscale.errors import SettingError, StartupError
from spark_jobs.catalogs import Catalog
from spark_jobs.jar_set import check_java
from spark_jobs.jars import ICEBERG, jar_configuration
from spark_jobs.session_options import SessionOptions
from spark_jobs.source.open_source import register_source
from spark_jobs.spark_lines import line_of

EXTENSIONS: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
_ICEBERG_CLASS: Final = "org.apache.iceberg.spark.SparkCatalog"
_LOG_CONFIGURATION: Final = Path(__file__).resolve().with_name("log4j2.properties")
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LAUNCHER_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_READ_AT_START: Final = (
    "spark.jars", "spark.jars.packages", "spark.driver.memory", "spark.driver.extraClassPath", _JVM_OPTIONS,
)  # fmt: skip
_NAME_OF_NONE: Final = "pyspark-shell"


def open_session(options: SessionOptions) -> SparkSession:
    """The active session or a new one, with the catalogs and with `format("kafscale")`.

    Raises `StartupError` if Spark cannot start here, `SettingError` for options that contradict Spark's configuration
    and for a catalog that is not defined.
    """
    line_of(pyspark.__version__)
    session = SparkSession.getActiveSession()
    if session is None:
        session = _new_session(options)
    elif not _knows_iceberg(session.sparkContext._jvm):
        raise StartupError(
            "the existing Spark session has no Iceberg: start it with "
            f"--packages {','.join(ICEBERG.coordinates())}"
        )
    for catalog in options.catalogs:
        _add_catalog(session, catalog)
    register_source(session)
    return session


def _new_session(options: SessionOptions) -> SparkSession:
    if os.environ.get("SPARK_REMOTE"):
        raise StartupError("SPARK_REMOTE is set, and jobs cannot run over Spark Connect: unset it")
    if SparkContext._gateway is None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        _start_jvm(options)
        configured = dict(SparkConf().getAll())
    else:
        SparkContext._ensure_initialized()
        configured = dict(SparkConf().getAll())
        _check_submitted(options, configured)
    conf = {**_defaults(options, configured), **options.conf}
    # Options of a running JVM stay as they are.
    conf = {key: value for key, value in conf.items() if key not in configured}
    if configured.get("spark.app.name", _NAME_OF_NONE) == _NAME_OF_NONE:
        conf.setdefault("spark.app.name", options.app_name)
    extensions = options.conf.get("spark.sql.extensions") or configured.get("spark.sql.extensions")
    conf["spark.sql.extensions"] = _joined(extensions, EXTENSIONS)
    if not _knows_iceberg(SparkContext._jvm):
        _add_iceberg(SparkContext._jvm)
        conf["spark.jars"] = _joined(configured.get("spark.jars"), jar_configuration()["spark.jars"])
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def _start_jvm(options: SessionOptions) -> None:
    """Start a JVM with the options that only its start can set: jars, memory, logging."""
    check_java()
    # The workers have to find this package and its libraries.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    _quieten_log()
    try:
        SparkContext._ensure_initialized(conf=_launch_conf(options))
    except PySparkRuntimeError as problem:
        raise StartupError(
            "Spark's JVM ended before it was ready; what it printed above says why (without the jars of "
            f"`make setup-spark` it fetches Iceberg itself, which needs the network): {problem}"
        ) from problem


def _launch_conf(options: SessionOptions) -> SparkConf:
    conf = SparkConf(loadDefaults=False)
    # Without a script Spark takes this for a shell, and would show its progress bar.
    conf.set("spark.ui.showConsoleProgress", "false")
    for key, value in options.conf.items():
        conf.set(key, value)
    if options.master is not None:
        conf.set("spark.master", options.master)
    if not _ships_iceberg():
        for key, value in jar_configuration().items():
            conf.set(key, _joined(options.conf.get(key), value))
    return conf


def _quieten_log() -> None:
    """Not Spark's own option for the JVM, which would replace the one of spark-defaults.conf."""
    given = os.environ.get(_LAUNCHER_OPTIONS, "")
    if "log4j2.configurationFile" not in given:
        # Spark's configuration follows it, and so overrides it.
        os.environ[_LAUNCHER_OPTIONS] = (
            f"{given} -Dlog4j2.configurationFile={_LOG_CONFIGURATION.as_uri()}".strip()
        )


def _defaults(options: SessionOptions, configured: Mapping[str, str]) -> dict[str, str]:
    """The defaults of a job's session."""
    master = configured.get("spark.master", options.master or "local[*]")
    defaults = {
        "spark.master": master,
        "spark.ui.enabled": str(options.ui).lower(),
        "spark.sql.session.timeZone": "UTC",
        # Spark 4.1 measures a batch for a Python process after each row, and a column of lists by all of its rows:
        # with the default of 10,000 that costs 58 us a row, with this 15.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        # Bounds the history that a job keeps which runs for months.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "100",
        "spark.sql.ui.retainedExecutions": "50",
    }
    if master.startswith("local"):
        # Everything runs on this machine, whose host name need not resolve.
        defaults |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return {key: value for key, value in defaults.items() if key not in configured}


def _check_submitted(options: SessionOptions, configured: Mapping[str, str]) -> None:
    """Refuse job options that an existing JVM cannot take any more: they would be ignored silently."""
    master = configured.get("spark.master", options.master)
    if options.master is not None and options.master != master:
        raise SettingError(
            f"--master {options.master!r} is not legal: spark-submit has set {master!r} already"
        )
    for key, value in options.conf.items():
        if configured.get(key) == value:
            continue
        if key in _READ_AT_START:
            raise SettingError(
                f"--conf {key} is not legal here: Spark is running already; give it to spark-submit"
            )
        if key in configured:
            raise SettingError(
                f"--conf {key} is not legal: spark-submit or spark-defaults.conf has set it to another value; give "
                "one of them"
            )


def _ships_iceberg() -> bool:
    """True if Spark's own folder has Iceberg, as in images for clusters."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return any(Path(home, "jars").glob("iceberg-spark-runtime-*.jar"))


def _knows_iceberg(jvm: Any) -> bool:
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    found = loader.getResource(_ICEBERG_CLASS.replace(".", "/") + ".class")
    return found is not None


def _add_iceberg(jvm: Any) -> None:
    """Give the JVM, which spark-submit started without Iceberg, the jars that `make setup-spark` has fetched."""
    paths = ICEBERG.paths()
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if not paths or not hasattr(loader, "addURL"):
        raise StartupError(
            "this Spark has no Iceberg: run `make setup-spark`, or spark-submit with "
            f"--packages {','.join(ICEBERG.coordinates())}"
        )
    for path in paths:
        loader.addURL(jvm.java.io.File(str(path)).toURI().toURL())


def _add_catalog(session: SparkSession, catalog: Catalog) -> None:
    """At runtime, not at the start: the options of the start are in the list of processes, keys included."""
    name = f"spark.sql.catalog.{catalog.name}"
    there = session.conf.get(name, None)
    if not catalog.properties:
        if there is None:
            raise SettingError(
                f"there is no catalog {catalog.name!r}: give --warehouse for a Hadoop catalog, or "
                f"--catalog {catalog.name}=TYPE with what that needs; or configure {name} in Spark"
            )
        return
    for key, value in catalog.configuration().items():
        if session.conf.get(key, value) != value:
            raise SettingError(
                f"catalog {catalog.name!r} is not legal: Spark's configuration has another {key}; leave the options "
                "of the catalog out, or that"
            )
        session.conf.set(key, value)


def _joined(given: str | None, more: str) -> str:
    """The entries of two comma-separated lists, each once."""
    return ",".join(dict.fromkeys(part for part in [*(given or "").split(","), *more.split(",")] if part))
