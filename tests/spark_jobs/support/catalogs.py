"""Iceberg catalogs for tests: a folder, a database over a folder, and a database over an S3 server's bucket."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.s3_server import ACCESS_KEY, REGION, SECRET_KEY

CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"
LOCAL, JDBC, LAKE = "local", "jdbc", "lake"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergCatalog:
    """A catalog by the name that SQL uses, and Iceberg's own properties of it.

    `database`: the SQLite file of a JDBC catalog, None for a Hadoop catalog, which is a folder and no more.
    `read_properties`: what pyiceberg needs to read its files (an S3 server's address and keys).
    """

    name: str
    warehouse: str
    properties: Mapping[str, str]
    database: Path | None = None
    read_properties: Mapping[str, str]

    def spark_settings(self) -> dict[str, str]:
        """The catalog as settings of a Spark session."""
        prefix = f"spark.sql.catalog.{self.name}"
        return {prefix: CATALOG_CLASS} | {
            f"{prefix}.{name}": value for name, value in self.properties.items()
        }

    def add_to(self, spark: SparkSession) -> None:
        """Make it known to a session that has not used a catalog of this name yet."""
        for name, value in self.spark_settings().items():
            spark.conf.set(name, value)


def hadoop_catalog(folder: Path, name: str = LOCAL) -> IcebergCatalog:
    """Tables as folders of a folder."""
    return IcebergCatalog(
        name=name,
        warehouse=str(folder),
        properties={"type": "hadoop", "warehouse": str(folder)},
        read_properties={},
    )


def jdbc_catalog(folder: Path, name: str = JDBC) -> IcebergCatalog:
    """Tables in a folder, and in a SQLite file what they are at the moment."""
    return _in_database(name, folder / "catalog.db", f"file://{folder / 'warehouse'}", {}, {})


def s3_catalog(folder: Path, endpoint: str, bucket: str, name: str = LAKE) -> IcebergCatalog:
    """Tables in a bucket through Iceberg's own S3 client, and in a SQLite file what they are at the moment.

    Not a Hadoop catalog: that one needs a file system that renames.
    """
    to_write = {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": endpoint,
        "s3.path-style-access": "true",
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "client.region": REGION,
    }
    to_read = {
        "s3.endpoint": endpoint,
        "s3.access-key-id": ACCESS_KEY,
        "s3.secret-access-key": SECRET_KEY,
        "s3.region": REGION,
    }
    return _in_database(name, folder / f"{name}.db", f"s3://{bucket}/warehouse", to_write, to_read)


def _in_database(
    name: str, database: Path, warehouse: str, to_write: Mapping[str, str], to_read: Mapping[str, str]
) -> IcebergCatalog:
    database.parent.mkdir(parents=True, exist_ok=True)
    connection = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{database}",
        "jdbc.schema-version": "V1",
        "warehouse": warehouse,
    }
    return IcebergCatalog(
        name=name,
        warehouse=warehouse,
        properties=connection | dict(to_write),
        database=database,
        read_properties=dict(to_read),
    )
