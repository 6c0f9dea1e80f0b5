"""The exports of topics as the metadata store has them, and the errors of an exporter that may not go on."""

from dataclasses import dataclass
from datetime import UTC, datetime

from kafscale.errors import KafscaleError
from kafscale.formats.export_records import (
    ExportProgress,
    ExportRecord,
    decode_export_progress,
    decode_export_record,
)
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataReader


class ExportHeldError(KafscaleError):
    """Another exporter holds the topic. `holder`: its name, None if unknown; `since_ms`: since when."""

    def __init__(self, topic: str, holder: ExportRecord | None) -> None:
        if holder is None:
            who = "another process"
        else:
            since = datetime.fromtimestamp(holder.acquired_ms / 1000, UTC).isoformat(timespec="seconds")
            who = f"{holder.holder} since {since}"
        super().__init__(f"topic {topic!r} is being exported by {who}: wait until that has ended, or stop it")
        self.topic = topic
        self.holder = None if holder is None else holder.holder
        self.since_ms = None if holder is None else holder.acquired_ms


class ExportLeaseLostError(KafscaleError):
    """The exporter does not hold the topic any more: its work in progress must not be committed."""

    def __init__(self, topic: str, problem: str) -> None:
        super().__init__(f"the export of topic {topic!r} does not hold the topic any more: {problem}")
        self.topic = topic


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExports:
    """The exports of a topic in the metadata store.

    `last`: who took hold of the topic last. `holder`: who holds it now. `progress`: of each table, by its name.
    """

    topic: str
    last: ExportRecord | None = None
    holder: ExportRecord | None = None
    progress: tuple[ExportProgress, ...] = ()


async def read_holder(reader: MetadataReader, topic: str) -> ExportRecord | None:
    """The exporter that has the topic now; None if there is none. Raises `StoreError`, `CorruptDataError`."""
    found = await reader.get(keys.export_holder(topic))
    return None if found is None else decode_export_record(found.key, found.value)


async def read_exports(reader: MetadataReader) -> list[TopicExports]:
    """The exports of every topic, by topic. Raises `StoreError`, `CorruptDataError`."""
    found: dict[str, list[KeyValue]] = {}
    for item in (await reader.range(keys.EXPORTS)).items:
        found.setdefault(keys.export_topic(item.key), []).append(item)
    return [_exports_of(topic, items) for topic, items in sorted(found.items())]


def _exports_of(topic: str, items: list[KeyValue]) -> TopicExports:
    records: dict[str, ExportRecord] = {}
    progress = []
    for item in items:
        table = keys.export_table(item.key)
        if table is None:
            records[item.key] = decode_export_record(item.key, item.value)
        else:
            progress.append(decode_export_progress(item.key, topic, table, item.value))
    return TopicExports(
        topic=topic,
        last=records.get(keys.export_record(topic)),
        holder=records.get(keys.export_holder(topic)),
        progress=tuple(sorted(progress, key=lambda one: one.table)),
    )
