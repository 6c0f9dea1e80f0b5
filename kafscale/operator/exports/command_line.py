"""The command line of an export's container. Pure."""

from collections.abc import Iterator
from typing import Final

from kafscale.cluster.iceberg_configs import TransactionMode
from kafscale.operator.exports.spec import Catalog, Engine, ExportSpec
from kafscale.operator.manifests import names

SECRET_VARIABLE: Final = "KAFSCALE_EXPORT_CATALOG_"
"""Begins the variables with the catalog's properties from Secrets; a number follows."""


def command(export: ExportSpec) -> list[str]:
    """The program. As a module: spark-submit ends at once on SIGTERM."""
    if export.engine is Engine.SPARK:
        return ["python", "-m", "spark_jobs.export"]
    return ["python", "-m", "kafscale", "export"]


def arguments(export: ExportSpec) -> list[str]:
    """Its arguments, each option in one with its value; `$` is escaped, which Kubernetes would expand."""
    found = [*_engine(export), *_topics(export), *_shared(export), *export.args]
    if export.engine is Engine.PYTHON and export.topics.names:
        found += ["--", *export.topics.names]  # a name may begin with -
    return [one.replace("$", "$$") for one in found]


def _engine(export: ExportSpec) -> Iterator[str]:
    if export.engine is Engine.SPARK:
        yield f"--conf=spark.driver.memory={export.driver_memory}"
        yield "--conf=spark.driver.host=127.0.0.1"
        yield "--conf=spark.driver.bindAddress=127.0.0.1"
        yield from _spark_catalog(export)
    else:
        yield from _python_catalog(export.catalog)


def _spark_catalog(export: ExportSpec) -> Iterator[str]:
    catalog, table = export.catalog, export.table
    yield f"--catalog={catalog.name}={catalog.type}"
    for key, value in _properties(catalog):
        yield f"--catalog-property={catalog.name}.{key}={value}"
    if catalog.warehouse is not None:
        yield f"--warehouse={catalog.warehouse}"
    yield f"--table={catalog.name}.{table.name}"
    if table.dead_letters is not None:
        yield f"--dead-letter-table={catalog.name}.{table.dead_letters}"
    if table.sort_by is not None:
        yield f"--sort-by={table.sort_by}"


def _python_catalog(catalog: Catalog) -> Iterator[str]:
    properties = dict(_properties(catalog))
    if catalog.type == "rest":
        yield f"--to={properties.pop('uri', '')}"
        if catalog.warehouse is not None:
            yield f"--catalog-property=warehouse={catalog.warehouse}"
    else:
        yield f"--to={catalog.warehouse or ''}"
    yield f"--catalog={catalog.name}"
    for key, value in properties.items():
        yield f"--catalog-property={key}={value}"


def _properties(catalog: Catalog) -> Iterator[tuple[str, str]]:
    yield from sorted(catalog.properties.items())
    for number, one in enumerate(catalog.secret_properties):
        yield one.name, f"env:{SECRET_VARIABLE}{number}"


def _topics(export: ExportSpec) -> Iterator[str]:
    topics = export.topics
    if topics.by_config:
        yield "--topics-by-config"
        for namespace in export.table.namespaces:
            yield f"--table-namespace={namespace}"
    if topics.pattern is not None:
        yield f"--topic-pattern={topics.pattern}"
    if export.engine is Engine.SPARK:
        yield from (f"--topic={name}" for name in topics.names)
        return
    # With one topic there is no rule, and its table is named.
    name = topics.names[0] if topics.names and not topics.by_config else None
    table = export.table.name if name is None else export.table.of_topic(name)
    yield f"--table={table}"
    if export.table.dead_letters is not None:
        letters = export.table.dead_letters
        yield f"--dead-letter-table={letters if name is None else letters.replace('{topic}', name.replace('.', '_'))}"


def _shared(export: ExportSpec) -> Iterator[str]:
    yield f"--value-format={export.value_format}"
    yield f"--key-format={export.key_format}"
    yield f"--starting-offsets={export.starting_offsets}"
    yield f"--on-expired={export.on_expired}"
    if export.transactions != TransactionMode.COMMITTED:
        # Not else: an image of an older release does not know the option.
        yield f"--transactions={export.transactions}"
    if export.table.partition_by is not None:
        yield f"--partition-by={export.table.partition_by}"
    if export.interval_sec is not None:
        yield "--continuous"
        yield f"--interval={export.interval_sec:g}"
        yield f"--metrics-addr=:{names.EXPORT_METRICS_PORT}"
