"""The memory that records are written into, column by column, and the Arrow record batch made of it."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafscale.arrow import record_walk as walk
from kafscale.arrow.columns import ARROW_HEADER, ARROW_HEADERS, ARROW_TIMESTAMP, arrow_schema
from kafscale.arrow.reused_memory import Divider, ReusedMemory, aligned

MAX_ROWS = 10_000
"""Spark's own Arrow batches have as many."""

MAX_BYTES = 2 * 1024 * 1024
"""The size of a batch's records, unless one record is larger.

Spark reads a batch into one piece of memory. Up to 4 MiB come from a pool; larger pieces are new pages from the
system, and are given back to it.
"""

MAX_HEADERS = 64 * 1024

State = npt.NDArray[np.int64]

# One batch is being filled, one is in flight to Spark, and one may be in use between them.
_MEMORY_KEPT = 3


def _size_bytes(max_bytes: int, max_headers: int) -> int:
    """The memory of all columns, as `ColumnBuffers` divides it."""
    fixed = 2 * aligned(8 * MAX_ROWS) + aligned(4 * MAX_ROWS) + aligned(4 * (MAX_ROWS + 1))
    values = 4 * aligned(max_bytes)
    for count in (MAX_ROWS, MAX_ROWS, max_headers, max_headers):
        values += aligned(4 * (count + 1)) + aligned(count)
    return fixed + values


# The system gives no pages for the part that is not written.
_memory = ReusedMemory(_size_bytes(MAX_BYTES, MAX_HEADERS), _MEMORY_KEPT)


# The constant columns are made of buffers: with the first scalar that Arrow makes of a Python object it imports
# pandas, if it is installed, for half a second of processor time.


def repeated_text(text: str, count: int) -> pa.Array:
    """An Arrow string column with `count` times the text."""
    raw = text.encode()
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(len(raw))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(raw * count)], 0)


class PartitionRuns:
    """The partitions of the rows of a record batch: neighbours that are of one partition are a run."""

    def __init__(self) -> None:
        self._partitions: list[int] = []
        self._starts: list[int] = []

    def begin(self, partition: int, row: int) -> None:
        """The rows from `row` on are of this partition."""
        if not self._partitions or self._partitions[-1] != partition:
            self._partitions.append(partition)
            self._starts.append(row)

    def take(self, rows: int) -> pa.Array:
        """The column of the batch; the next one goes on with the last partition."""
        counts = np.diff([*self._starts, rows])
        column = np.repeat(np.array(self._partitions, np.int32), counts)
        del self._partitions[:-1]
        self._starts = [0]
        return pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(column)], 0)


class ColumnBuffers:
    """Room for the rows of one record batch, and the state of the walk that fills it."""

    def __init__(self, max_bytes: int = MAX_BYTES, max_headers: int = MAX_HEADERS) -> None:
        memory = Divider(_memory.take(_size_bytes(max_bytes, max_headers)))
        self._offsets = memory.next(8 * MAX_ROWS)
        self._times = memory.next(8 * MAX_ROWS)
        self._kinds = memory.next(4 * MAX_ROWS)
        self._header_ends = memory.next(4 * (MAX_ROWS + 1))
        self._keys = _Values(memory, MAX_ROWS, max_bytes)
        self._values = _Values(memory, MAX_ROWS, max_bytes)
        self._names = _Values(memory, max_headers, max_bytes)
        self._header_values = _Values(memory, max_headers, max_bytes)
        self.state: State = np.zeros(walk.STATE_FIELDS, np.int64)
        self.state[walk.MAX_ROWS :] = (
            MAX_ROWS,
            max_bytes,
            max_headers,
            self._offsets.address,
            self._times.address,
            self._kinds.address,
            *self._keys.addresses,
            *self._values.addresses,
            self._header_ends.address,
            *self._names.addresses,
            *self._header_values.addresses,
        )

    def record_batch(
        self, topics: pa.Array, partitions: pa.Array, *, include_headers: bool
    ) -> pa.RecordBatch:
        """The appended rows. The buffers belong to the batch from here on.

        `topics` is a constant column of `MAX_ROWS`, `partitions` that of the rows.
        """
        state = self.state.tolist()
        rows = state[walk.ROWS]
        arrays = [
            self._keys.array(pa.binary(), rows, state[walk.KEY_BYTES]),
            self._values.array(pa.binary(), rows, state[walk.VALUE_BYTES]),
            topics.slice(0, rows),
            partitions,
            pa.Array.from_buffers(pa.int64(), rows, [None, self._offsets], 0),
            self._timestamps(rows, state[walk.ROWS_WITHOUT_TIME]),
            pa.Array.from_buffers(pa.int32(), rows, [None, self._kinds], 0),
        ]
        if include_headers:
            arrays.append(self._headers(state, rows))
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(include_headers))

    def _timestamps(self, rows: int, without: int) -> pa.Array:
        validity, nulls = None, 0
        if without:
            validity, nulls = _validity(np.frombuffer(self._times, np.int64, rows) != walk.NO_TIME)
        return pa.Array.from_buffers(ARROW_TIMESTAMP, rows, [validity, self._times], nulls)

    def _headers(self, state: list[int], rows: int) -> pa.Array:
        count = state[walk.HEADERS]
        if not count:
            return pa.nulls(rows, ARROW_HEADERS)
        names = self._names.text(count, state[walk.NAME_BYTES])
        values = self._header_values.array(pa.binary(), count, state[walk.HEADER_BYTES])
        headers = pa.Array.from_buffers(ARROW_HEADER, count, [None], 0, children=[names, values])
        has_some = np.diff(np.frombuffer(self._header_ends, np.int32, rows + 1)) != 0
        validity, nulls = _validity(has_some)
        return pa.Array.from_buffers(
            ARROW_HEADERS, rows, [validity, self._header_ends], nulls, children=[headers]
        )


class _Values:
    """Values of varying length: their ends, validity and bytes."""

    def __init__(self, memory: Divider, max_count: int, max_bytes: int) -> None:
        self._ends = memory.next(4 * (max_count + 1))
        self._is_there = memory.next(max_count)
        self._content = memory.next(max_bytes)
        self.addresses = self._ends.address, self._is_there.address, self._content.address

    def array(self, of_type: pa.DataType, count: int, size_bytes: int) -> pa.Array:
        validity, nulls = _validity(np.frombuffer(self._is_there, np.uint8, count))
        content = self._content.slice(0, size_bytes)
        return pa.Array.from_buffers(of_type, count, [validity, self._ends, content], nulls)

    def text(self, count: int, size_bytes: int) -> pa.Array:
        """As UTF-8, none of them null; invalid bytes are replaced as `kafscale.protocol.records` does."""
        content = self._content.slice(0, size_bytes)
        text = pa.Array.from_buffers(pa.string(), count, [None, self._ends, content], 0)
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            raw = pa.Array.from_buffers(pa.binary(), count, [None, self._ends, content], 0)
            return pa.array([name.decode("utf-8", "replace") for name in raw.to_pylist()], pa.string())
        return text


def _validity(is_there: npt.NDArray[Any]) -> tuple[pa.Buffer | None, int]:
    """Arrow's validity bits and the number of nulls; no bits without nulls."""
    nulls = is_there.size - int(np.count_nonzero(is_there))
    return (pa.py_buffer(np.packbits(is_there, bitorder="little")) if nulls else None), nulls
