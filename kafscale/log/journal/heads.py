"""Reads the heads of a journal's entries, many at a time."""

import asyncio
from collections.abc import Iterable

from kafscale.errors import ObjectNotFoundError
from kafscale.formats.journal_entry import EntryHead, Fence, decode_cell, head_bytes
from kafscale.formats.journal_keys import entry_key
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.object_store import ObjectReader

FIRST_READ_BYTES = 64 * 1024
"""Usually a head is not longer, so that one request has all of it."""
READS_AT_ONCE = 32


async def read_head(objects: ObjectReader, key: str) -> tuple[EntryHead | Fence, int]:
    """What lies under the key, and where its slices begin.

    Raises `ObjectNotFoundError`, `CorruptDataError`, and what the store raises.
    """
    data = await objects.get_range(key, 0, FIRST_READ_BYTES)
    size = head_bytes(key, data)
    if size > len(data):
        data += await objects.get_range(key, len(data), size - len(data))
    return decode_cell(key, data), size


async def read_heads(
    objects: ObjectReader, namespace: str, journal_id: str, sequences: Iterable[int], retries: StoreRetries
) -> dict[int, tuple[EntryHead, int]]:
    """The heads of those entries that are there, by sequence, and where their slices begin; fences are left out.

    Each is read again until the store answers: of many, some may always fail. Raises `CorruptDataError`, and what no
    retry would change.
    """
    found: dict[int, tuple[EntryHead, int]] = {}
    places = asyncio.Semaphore(READS_AT_ONCE)

    async def read(sequence: int) -> None:
        async with places:
            key = entry_key(namespace, journal_id, sequence)
            try:
                head, size = await retries.until_done(lambda: read_head(objects, key), key)
            except ObjectNotFoundError:
                return
        if isinstance(head, EntryHead):
            found[sequence] = head, size

    reads = [asyncio.ensure_future(read(sequence)) for sequence in sequences]
    try:
        await asyncio.gather(*reads)
    finally:
        # Not a TaskGroup: it would wrap the error.
        for one in reads:
            one.cancel()
        await asyncio.gather(*reads, return_exceptions=True)
    return found
