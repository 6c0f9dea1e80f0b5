"""The packed environment on a cluster whose executors have nothing of Kafscale otherwise."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from scripts.spark_pack import LOCK, locked_requirements
from tests.spark_jobs.support.catalogs import hadoop_catalog
from tests.spark_jobs.support.export_runs import in_order, store_environment
from tests.spark_jobs.support.read_back import read_table
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.standalone_cluster import standalone_cluster
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.process import clean_environment
from tests.support.spark_install import spark_libs_missing

REPOSITORY = Path(__file__).resolve().parents[2]
TIMEOUT_SEC = 900.0
PACKED = "./kafscale/bin/python"


def test_what_spark_brings_is_not_packed() -> None:
    kept = locked_requirements(LOCK.read_text())
    assert "\npyarrow==" in kept
    assert "\nobstore==" in kept
    assert "pyspark==" not in kept
    assert "py4j==" not in kept
    hashes = [line for line in LOCK.read_text().splitlines() if line.startswith("    --hash=")]
    assert len(kept.splitlines()) > len(hashes) * 0.9, "hashes are lost"


@pytest.mark.nightly
def test_a_packed_environment_exports_on_executors_of_a_cluster(tmp_path: Path) -> None:
    missing = spark_libs_missing()
    if missing is not None:
        pytest.skip(missing)
    archive = Path(os.environ.get("KAFSCALE_TEST_SPARK_PACK") or tmp_path / "kafscale-spark.tar.gz")
    if not archive.exists():
        run([sys.executable, "-m", "scripts.spark_pack", "--output", str(archive)], {})
    writer = TopicWriter(embedded(tmp_path / "data"), "events", partitions=2)
    for partition in range(2):
        writer.append(partition, sent(40), batch_records=10)
    catalog = hadoop_catalog(tmp_path / "lake")
    # A driver outside of the cluster plans with the same environment, by the same relative path.
    driver = tmp_path / "driver"
    with tarfile.open(archive) as packed:
        packed.extractall(driver / "kafscale", filter="tar")
    with standalone_cluster(tmp_path / "cluster") as cluster:
        export = [
            "--topic", "events", "--table", "local.db.events", "--warehouse", catalog.warehouse,
            "--master", cluster.master,
            "--conf", f"spark.archives={archive}#kafscale",
            "--conf", "spark.executor.memory=512m",
            "--conf", f"spark.local.dir={tmp_path / 'local'}",
        ]  # fmt: skip
        environment = {
            "SPARK_HOME": str(cluster.home),
            "PYSPARK_PYTHON": PACKED,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        run(
            [sys.executable, "-m", "spark_jobs.export", *export],
            store_environment(writer.settings) | environment,
            folder=driver,
        )
        used = list((tmp_path / "cluster").glob(f"worker-*/work/*/*/{PACKED}"))
    assert used, "no executor had the environment"
    assert in_order(read_table(catalog, "local.db.events").rows) == writer.rows()


def run(command: list[str], environment: dict[str, str], folder: Path = REPOSITORY) -> str:
    """The output. Fails with it unless the command succeeds."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=clean_environment() | {"SPARK_LOCAL_IP": "127.0.0.1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_SEC,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
