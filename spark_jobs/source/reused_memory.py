"""Memory for Arrow buffers that is used again once nobody holds what was made of it.

Pages that a process gets anew cost more than what is copied into them, and an allocator gives large pieces back at
once. Spark's Python workers let go of a batch before they ask for the one after the next.
"""

import sys
import threading

import numpy as np
import numpy.typing as npt
import pyarrow as pa

ALIGNMENT_BYTES = 64
"""What Arrow recommends for its buffers."""

# The list, the variable of the loop, and the argument of the function that counts.
_REFERENCES_WHEN_FREE = 3

_Memory = npt.NDArray[np.uint8]


class ReusedMemory:
    """Keeps up to `max_kept` pieces of `size_bytes`; what there is beside those is given back after its use."""

    def __init__(self, size_bytes: int, max_kept: int) -> None:
        self.size_bytes = size_bytes
        self._max_kept = max_kept
        self._kept: list[_Memory] = []
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> pa.Buffer:
        """A buffer of at least that size, with anything in it. It is taken until it and its slices are gone."""
        if size_bytes > self.size_bytes:
            return pa.py_buffer(np.empty(size_bytes, np.uint8))
        with self._lock:
            for memory in self._kept:
                # A buffer holds the memory that it was made of, and a slice of one what the buffer holds.
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
    """How much of a buffer a part of it takes."""
    return -(-size_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
