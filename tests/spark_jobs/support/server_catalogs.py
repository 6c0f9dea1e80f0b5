"""Catalogs that a server keeps, as both exporters name them on their command lines."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tests.spark_jobs.support.hive_metastore import HiveMetastore
from tests.spark_jobs.support.postgres_server import PASSWORD, USER, PostgresServer
from tests.spark_jobs.support.rest_catalog import RestCatalogServer

DRIVER = "org.postgresql.Driver"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCatalog:
    """A catalog by its name, with the properties of Iceberg's Java library and of pyiceberg.

    `to`: what `kafscale export` takes. `environment`: of secrets that the options name.
    """

    name: str
    kind: str
    properties: Mapping[str, str]
    to: str
    python_properties: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)

    def spark_options(self) -> list[str]:
        """For `python -m spark_jobs.export`."""
        given = [f"{self.name}.{key}={value}" for key, value in self.properties.items()]
        return ["--catalog", f"{self.name}={self.kind}", *_each("--catalog-property", given)]

    def python_options(self) -> list[str]:
        """For `kafscale export`."""
        given = [f"{key}={value}" for key, value in self.python_properties.items()]
        return ["--to", self.to, "--catalog", self.name, *_each("--catalog-property", given)]


def _each(option: str, values: list[str]) -> list[str]:
    return [part for value in values for part in (option, value)]


def on_rest(server: RestCatalogServer, name: str) -> ServerCatalog:
    """The catalog of a REST server."""
    return ServerCatalog(
        name=name, kind="rest", properties={"uri": server.uri}, to=server.uri, python_properties={}
    )


def on_hive(server: HiveMetastore, name: str) -> ServerCatalog:
    """The catalog in a Hive metastore."""
    return ServerCatalog(
        name=name,
        kind="hive",
        properties={"uri": server.uri, "warehouse": server.warehouse},
        to=server.warehouse,
        # Hive 2, which PySpark's is, has no type for pyiceberg's instants.
        python_properties={"type": "hive", "uri": server.uri, "hive.hive2-compatible": "true"},
    )


def on_postgres(server: PostgresServer, folder: Path, name: str) -> ServerCatalog:
    """A database as a catalog, of the JDBC kind in Java and of the SQL kind in pyiceberg."""
    return ServerCatalog(
        name=name,
        kind="jdbc",
        properties={
            "uri": server.jdbc_uri,
            "jdbc.user": USER,
            "jdbc.password": "env:CATALOG_PASSWORD",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{folder}",
        },
        to=str(folder),
        python_properties={"uri": "env:CATALOG_URI"},
        environment={"CATALOG_PASSWORD": PASSWORD, "CATALOG_URI": server.python_uri},
    )


def knows_driver(spark: SparkSession) -> bool:
    """True if the session's JVM has PostgreSQL's driver."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    return loader.getResource(DRIVER.replace(".", "/") + ".class") is not None
