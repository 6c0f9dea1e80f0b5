"""A job's Spark session, in a process of its own: started by it, or under spark-submit."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from kafscale.errors import SettingError
from spark_jobs.catalogs import Catalog
from spark_jobs.session import open_session
from spark_jobs.session_options import SessionOptions
from tests.support.spark_install import spark_libs_missing

pytestmark = pytest.mark.skipif(spark_libs_missing() is not None, reason=str(spark_libs_missing()))

SUBMIT = Path(sys.executable).parent / "spark-submit"
FAST = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

SCRIPT = """
import json, sys
from spark_jobs.catalogs import Catalog
from spark_jobs.session import open_session
from spark_jobs.session_options import SessionOptions

session = open_session(SessionOptions(
    catalogs=[Catalog(name="local", properties={"type": "hadoop", "warehouse": sys.argv[1]})],
    conf=json.loads(sys.argv[2]),
    app_name="the job",
))
session.sql("CREATE TABLE local.db.t (a timestamp) USING iceberg PARTITIONED BY (days(a))")
session.sql("ALTER TABLE local.db.t WRITE ORDERED BY a")  # only Iceberg's extensions understand it
session.sql("INSERT INTO local.db.t VALUES (timestamp '2026-01-01 00:30:00')")
row = session.sql("SELECT unix_millis(a) AS ms FROM local.db.t").first()
conf = session.sparkContext.getConf()
print(json.dumps({
    "ms": row["ms"],
    "zone": session.conf.get("spark.sql.session.timeZone"),
    "master": session.sparkContext.master,
    "name": session.sparkContext.appName,
    "ui": conf.get("spark.ui.enabled"),
    "host": conf.get("spark.driver.host"),
    "arguments": session.sparkContext._jvm.java.lang.System.getProperty("sun.java.command"),
}))
session.stop()
"""


def run(
    folder: Path, command: list[str], conf: Mapping[str, str]
) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    (folder / "script.py").write_text(SCRIPT)
    (folder / "work").mkdir()
    done = subprocess.run(
        [*command, str(folder / "script.py"), str(folder / "lake"), json.dumps(conf)],
        cwd=folder / "work",
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": " ".join(FAST)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done


@pytest.mark.nightly
@pytest.mark.every_spark
def test_one_command_starts_a_quiet_spark_with_iceberg(tmp_path: Path) -> None:
    said, done = run(tmp_path, [sys.executable], {"spark.local.dir": str(tmp_path / "tmp")})
    assert said["ms"] == 1767227400000, "half past midnight, in UTC"
    assert said["zone"] == "UTC"
    assert said["master"] == "local[*]"
    assert said["name"] == "the job"
    assert (said["ui"], said["host"]) == ("false", "127.0.0.1")
    assert "warehouse" not in said["arguments"], (
        "catalogs hold keys, which the list of processes must not show"
    )
    noise = [
        line
        for line in done.stderr.splitlines()
        if "incubator modules" not in line and "JDK_JAVA_OPTIONS" not in line
    ]
    assert noise == []
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.nightly
def test_spark_submits_options_stay_and_others_are_added(tmp_path: Path) -> None:
    submit = [
        str(SUBMIT), "--master", "local[1]", "--name", "submitted",
        "--conf", "spark.sql.session.timeZone=Europe/Berlin",
        "--conf", f"spark.local.dir={tmp_path / 'tmp'}",
    ]  # fmt: skip
    said, _ = run(tmp_path, submit, {"spark.sql.shuffle.partitions": "2"})
    assert said["ms"] == 1767223800000, "an hour earlier than in UTC"
    assert said["zone"] == "Europe/Berlin"
    assert said["master"] == "local[1]"
    assert said["name"] == "submitted"
    assert said["ui"] == "false"


def test_a_session_that_is_there_is_used_and_gets_the_catalogs(spark: SparkSession, tmp_path: Path) -> None:
    name = "another"
    options = SessionOptions(
        catalogs=[Catalog(name=name, properties={"type": "hadoop", "warehouse": str(tmp_path)})]
    )
    assert open_session(options) is spark
    assert open_session(options) is spark, "a second time it is there as asked for"
    assert spark.sql(f"SHOW NAMESPACES IN {name}").collect() == []
    with pytest.raises(SettingError, match="Spark's configuration has another"):
        open_session(SessionOptions(catalogs=[Catalog(name=name, properties={"type": "rest"})]))


def test_an_undefined_catalog_is_refused_with_the_remedy(spark: SparkSession) -> None:
    with pytest.raises(
        SettingError, match=r"no catalog 'nowhere': give --warehouse .* --catalog nowhere=TYPE"
    ):
        open_session(SessionOptions(catalogs=[Catalog(name="nowhere")]))
