"""Fixtures for tests with Spark: one session for all of a run, Iceberg catalogs, and what was written read back."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.spark_lines import installed_line
from tests.spark_jobs.support.catalogs import IcebergCatalog, hadoop_catalog, jdbc_catalog, s3_catalog
from tests.spark_jobs.support.local_spark import local_spark
from tests.support.s3_install import s3_server_missing
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_install import spark_libs_missing

# Spark 3.5 has no Python data sources: of these files nothing can even be imported (docs/lake-platforms.md).
collect_ignore = (
    []
    if installed_line().has_data_sources
    else [
        "decoding/test_row_decoding.py",
        "test_batch_reader.py",
        "test_data_source.py",
        "test_discovery.py",
        "test_journal_queries.py",
        "test_source_in_cluster.py",
        "test_stream_reader.py",
    ]
)

_numbers = itertools.count(1)
_HERE = Path(__file__).parent


def pytest_itemcollected(item: pytest.Item) -> None:
    """PySpark leaves the socket of each `collect` to the garbage collector."""
    if not item.path.is_relative_to(_HERE):
        return
    item.add_marker(
        pytest.mark.filterwarnings("ignore:.*socket.socket:pytest.PytestUnraisableExceptionWarning")
    )
    item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def lake_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for the output of Spark and the catalogs."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def local_catalog(lake_folder: Path) -> IcebergCatalog:
    """The catalog `local`: Hadoop, in a folder."""
    return hadoop_catalog(lake_folder / "local-warehouse")


@pytest.fixture(scope="session")
def database_catalog(lake_folder: Path) -> IcebergCatalog:
    """The catalog `jdbc`: a SQLite file, and tables in a folder."""
    return jdbc_catalog(lake_folder / "jdbc")


@pytest.fixture(scope="session")
def lake_server(lake_folder: Path) -> Iterator[S3Server]:
    """A real S3 server, started when a test first asks for it."""
    missing = s3_server_missing()
    if missing is not None:
        pytest.skip(missing)
    with s3_server(lake_folder / "s3") as server:
        yield server


@pytest.fixture(scope="session")
def bucket_catalog(spark: SparkSession, lake_folder: Path, lake_server: S3Server) -> IcebergCatalog:
    """The catalog `lake`: a SQLite file, and tables in a bucket."""
    catalog = s3_catalog(lake_folder / "s3-catalog", lake_server.endpoint, lake_server.bucket)
    catalog.add_to(spark)
    return catalog


@pytest.fixture(scope="session")
def spark(
    lake_folder: Path, local_catalog: IcebergCatalog, database_catalog: IcebergCatalog
) -> Iterator[SparkSession]:
    """The one Spark session of this process, with the catalogs `local` and `jdbc`.

    A test that changes its settings puts them back.
    """
    missing = spark_libs_missing()
    if missing is not None:
        pytest.skip(missing)
    catalogs = local_catalog.spark_settings() | database_catalog.spark_settings()
    with local_spark(lake_folder / "spark", catalogs) as session:
        yield session


@pytest.fixture
def new_table() -> Callable[[IcebergCatalog], str]:
    """Gives names of tables that no other test has: `local.db.t7`."""
    return lambda catalog: f"{catalog.name}.db.t{next(_numbers)}"
