"""Reads slices for sealing: a small one with its whole entry, once for all partitions."""

from kafscale.cache.lru import ByteLimitedLru
from kafscale.cache.single_flight import SingleFlight
from kafscale.formats.journal_keys import is_entry_key
from kafscale.formats.segment import HEADER_SIZE
from kafscale.objects.object_store import ObjectReader

SMALL_BYTES = 256 * 1024
CACHE_BYTES = 64 * 1024 * 1024


def _drop(entry: bytes) -> None:
    """An entry that leaves the cache."""


class EntryReads:
    """Ranges of objects; those of entries are cut from the whole entry, of which the newest ones are kept."""

    def __init__(self, objects: ObjectReader) -> None:
        self._objects = objects
        self._entries: ByteLimitedLru[str, bytes] = ByteLimitedLru(CACHE_BYTES, _drop)
        self._loads: SingleFlight[str, bytes] = SingleFlight()

    async def get_range(self, key: str, start: int, length: int) -> bytes:
        """See `ObjectReader`."""
        # What is no longer than a header is one: no slice is so short.
        if not HEADER_SIZE < length <= SMALL_BYTES or not is_entry_key(key):
            return await self._objects.get_range(key, start, length)
        entry = self._entries.get(key)
        if entry is None:
            entry = await self._loads.run(key, lambda: self._load(key))
        return entry[start : start + length]

    async def _load(self, key: str) -> bytes:
        entry = await self._objects.get(key)
        self._entries.put(key, entry, len(entry))
        return entry

    async def close(self) -> None:
        """Cancel the reads in progress."""
        await self._loads.close()
