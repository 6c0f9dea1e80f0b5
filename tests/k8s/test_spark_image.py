"""The export's Dockerfile, carried out: what is in the image, and that it exports as the CronJobs run it.

No engine is needed: `tests.support.image_build` says how.
"""

import asyncio
import json
import os
import re
import stat
import subprocess
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiokafka import AIOKafkaProducer

from spark_jobs.jars import ICEBERG
from tests.chart.values_sets import DIRECT, EXPORT
from tests.spark_jobs.support.catalogs import hadoop_catalog
from tests.spark_jobs.support.read_back import WrittenTable, read_table
from tests.support.broker import running_broker
from tests.support.dockerfile import Stage, parse
from tests.support.helm import rendered
from tests.support.image_build import Image, built, why_not

PROJECT = Path(__file__).resolve().parents[2]
DOCKERFILE = PROJECT / "deploy/spark/Dockerfile"
USER = 10001
PACKAGES = "/opt/kafscale/lib/python3.11/site-packages"
JARS = f"{PACKAGES}/pyspark/jars"
CODECS = (None, "gzip", "snappy", "lz4", "zstd")
RECORDS = 200
# What is laid over the base image.
MOST_BYTES = 1_400_000_000
BUILDERS = ("mvn", "javac", "cc", "gcc", "g++", "c++", "make", "ld")
Manifest = dict[str, Any]

pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
]


@pytest.fixture(autouse=True)
def left_as_found() -> None:
    """No control plane takes part."""


@pytest.fixture(scope="module")
def spark_images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Image]]:
    """The image of each of the Dockerfile's stages; "" is the last."""
    with built(DOCKERFILE, PROJECT, tmp_path_factory.mktemp("spark-image")) as found:
        yield found


@pytest.fixture(scope="module")
def image(spark_images: dict[str, Image]) -> Image:
    return spark_images[""]


@pytest.fixture(scope="module")
def stage() -> Stage:
    return parse(DOCKERFILE.read_text())[-1]


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a broker that was stopped: the topic `events`, in which value n is its number."""

    async def produce(bootstrap: str) -> None:
        for index, codec in enumerate(CODECS):
            async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
                for number in range(index, RECORDS, len(CODECS)):
                    await producer.send("events", b"%d" % number, key=b"key")

    with running_broker(tmp_path_factory.mktemp("broker"), flush_interval_ms=20) as broker:
        asyncio.run(produce(broker.bootstrap))
    for folder, _, names in os.walk(broker.data_folder):
        for path in (Path(folder), *(Path(folder, name) for name in names)):
            os.chown(path, USER, USER)
    return broker.data_folder


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    os.chown(folder, USER, USER)
    return folder


def cron_job_of_the_example(_: Path) -> Manifest:
    documents = yaml.safe_load_all((PROJECT / "deploy/spark/cronjob.yaml").read_text())
    return next(one for one in documents if one["kind"] == "CronJob")


def cron_job_of_the_chart(folder: Path) -> Manifest:
    values = {"directCluster": DIRECT, "lakeExport": EXPORT}
    jobs = (one for one in rendered(folder, values) if one["kind"] == "CronJob")
    return next(one for one in jobs if one["metadata"]["name"].endswith("-export"))


def arguments(lake: Path) -> list[str]:
    """Makes the export one of `data_folder`. Iceberg writes full paths: the folder has its own there too."""
    return ["--topic=events", "--table=local.db.events", f"--warehouse={lake}", "--data-dir=/data", "--json"]


def export(
    image: Image, command: list[str], data: Path, lake: Path, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """A run; its file system is read-only but for /tmp and the two folders that are mounted."""
    of_pod = [f"{name}={value}" for name, value in (variables or {}).items()]
    ended = image.run("env", *of_pod, *command, mounts={"/data": data, str(lake): lake})
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    assert "Read-only file system" not in ended.stdout + ended.stderr
    return ended


def written(lake: Path) -> WrittenTable:
    return read_table(hadoop_catalog(lake), "local.db.events")


def numbers(table: WrittenTable) -> list[int]:
    return sorted(int(row["value"]) for row in table.rows)


def lines(image: Image, *command: str) -> list[str]:
    ended = image.run(*command)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


def test_it_answers_as_nobody(image: Image, stage: Stage) -> None:
    assert lines(image, "id") == ["uid=10001(kafscale) gid=10001(kafscale) groups=10001(kafscale)"]
    entry = stage.last("ENTRYPOINT").words()
    assert entry == ["python", "-m", "spark_jobs.export"]
    assert lines(image, *entry, "--help")[0].startswith("Usage: python -m spark_jobs.export")
    assert lines(image, "python", "-m", "spark_jobs.reconcile", "--help")[0].startswith("Usage:")


def test_nothing_in_it_belongs_to_its_user(image: Image) -> None:
    assert [path for path in image.files() if path.lstat().st_uid == USER] == []
    found = [path for path in image.files() if not path.is_symlink()]
    assert [path for path in found if path.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)] == []


def test_its_entry_point_exports_what_a_broker_stored(
    image: Image, stage: Stage, data_folder: Path, lake: Path
) -> None:
    before = {path: path.lstat().st_mtime_ns for path in image.files()}
    command = [*stage.last("ENTRYPOINT").words(), *arguments(lake)]
    told = json.loads(export(image, command, data_folder, lake).stdout)
    assert (told["rows"], told["dead_letters"], told["failed_topics"]) == (RECORDS, 0, 0)
    table = written(lake)
    assert numbers(table) == list(range(RECORDS))
    assert {row["key"] for row in table.rows} == {b"key"}
    again = json.loads(export(image, command, data_folder, lake).stdout)
    assert again["rows"] == 0
    assert written(lake).history == table.history
    assert {path: path.lstat().st_mtime_ns for path in image.files()} == before


@pytest.mark.parametrize("cron_job", [cron_job_of_the_example, cron_job_of_the_chart])
def test_a_cron_job_runs_it_as_it_can_be_run(
    image: Image, data_folder: Path, lake: Path, tmp_path: Path, cron_job: Any
) -> None:
    """The pod's command, variables, user and mounts, with the arguments of another topic and lake."""
    pod = cron_job(tmp_path)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    context = pod["securityContext"]
    assert f"{context['runAsUser']}:{context['runAsGroup']}" == image.user
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    writable = [one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")]
    assert writable == ["/tmp"]
    # Those of Spark, which the chart has among its arguments; not those of the lake.
    of_spark = [one for one in container["args"] if one.startswith("--conf=")]
    command = [*container["command"], *of_spark, *arguments(lake)]
    variables = {one["name"]: one["value"] for one in container["env"] if "value" in one}
    export(image, command, data_folder, lake, variables)
    assert numbers(written(lake)) == list(range(RECORDS))


def test_spark_image_has_iceberg_and_database_driver_jars(image: Image) -> None:
    names = {path.name for path in image.where(JARS).iterdir()}
    for coordinates in ICEBERG.coordinates():
        _, artifact, version = coordinates.split(":")
        assert f"{artifact}-{version}.jar" in names
    (driver,) = [name for name in names if name.startswith("postgresql-")]
    for jar, member in {
        driver: "org/postgresql/Driver.class",
        "iceberg-spark-runtime-*.jar": "org/apache/iceberg/aws/s3/S3FileIO.class",
        "iceberg-aws-bundle-*.jar": "software/amazon/awssdk/services/s3/S3Client.class",
    }.items():
        (path,) = image.where(JARS).glob(jar)
        with zipfile.ZipFile(path) as archive:
            assert member in archive.namelist()


def test_compiled_parts_find_all_that_they_link_to(image: Image) -> None:
    found = [path for path in image.where(PACKAGES).rglob("*.so*") if path.is_file()]
    # numba takes another where one of these cannot be loaded.
    libraries = [path for path in found if not path.name.startswith(("omppool.", "tbbpool."))]
    assert len(libraries) > 100
    told = image.run("ldd", *(f"/{path.relative_to(image.laid)}" for path in libraries))
    assert told.returncode == 0, told.stderr
    assert [line for line in told.stdout.splitlines() if "not found" in line] == []


def test_modules_are_compiled_and_never_checked(image: Image) -> None:
    """A start would do it again each time, and could not keep it."""
    for package in ("spark_jobs", "kafscale", "pyspark_kafscale", "pyspark", "pandas", "numba"):
        sources = list(image.where(f"{PACKAGES}/{package}").rglob("*.py"))
        assert sources, package
        for path in sources:
            (found,) = (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")
            assert int.from_bytes(found.read_bytes()[4:8], "little") == 0b01, path  # PEP 552


def test_nothing_to_build_with_is_left(spark_images: dict[str, Image], image: Image) -> None:
    ask = "for name; do command -v $name; done; true"
    assert lines(image, "sh", "-c", ask, "sh", *BUILDERS) == []
    assert lines(image, "sh", "-c", ask, "sh", "java") == ["/usr/bin/java"]
    assert "/usr/bin/mvn" in lines(spark_images["build"], "sh", "-c", ask, "sh", *BUILDERS)
    names = {path.name for path in image.where(PACKAGES).iterdir()}
    assert {"kafscale", "spark_jobs", "pyspark"} <= names
    assert names.isdisjoint({"pip", "setuptools", "wheel", "tests", "pytest"})
    for left in ("/src", "/root/.m2", "/var/lib/apt/lists/auxfiles"):
        assert not image.where(left).exists(), left


def test_its_size_is_what_the_document_says(image: Image) -> None:
    laid = sum(path.lstat().st_size for path in image.files())
    print(f"{laid / 1e6:.0f} MB are laid over the base image")
    assert laid < MOST_BYTES
    stated = re.search(r"\| Size \| ([\d.]+) GB over", (PROJECT / "docs/lake-export.md").read_text())
    assert stated is not None
    assert abs(laid / 1e9 - float(stated[1])) < 0.1
