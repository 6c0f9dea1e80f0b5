"""Makes Arrow record batches of Kafka's record batches, in compiled code, without an object for each record."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from kafscale.arrow import record_walk as walk
from kafscale.arrow.column_buffers import (
    MAX_BYTES,
    MAX_HEADERS,
    MAX_ROWS,
    ColumnBuffers,
    PartitionRuns,
    repeated_text,
)
from kafscale.errors import CorruptDataError
from kafscale.protocol.compression import (
    CODECS,
    Codec,
    DecompressedTooLargeError,
    decompress,
    decompress_into_room,
)
from kafscale.protocol.record_batch import CODEC_MASK, HEADER_SIZE
from kafscale.protocol.record_batch import walk as walk_batches
from kafscale.protocol.records import iterate_records
from kafscale.protocol.types import Buffer
from kafscale.reader.stored_batches import StoredBatches

MAX_RECORDS_BYTES = 1024**3
"""The limit on one batch's records, decompressed."""

# This many batches are looked up at a time.
_TABLE_ROWS = 1024
# This much is decompressed before it is divided into columns, so that it is still in the processor's cache then.
# A batch that needs more gets more; larger ones than that get memory of their own, each.
_SCRATCH_BYTES = 512 * 1024
_MAX_SCRATCH_BYTES = 32 * 1024 * 1024


def record_columns(
    stored: Iterable[StoredBatches],
    topic: str,
    *,
    include_headers: bool,
    on_skipped: Callable[[int], None] = lambda _: None,
) -> Iterator[pa.RecordBatch]:
    """The wanted records, in order, in batches of up to `MAX_ROWS` rows and about `MAX_BYTES`.

    The schema is `arrow_schema(include_headers)`. Control batches and those of aborted transactions are skipped by
    their headers; `on_skipped` is called with the number of their records. The memory of `stored` may be used again
    once the next ones are requested. A timestamp that microseconds cannot represent becomes null: one
    producer cannot keep a topic from being read. Raises `CorruptDataError` for records that break their format, and
    the errors of `stored`.
    """
    writer = _ColumnWriter(topic, include_headers, on_skipped)
    for batches in stored:
        yield from writer.append(batches)
    yield from writer.finish()


class _ColumnWriter:
    def __init__(self, topic: str, include_headers: bool, on_skipped: Callable[[int], None]) -> None:
        self._on_skipped = on_skipped
        self._include_headers = include_headers
        self._topics = repeated_text(topic, MAX_ROWS)
        self._partitions = PartitionRuns()
        self._buffers = ColumnBuffers()
        self._table = np.empty((_TABLE_ROWS, walk.TABLE_COLUMNS), np.int64)
        self._table_address = _address(self._table)
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._scratch_address = _address(self._scratch)
        self._last_size_bytes = 0

    def append(self, batches: StoredBatches) -> Iterator[pa.RecordBatch]:
        """Take all of them; yields the batches that become full."""
        self._partitions.begin(batches.partition, int(self._buffers.state[walk.ROWS]))
        data, end = _address(batches.data), len(batches.data)
        found = np.zeros(3, np.int64)
        # Without a row there is no address.
        aborted = _address(batches.aborted.table) if batches.aborted else 0
        wanted = batches.first_offset, batches.next_offset
        position = 0
        while position < end:
            position = walk.list_batches(
                data,
                position,
                end,
                *wanted,
                self._table_address,
                _TABLE_ROWS,
                _address(found),
                aborted,
                len(batches.aborted),
            )
            count, last_position, skipped = found.tolist()
            if position == walk.BROKEN_AT:
                raise _broken_batch(batches, last_position)
            if skipped:
                self._on_skipped(skipped)
            for begin, end_of_run, _ in self._runs(batches, count):
                yield from self._append_run(batches, begin, end_of_run)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """The rest."""
        if self._buffers.state[walk.ROWS]:
            yield self._take()

    def _runs(self, batches: StoredBatches, count: int) -> Iterator[tuple[int, int, Buffer]]:
        """Divide the table's first rows: yields the row ranges whose records are decompressed, and their memory.

        That memory is valid until the next range is requested.
        """
        codecs = (self._table[:count, walk.ATTRIBUTES] & CODEC_MASK).tolist()
        base = _address(batches.data)
        records = (self._table[:count, walk.RECORDS_START : walk.RECORDS_END + 1] - base).tolist()
        row = 0
        while row < count:
            begin = row
            held: Buffer = batches.data
            while row < count and not codecs[row]:
                row += 1
            if row == begin:
                row, held = self._decompress_from(batches, codecs, records, row)
            yield begin, row, held

    def _decompress_from(
        self, batches: StoredBatches, codecs: list[int], records: list[list[int]], row: int
    ) -> tuple[int, Buffer]:
        """Decompress neighbours, one or as many as fit the scratch; returns the row after them, and their memory."""
        begin, used = row, 0
        while row < len(codecs) and codecs[row]:
            # Another one would hardly fit, which only decompressing it would show.
            if row > begin and len(self._scratch) - used < self._last_size_bytes:
                break
            start, end = records[row]
            stored = batches.data[start:end]
            try:
                codec = _codec(codecs[row])
                size_bytes = decompress_into_room(codec, stored, self._scratch[used:])
            except DecompressedTooLargeError:
                if row > begin:
                    break
                if 2 * len(self._scratch) <= min(_MAX_SCRATCH_BYTES, MAX_RECORDS_BYTES):
                    self._scratch = memoryview(bytearray(2 * len(self._scratch)))
                    self._scratch_address = _address(self._scratch)
                    continue
                return row + 1, self._decompress_large(batches, codec, stored, row)
            except CorruptDataError as problem:
                raise _broken_records(batches, start - HEADER_SIZE) from problem
            self._place(row, self._scratch_address + used, size_bytes)
            self._last_size_bytes = size_bytes
            used += size_bytes
            row += 1
        return row, self._scratch

    def _decompress_large(
        self, batches: StoredBatches, codec: Codec, stored: memoryview, row: int
    ) -> bytes | memoryview:
        try:
            records = decompress(codec, stored, MAX_RECORDS_BYTES)
        except CorruptDataError as problem:
            raise _broken_records(batches, int(self._table[row, walk.POSITION])) from problem
        self._place(row, _address(records), len(records))
        return records

    def _place(self, row: int, address: int, size_bytes: int) -> None:
        self._table[row, walk.RECORDS_START] = address
        self._table[row, walk.RECORDS_END] = address + size_bytes

    def _append_run(self, batches: StoredBatches, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Append the batches from row `begin` to before row `end` of the table."""
        self._buffers.state[: walk.ROWS] = begin, 0, 0
        while True:
            state = self._buffers.state
            result = walk.append_records(
                self._table_address,
                end,
                batches.first_offset,
                batches.next_offset,
                self._include_headers,
                _address(state),
            )
            if result == walk.DONE:
                return
            if result == walk.BROKEN:
                raise _broken_records(batches, int(self._table[state[walk.AT_BATCH], walk.POSITION]))
            if state[walk.ROWS]:
                yield self._take()
            else:
                self._exchange(
                    max(MAX_BYTES, int(state[walk.WANTED_BYTES])),
                    max(MAX_HEADERS, int(state[walk.WANTED_HEADERS])),
                )

    def _take(self) -> pa.RecordBatch:
        taken = self._buffers.record_batch(
            self._topics,
            self._partitions.take(int(self._buffers.state[walk.ROWS])),
            include_headers=self._include_headers,
        )
        self._exchange(MAX_BYTES, MAX_HEADERS)
        return taken

    def _exchange(self, max_bytes: int, max_headers: int) -> None:
        """Continue with other, empty columns at the same place of the walk."""
        place = self._buffers.state[: walk.ROWS]
        self._buffers = ColumnBuffers(max_bytes, max_headers)
        self._buffers.state[: walk.ROWS] = place


def _address(memory: Any) -> int:
    address: int = pa.py_buffer(memory).address
    return address


def _codec(number: int) -> Codec:
    if number >= len(CODECS):
        raise CorruptDataError(
            "record batch", f"compression codec {number} is not one of 0 to {len(CODECS) - 1}"
        )
    return CODECS[number]


def _broken_batch(batches: StoredBatches, position: int) -> CorruptDataError:
    """The problem of the batch at `position`, in the words of the reader of headers."""
    try:
        for _ in walk_batches(batches.data[position:], 0, len(batches.data) - position, batches.name):
            break
    except CorruptDataError as problem:
        return problem
    return CorruptDataError(batches.name, f"the batch at byte {position} of its body cannot be")


def _broken_records(batches: StoredBatches, position: int) -> CorruptDataError:
    """The problem of the batch's records."""
    try:
        for _ in iterate_records(batches.data[position:], MAX_RECORDS_BYTES):
            pass
    except CorruptDataError as problem:
        return CorruptDataError(batches.name, f"the batch at byte {position}: {problem.problem}")
    return CorruptDataError(batches.name, f"the batch at byte {position} holds records that cannot be")
