"""Reads the heads of a journal's entries, many at a time."""

import asyncio
from collections.abc import Iterable

from kafscale.errors import CorruptDataError, ObjectNotFoundError
from kafscale.formats.journal_entry import EntryHead, Fence, decode_cell, decode_gathered, head_bytes
from kafscale.formats.journal_keys import entry_key
from kafscale.log.writing.store_retries import StoreRetries
from kafscale.objects.object_store import ObjectReader

FIRST_READ_BYTES = 64 * 1024
"""Usually a head is not longer, so that one request has all of it."""
READS_AT_ONCE = 32


async def read_head(objects: ObjectReader, key: str) -> tuple[EntryHead | Fence, int]:
    """The entry or fence under the key, and the position at which its slices begin.

    Raises `ObjectNotFoundError`, `CorruptDataError`, and what the store raises.
    """
    data, size = await _head_data(objects, key)
    return decode_cell(key, data), size


async def read_gathered_head(objects: ObjectReader, key: str) -> tuple[EntryHead, int]:
    """The head of a gathered object, and where its slices begin. Raises as `read_head`."""
    data, size = await _head_data(objects, key)
    return decode_gathered(key, data), size


async def _head_data(objects: ObjectReader, key: str) -> tuple[bytes, int]:
    data = await objects.get_range(key, 0, FIRST_READ_BYTES)
    size = head_bytes(key, data)
    if size > len(data):
        data += await objects.get_range(key, len(data), size - len(data))
    return data, size


async def read_heads(
    objects: ObjectReader,
    namespace: str,
    journal_id: str,
    sequences: Iterable[int],
    retries: StoreRetries,
    damaged: dict[int, CorruptDataError] | None = None,
) -> dict[int, tuple[EntryHead, int]]:
    """The heads of those entries that are there, by sequence, and where their slices begin; fences are left out.

    Each is read again until the store answers: of many, some may always fail. `damaged` takes what is wrong with
    heads that cannot be read; without it, the first of them raises `CorruptDataError`. Raises what no retry would
    change.
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
            except CorruptDataError as problem:
                if damaged is None:
                    raise
                damaged[sequence] = problem
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
