"""Counts the memory of unsent replies, beyond that of the caches."""

import weakref

from kafscale.log.reading.cached_segment import CachedSegment

# The limit of memory that unsent replies keep: segments that the cache has evicted, and copies of their own.
MAX_LINGERING_BYTES = 256 * 1024 * 1024


class ReplyMemory:
    """Segments that the cache has evicted while replies hold them, and the replies' copies."""

    def __init__(self) -> None:
        self._lingering: weakref.WeakSet[CachedSegment] = weakref.WeakSet()
        self._copied_bytes = 0

    def linger(self, segment: CachedSegment) -> None:
        """Count a segment that the cache has evicted, while a reply holds it."""
        if segment.is_held:
            self._lingering.add(segment)

    def copied(self, size_bytes: int) -> None:
        """Count the copy of a reply; a negative size once the reply is sent."""
        self._copied_bytes += size_bytes

    @property
    def is_too_much(self) -> bool:
        """True if clients that are slow to read their replies keep too much; no reply should add to it."""
        lingering = sum(segment.size_bytes for segment in self._lingering if segment.is_held)
        return lingering + self._copied_bytes > MAX_LINGERING_BYTES
