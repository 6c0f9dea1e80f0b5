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

# References: the list, the loop's variable, and the argument of the function that counts.
_REFERENCES_WHEN_FREE = 3

_Memory = npt.NDArray[np.uint8]


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
            for memory in self._kept:
                # A buffer refers to the memory that it was made of, and a slice of one to the same memory.
                if sys.getrefcount(memory) == _REFERENCES_WHEN_FREE:
                    return pa.py_buffer(memory)
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
