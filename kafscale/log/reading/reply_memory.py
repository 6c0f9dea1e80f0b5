"""Counts the memory of replies that have not left yet, beyond what the caches hold."""

import weakref

from kafscale.log.reading.cached_segment import CachedSegment

# What replies that have not left may keep of memory that the cache has let go of, or that is theirs alone.
MAX_LINGERING_BYTES = 256 * 1024 * 1024


class ReplyMemory:
    """Segments that the cache has let go of while replies hold them, and copies that replies hold."""

    def __init__(self) -> None:
        self._lingering: weakref.WeakSet[CachedSegment] = weakref.WeakSet()
        self._copied_bytes = 0

    def linger(self, segment: CachedSegment) -> None:
        """The cache has let go of the segment; somebody may hold it."""
        if segment.is_held:
            self._lingering.add(segment)

    def copied(self, size_bytes: int) -> None:
        """A reply has a copy of so many bytes; they are less than none when it has left."""
        self._copied_bytes += size_bytes

    @property
    def is_too_much(self) -> bool:
        """Whether clients that are slow to take their replies keep too much; no reply should add to it."""
        lingering = sum(segment.size_bytes for segment in self._lingering if segment.is_held)
        return lingering + self._copied_bytes > MAX_LINGERING_BYTES
