"""The state of an export by the progress that exporters leave in the cluster's metadata store.

That has one record for each topic and table, whatever exported it, and it outlives pods and jobs: so no pod is asked
and no object store is read. Log ends are those of the partitions' records, which follow what is published at the
brokers' KAFSCALE_SEAL_INTERVAL_MS.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from kafscale.cluster.exports import TopicExports, read_exports
from kafscale.cluster.iceberg_configs import (
    TABLE,
    VALUE_FORMAT,
    WITHOUT_SPARK,
    iceberg_config,
    is_switched_on,
)
from kafscale.formats.export_records import ExportProgress, ExportState
from kafscale.formats.partition_record import decode_partition_record
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord
from kafscale.metadata.store import MetadataReader
from kafscale.operator.exports.spec import Engine, ExportSpec
from kafscale.operator.manifests import names

MOST_PARTITION_RECORDS: Final = 2000
"""How many partitions' records a pass reads. The lag of the topics after them is as of their last commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicProgress:
    """A topic of an export. `table`: its full name. `progress` None: nothing was exported yet.

    `log_ends`: by partition, as far as they were read. `problem`: why no exporter can take the topic as it is.
    """

    topic: str
    table: str
    progress: ExportProgress | None = None
    log_ends: Mapping[int, int] = field(default_factory=dict)
    problem: str = ""

    @property
    def error(self) -> str:
        """Why it is not exported; empty if it is."""
        is_failed = self.progress is not None and self.progress.state is ExportState.FAILED
        return self.problem or (self.progress.error if self.progress is not None and is_failed else "")

    @property
    def is_failed(self) -> bool:
        """True if the last run could not export it, or the next one will not."""
        is_failed = self.progress is not None and self.progress.state is ExportState.FAILED
        return bool(self.problem) or is_failed

    @property
    def lags(self) -> dict[int, int]:
        """Offsets that the table lacks, by partition."""
        if self.progress is None:
            return {}
        return {
            partition: max(0, self.log_end(partition) - position)
            for partition, position in self.progress.positions.items()
        }

    def log_end(self, partition: int) -> int:
        """The newest log end offset that is known of an exported partition."""
        assert self.progress is not None, "only exported partitions are asked for"
        return max(self.progress.log_end_offsets[partition], self.log_ends.get(partition, 0))

    @property
    def lag(self) -> int:
        """Of all exported partitions."""
        return sum(self.lags.values())

    def lag_sec(self, now_sec: float) -> float | None:
        """Time since the table had everything: 0 if nothing is known that it lacks, None if it never had."""
        if self.progress is None or (self.lag and self.progress.complete_ms is None):
            return None
        if not self.lag or self.progress.complete_ms is None:
            return 0.0
        return max(0.0, now_sec - self.progress.complete_ms / 1000)


def topics_of(
    export: ExportSpec, topics: Mapping[str, TopicRecord], exports: Iterable[TopicExports]
) -> list[TopicProgress]:
    """The export's topics, by name. `topics`: those of the cluster; `exports`: all that its metadata store knows.

    A pattern is not matched here, because a costly one would stop the operator: what matches it is known by the pods
    that exported it last.
    """
    by_topic = {one.topic: one for one in exports}
    found = []
    for topic in sorted({*export.topics.names, *topics, *by_topic}):
        record, known = topics.get(topic), by_topic.get(topic)
        if not _is_of(export, topic, record, known):
            continue
        by_config = record.configs if record is not None and export.topics.by_config else {}
        said = by_config.get(TABLE)
        table = f"{export.catalog.name}.{export.table.of_topic(topic, said)}"
        progress = next((one for one in known.progress if one.table == table), None) if known else None
        problem = _problem(export, topic, by_config)
        found.append(TopicProgress(topic=topic, table=table, progress=progress, problem=problem))
    return found


def _problem(export: ExportSpec, topic: str, configs: Mapping[str, str]) -> str:
    """Why an exporter that follows these configs refuses the topic before it takes it; empty if it does not.

    Such a refusal leaves no progress. See `topics_by_config` of the exports.
    """
    try:
        config = iceberg_config(configs)
    except ValueError as problem:
        return str(problem)
    namespace = export.table.of_topic(topic, config.table).rpartition(".")[0]
    allowed = [export.table.of_topic(topic).rpartition(".")[0], *export.table.namespaces]
    if namespace not in allowed:
        return f"topic config {TABLE}={config.table} is in another namespace than {', '.join(allowed)}"
    if export.engine is Engine.PYTHON and config.value_format not in (None, *WITHOUT_SPARK):
        return f"topic config {VALUE_FORMAT}={config.value_format} needs the engine Spark"
    return ""


def _is_of(export: ExportSpec, topic: str, record: TopicRecord | None, known: TopicExports | None) -> bool:
    chosen = export.topics
    if topic not in chosen.names and (chosen.names or chosen.pattern is not None):
        is_ours = known is not None and known.last is not None and _is_pod(export, known.last.holder)
        if chosen.pattern is None or record is None or not is_ours:
            return False
    if chosen.by_config:
        return record is not None and is_switched_on(record.configs)
    return True


def _is_pod(export: ExportSpec, holder: str) -> bool:
    """True if that holder of a topic (`host/process`) is a pod of the export."""
    return holder.startswith(f"{names.export(export.name)}-")


async def read_progress(
    store: MetadataReader, export: ExportSpec, topics: Mapping[str, TopicRecord]
) -> list[TopicProgress]:
    """The export's topics with their log ends. Raises `StoreError`, `CorruptDataError`."""
    found, left = [], MOST_PARTITION_RECORDS
    for one in topics_of(export, topics, await read_exports(store)):
        partitions = 0 if one.progress is None else len(one.progress.positions)
        if not partitions or partitions > left or one.topic not in topics:
            found.append(one)
            continue
        left -= partitions
        ends = await _log_ends(store, one.topic)
        found.append(replace(one, log_ends=ends))
    return found


async def _log_ends(store: MetadataReader, topic: str) -> dict[int, int]:
    prefix = keys.partitions(topic)
    items = (await store.range(prefix)).items
    return {
        int(item.key.removeprefix(prefix)): decode_partition_record(item.key, item.value).log_end_offset
        for item in items
    }
