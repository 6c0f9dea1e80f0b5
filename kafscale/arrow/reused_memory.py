"""Memory for Arrow buffers that is used again once no Arrow object refers to it.

New pages of a process cost more than the copy into them, and an allocator gives large pieces back at once. Spark's
Python workers release a batch before they request the one after the next.
"""

import sys
import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ALIGNMENT_BYTES = 64
"""Arrow's recommended alignment of buffers."""

_Memory = npt.NDArray[np.uint8]


def _references(kept: list[_Memory]) -> list[int]:
    """The number of references to each; at least that of the list is among them."""
    return [sys.getrefcount(memory) for memory in kept]


# Counted in the same way: from Python 3.14 on a call does not always add a reference for its argument.
_REFERENCES_WHEN_FREE = _references([np.empty(0, np.uint8)])[0]


class ReusedMemory:
    """Keeps up to `max_kept` pieces of `size_bytes`; further ones are given back after their use."""

    def __init__(self, size_bytes: int, max_kept: int) -> None:
        self.size_bytes = size_bytes
        self._max_kept = max_kept
        self._kept: list[_Memory] = []
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> pa.Buffer:
        """A buffer of at least that size, with any content. It is in use until it and its slices are gone."""
        if size_bytes > self.size_bytes:
            return pa.py_buffer(np.empty(size_bytes, np.uint8))
        with self._lock:
            # A buffer refers to the memory that it was made of, and a slice of one to the same memory.
            references = _references(self._kept)
            if _REFERENCES_WHEN_FREE in references:
                return pa.py_buffer(self._kept[references.index(_REFERENCES_WHEN_FREE)])
            memory = np.empty(self.size_bytes, np.uint8)
            if len(self._kept) < self._max_kept:
                self._kept.append(memory)
            return pa.py_buffer(memory)


class Divider:
    """Hands out one buffer part by part."""

    def __init__(self, buffer: pa.Buffer) -> None:
        self._buffer = buffer
        self._used_bytes = 0

    def next(self, size_bytes: int) -> pa.Buffer:
        """The next part."""
        part = self._buffer.slice(self._used_bytes, size_bytes)
        self._used_bytes += aligned(size_bytes)
        return part


def aligned(size_bytes: int) -> int:
    """The aligned size of a part of a buffer."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
