"""Catalogs behind a server, tried for real: both exporters in turns, comparison, commits that get lost."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from kafscale.commands.cli import main as kafscale
from spark_jobs.export import main as export
from spark_jobs.reconcile import main as reconcile
from tests.spark_jobs.support.export_runs import in_order, store_environment
from tests.spark_jobs.support.hive_metastore import hive_metastore, hive_metastore_missing
from tests.spark_jobs.support.postgres_server import postgres_missing, postgres_server
from tests.spark_jobs.support.read_back import WrittenTable, written_table
from tests.spark_jobs.support.rest_catalog import RestCatalogServer, rest_catalog_server
from tests.spark_jobs.support.sent_records import sent
from tests.spark_jobs.support.server_catalogs import (
    ServerCatalog,
    knows_driver,
    on_hive,
    on_postgres,
    on_rest,
)
from tests.spark_jobs.support.topic_writer import TopicWriter, embedded
from tests.support.ports import free_port

pytestmark = pytest.mark.usefixtures("logging_as_before")


@pytest.fixture
def writer(tmp_path: Path) -> TopicWriter:
    return TopicWriter(embedded(tmp_path / "data"), "orders", partitions=2)


class Exports:
    """Both exporters at one table of a catalog."""

    def __init__(self, writer: TopicWriter, catalog: ServerCatalog) -> None:
        self._writer = writer
        self._catalog = catalog
        self._environment = store_environment(writer.settings) | dict(catalog.environment)
        self._spark = [
            "--topic",
            "orders",
            "--table",
            f"{catalog.name}.kafka.orders",
            *catalog.spark_options(),
        ]
        self._python = ["orders", "--table", "kafka.orders", *catalog.python_options()]

    def spark(self) -> str:
        """A run of the Spark job that must succeed; its output."""
        done = CliRunner().invoke(export, self._spark, env=self._environment)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def python(self) -> None:
        """A run without Spark that must succeed."""
        done = CliRunner().invoke(kafscale, ["export", *self._python], env=self._environment)
        assert done.exit_code == 0, (done.output, done.exception)

    def compare(self) -> None:
        """Both comparisons must agree."""
        for command, arguments in (
            (reconcile, [*self._spark, "--quiet"]),
            (kafscale, ["reconcile", *self._python]),
        ):
            done = CliRunner().invoke(command, arguments, env=self._environment)
            assert done.exit_code == 0, (done.output, done.exception)

    def read(self) -> WrittenTable:
        """The table as pyiceberg loads it from the catalog."""
        given = {
            key: self._environment[value.removeprefix("env:")] if value.startswith("env:") else value
            for key, value in self._catalog.python_properties.items()
        }
        kind = {"rest": "rest", "hive": "hive", "jdbc": "sql"}[self._catalog.kind]
        properties = {"type": kind, "uri": self._catalog.properties["uri"]} | given
        with load_catalog(self._catalog.name, **properties) as catalog:
            return written_table(catalog.load_table("kafka.orders"))


def check_turns(writer: TopicWriter, exports: Exports) -> None:
    """Each exporter creates nothing twice and goes on where the other ended."""
    writer.append(0, sent(10))
    exports.spark()
    writer.append(1, sent(4))
    exports.python()
    writer.append(0, sent(3, first=10))
    exports.spark()
    exports.spark()
    exports.python()
    written = exports.read()
    assert in_order(written.rows) == writer.rows()
    assert len(written.history) == 3, "a commit of what the other one had written"
    exports.compare()


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[RestCatalogServer]:
    with rest_catalog_server(tmp_path / "rest") as server:
        yield server


@pytest.mark.nightly
def test_a_rest_catalog(spark: SparkSession, writer: TopicWriter, rest: RestCatalogServer) -> None:
    check_turns(writer, Exports(writer, on_rest(rest, "rest_turns")))


@pytest.mark.nightly
def test_a_commit_whose_answer_is_lost_is_made_once(
    spark: SparkSession, writer: TopicWriter, rest: RestCatalogServer
) -> None:
    exports = Exports(writer, on_rest(rest, "rest_lost"))
    writer.append(0, sent(10))
    exports.python()
    for run, first in ((exports.spark, 10), (exports.python, 12)):
        writer.append(0, sent(2, first=first))
        lost_before = len(rest.lost)
        rest.losing = "set-snapshot-ref"
        run()
        assert len(rest.lost) == lost_before + 1, "no answer was lost"
        assert in_order(exports.read().rows) == writer.rows()
    assert len(exports.read().history) == 3
    assert all(rest.commits), "a commit of nothing"


@pytest.mark.nightly
def test_a_hive_metastore(spark: SparkSession, writer: TopicWriter, tmp_path: Path) -> None:
    missing = hive_metastore_missing()
    if missing is not None:
        pytest.skip(missing)
    if importlib.util.find_spec("thrift") is None:
        pytest.skip("no module thrift (pip install 'pyiceberg[hive]')")
    with hive_metastore(tmp_path / "hive", free_port()) as server:
        check_turns(writer, Exports(writer, on_hive(server, "hive_turns")))


@pytest.mark.nightly
def test_a_database_of_postgresql(spark: SparkSession, writer: TopicWriter, tmp_path: Path) -> None:
    missing = postgres_missing()
    if missing is not None:
        pytest.skip(missing)
    if importlib.util.find_spec("psycopg2") is None:
        pytest.skip("no module psycopg2 (pip install psycopg2-binary)")
    if not knows_driver(spark):
        pytest.skip("no driver of PostgreSQL among Spark's jars (run `python -m tests.compat.tools spark`)")
    with postgres_server() as server:
        check_turns(writer, Exports(writer, on_postgres(server, tmp_path / "lake", "postgres_turns")))
