"""Reads a file of any size in pieces: small ones where a reader jumps, large ones where it goes straight on."""

from collections.abc import Iterator
from typing import Protocol

from kafscale.errors import CorruptDataError
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.protocol.record_batch import BatchHeader, read_header
from kafscale.protocol.types import Buffer

MIN_PIECE_BYTES = 64 * 1024
MAX_PIECE_BYTES = 8 * 2**20


class ByteSource(Protocol):
    """A file or an object that does not change while it is read. `name` is for people."""

    @property
    def name(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self, start: int, length: int) -> bytes:
        """The bytes `start` to `start + length`, fewer where the source ends earlier."""


class PieceReader:
    """Holds one piece of a source. Its size doubles as long as reads follow each other."""

    def __init__(
        self,
        source: ByteSource,
        min_piece_bytes: int = MIN_PIECE_BYTES,
        max_piece_bytes: int = MAX_PIECE_BYTES,
    ) -> None:
        self._source = source
        self._min_piece_bytes = min_piece_bytes
        self._max_piece_bytes = max_piece_bytes
        self._piece_bytes = min_piece_bytes
        self._start = 0
        self._data = memoryview(b"")

    @property
    def name(self) -> str:
        return self._source.name

    @property
    def size_bytes(self) -> int:
        return self._source.size_bytes

    def view(self, position: int, length: int) -> memoryview:
        """The bytes there, fewer only at the end of the source; all of them are in memory.

        Raises `CorruptDataError` when the source is shorter than it was.
        """
        end = min(position + length, self.size_bytes)
        if position >= end:
            return memoryview(b"")
        if not self._start <= position <= end <= self._end:
            self._load(position, end - position)
        return self._data[position - self._start : end - self._start]

    def batch_header(self, position: int) -> BatchHeader:
        """The header of the batch there, unchecked. Raises `CorruptDataError` where it is cut."""
        return read_header(self.view(position, BATCH_HEADER_SIZE), 0)

    def aside(self, position: int, length: int) -> Buffer:
        """The bytes there, all inside the source, without leaving where `view` and `pieces` are.

        Raises `CorruptDataError`.
        """
        if self._start <= position and position + length <= self._end:
            return self.view(position, length)
        return self._read(position, length)

    def pieces(self, start: int, end: int) -> Iterator[memoryview]:
        """The bytes from `start` to `end`, both inside the source, in pieces. Raises `CorruptDataError`."""
        while start < end:
            if not self._start <= start < self._end:
                self._load(start, 1)
            stop = min(end, self._end)
            yield self._data[start - self._start : stop - self._start]
            start = stop

    @property
    def _end(self) -> int:
        return self._start + len(self._data)

    def _load(self, position: int, length: int) -> None:
        """Have at least `length` bytes from `position` on; what is there already is not read again."""
        goes_on = self._start <= position <= self._end + self._piece_bytes
        grown = min(self._piece_bytes * 2, self._max_piece_bytes)
        self._piece_bytes = grown if goes_on else self._min_piece_bytes
        kept = self._data[position - self._start :] if self._start <= position < self._end else b""
        start = position + len(kept)
        end = min(max(position + length, start + self._piece_bytes), self.size_bytes)
        data = self._read(start, end - start)
        self._start = position
        self._data = memoryview(b"".join((kept, data)) if kept else data)

    def _read(self, start: int, length: int) -> bytes:
        data = self._source.read(start, length)
        if len(data) != length:
            raise CorruptDataError(
                self.name, f"it ends at byte {start + len(data)}, when it was opened it had {self.size_bytes}"
            )
        return data
