"""Calls of Iceberg's Java API from the driver that Spark's own API lacks.

py4j objects have no types: only this file and `publish.py` touch them.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_jobs.tables.layout import quoted


def load_table(spark: SparkSession, name: str) -> Any:
    """The Iceberg table as it is now. Raises py4j's error for one that does not exist or is not Iceberg's."""
    table = jvm_of(spark).org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
        spark._jsparkSession, quoted(name)
    )
    table.refresh()
    return table


def jvm_of(spark: SparkSession) -> Any:
    """The driver's JVM."""
    context = spark.sparkContext
    assert context._jvm is not None
    return context._jvm


class JavaTexts(Mapping[str, str]):
    """A Java map of texts. A look-up is one call of the JVM; to go through all takes several for each."""

    def __init__(self, java_map: Any) -> None:
        self._map = java_map

    def __getitem__(self, name: str) -> str:
        found = self._map.get(name)
        if found is None:
            raise KeyError(name)
        return str(found)

    def __iter__(self) -> Iterator[str]:
        return (str(name) for name in self._map)

    def __len__(self) -> int:
        return int(self._map.size())


def as_mapping(java_map: Any) -> Mapping[str, str]:
    """A Java map of texts."""
    return JavaTexts(java_map)


def ancestor_summaries(metadata: Any, snapshot: Any) -> Iterator[Mapping[str, str]]:
    """The summaries of a snapshot (None: of none) and its known ancestors, the newest first.

    Each is fetched on demand.
    """
    while snapshot is not None:
        yield as_mapping(snapshot.summary())
        parent_id = snapshot.parentId()
        snapshot = None if parent_id is None else metadata.snapshot(parent_id)


def all_summaries(metadata: Any) -> Iterator[Mapping[str, str]]:
    """The summaries of all snapshots that the table remembers, each fetched on demand."""
    for snapshot in metadata.snapshots():
        yield as_mapping(snapshot.summary())


def added_files(spark: SparkSession, table: Any, snapshot_id: int) -> Any:
    """The data files that a snapshot added, as Iceberg's own iterable."""
    changes = jvm_of(spark).org.apache.iceberg.SnapshotChanges.builderFor(table)
    return changes.snapshot(table.snapshot(snapshot_id)).build().addedDataFiles()


def own_metadata_files(table: Any, snapshot_id: int) -> list[str]:
    """The manifest list of a snapshot, and the manifests that it wrote itself."""
    snapshot = table.snapshot(snapshot_id)
    manifests = snapshot.allManifests(table.io())
    return [
        *(str(one.path()) for one in manifests if one.snapshotId() == snapshot_id),
        str(snapshot.manifestListLocation()),
    ]


def own_files(spark: SparkSession, table: Any, snapshot_id: int) -> list[str]:
    """All files that a snapshot, which no branch has, added: data, deletes and metadata."""
    changes = jvm_of(spark).org.apache.iceberg.SnapshotChanges.builderFor(table)
    found = changes.snapshot(table.snapshot(snapshot_id)).build()
    added = [str(one.location()) for one in (*found.addedDataFiles(), *found.addedDeleteFiles())]
    return [*added, *own_metadata_files(table, snapshot_id)]


def without_snapshot(spark: SparkSession, metadata: Any, snapshot_id: int) -> Any:
    """The metadata without a snapshot, which no branch has."""
    jvm = jvm_of(spark)
    # A set, because the builder takes lists of other things, too.
    ids = jvm.java.util.HashSet()
    ids.add(jvm.java.lang.Long.valueOf(snapshot_id))
    return jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata).removeSnapshots(ids).build()


def union_schema(spark: SparkSession, table: Any, wanted: StructType) -> None:
    """Add the columns and nested fields of `wanted` that the table lacks, and widen those that Iceberg can widen.

    Raises py4j's error for types that cannot be brought together.
    """
    jvm = jvm_of(spark)
    java_type = jvm.org.apache.spark.sql.types.DataType.fromJson(wanted.json())
    schema = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(java_type)
    update = table.updateSchema().unionByNameWith(schema)
    if not update.apply().sameSchema(table.schema()):
        # A REST catalog would be sent, and could refuse or lose, a commit of nothing.
        update.commit()


def java_exceptions(problem: BaseException) -> list[str]:
    """The class names of a py4j error and its causes, the outermost first; empty for any other error."""
    names: list[str] = []
    java = getattr(problem, "java_exception", None) or getattr(problem, "_origin", None)
    while java is not None and len(names) < 20:
        names.append(str(java.getClass().getName()))
        java = java.getCause()
    return names
