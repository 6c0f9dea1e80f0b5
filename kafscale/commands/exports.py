"""`kafscale exports`: how far the exports of topics into tables have come, and who is at work at them."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable

from kafscale.broker.stores import open_exports_for_reading, open_for_reading
from kafscale.cluster.exports import TopicExports, read_exports
from kafscale.commands.exports_report import ExportLine, as_fields, as_text, export_lines
from kafscale.formats.topic_record import decode_topic_record
from kafscale.log.journal.partition_states import PartitionStates
from kafscale.metadata import keys
from kafscale.metadata.store import MetadataReader
from kafscale.settings.broker import Settings


def run(settings: Settings, *, as_json: bool, output: Callable[[str], None]) -> None:
    """Show the exports that the settings' metadata store knows. Only reads, also beside running brokers.

    Raises `SettingError`, `StartupError`, `StoreError`, `CorruptDataError`.
    """
    lines = asyncio.run(_read(settings))
    now_ms = time.time_ns() // 1_000_000
    output(json.dumps(as_fields(lines, now_ms), indent=2) if as_json else as_text(lines, now_ms))


async def _read(settings: Settings) -> list[ExportLine]:
    async with contextlib.AsyncExitStack() as stack:
        metadata, objects = await open_for_reading(settings, stack)
        exports: list[TopicExports] = []
        for reader in await open_exports_for_reading(settings, stack):
            exports += await read_exports(reader)
        topics = {one.topic for one in exports}
        states = PartitionStates(metadata, objects, settings.s3_namespace, wants=topics.__contains__)
        ends = {topic: await _log_end_offsets(metadata, states, topic) for topic in topics}
        return export_lines(exports, {topic: found for topic, found in ends.items() if found is not None})


async def _log_end_offsets(
    metadata: MetadataReader, states: PartitionStates, topic: str
) -> dict[int, int] | None:
    """Of each partition, as published now; None when there is no such topic."""
    held = await metadata.get(keys.topic(topic))
    if held is None:
        return None
    partitions = range(decode_topic_record(held.key, held.value).partition_count)
    found = await states.read_all(topic, partitions, beyond_progress=True)
    return {partition: state.log_end_offset for partition, (state, _) in found.items()}
