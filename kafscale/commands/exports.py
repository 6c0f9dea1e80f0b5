"""`kafscale exports`: how far the exports of topics into tables have come, and who is at work at them."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable

from kafscale.broker.stores import open_exports_for_reading, open_for_reading
from kafscale.cluster.exports import TopicExports, read_exports
from kafscale.commands.exports_report import ExportLine, as_fields, as_text, export_lines
from kafscale.formats.partition_record import decode_partition_record
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
        metadata, _ = await open_for_reading(settings, stack)
        exports: list[TopicExports] = []
        for reader in await open_exports_for_reading(settings, stack):
            exports += await read_exports(reader)
        ends = {one.topic: await _log_end_offsets(metadata, one.topic) for one in exports}
        return export_lines(exports, {topic: found for topic, found in ends.items() if found is not None})


async def _log_end_offsets(metadata: MetadataReader, topic: str) -> dict[int, int] | None:
    """Of each partition; None when there is no such topic."""
    if await metadata.get(keys.topic(topic)) is None:
        return None
    found = (await metadata.range(keys.partitions(topic))).items
    return {
        keys.topic_and_partition(item.key)[1]: decode_partition_record(item.key, item.value).log_end_offset
        for item in found
    }
