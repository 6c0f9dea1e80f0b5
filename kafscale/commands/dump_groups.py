"""`kafscale dump --groups`: prints what the metadata store has of groups, and what of it cannot be read."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from kafscale.broker.stores import open_for_reading
from kafscale.commands.dump_json import as_line
from kafscale.commands.dump_output import Lines, escaping
from kafscale.commands.dump_values import shown_name
from kafscale.errors import CorruptDataError
from kafscale.metadata import keys
from kafscale.metadata.store import KeyValue, MetadataReader
from kafscale.settings.broker import Settings
from kafscale.tools.dump.group_items import fields_of, line_of, prefixes, shard_prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpGroupsOptions:
    """The options of the command line. `group_ids`: only these; none: all."""

    group_ids: Sequence[str] = ()
    as_json: bool = False


def run_dump_groups(settings: Settings, options: DumpGroupsOptions) -> int:
    """Print the groups of the settings' metadata store; returns the exit status. Only reads, beside brokers, too.

    Raises `SettingError`, `StartupError`, `StoreError`.
    """
    lines = Lines(escaping(sys.stdout), escaping(sys.stderr))
    is_damaged = asyncio.run(_dump(settings, options, lines))
    lines.flush()
    return 1 if is_damaged else 0


async def _dump(settings: Settings, options: DumpGroupsOptions, lines: Lines) -> bool:
    async with contextlib.AsyncExitStack() as stack:
        metadata, _ = await open_for_reading(settings, stack)
        is_damaged = False
        async for item in _items(metadata, options.group_ids):
            try:
                fields = dict(fields_of(item.key, item.value))
            except CorruptDataError as problem:
                is_damaged = True
                if options.as_json:
                    lines.write(as_line({"type": "problem", "key": item.key, "says": problem.problem}))
                lines.report(f"{item.key}: {problem.problem}")
                continue
            lines.write(as_line(fields) if options.as_json else line_of(fields, shown_name))
        return is_damaged


async def _items(metadata: MetadataReader, group_ids: Sequence[str]) -> AsyncIterator[KeyValue]:
    """Everything of the groups; of all groups, one shard after the other, so that no more is in memory."""
    for group_id in dict.fromkeys(group_ids):
        record = await metadata.get(keys.group(group_id))
        if record is not None:
            yield record
        async for item in _under(metadata, prefixes(group_id)):
            yield item
    if not group_ids:
        for shard in range(keys.GROUP_SHARD_COUNT):
            async for item in _under(metadata, shard_prefixes(shard)):
                yield item


async def _under(metadata: MetadataReader, of_some: Sequence[str]) -> AsyncIterator[KeyValue]:
    for prefix in of_some:
        for item in (await metadata.range(prefix)).items:
            yield item
