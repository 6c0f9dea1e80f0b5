"""Compares index entries with the batches that a segment really has, both in the order of the file. Pure."""

from collections.abc import Iterator

from kafscale.errors import CorruptDataError
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.protocol.record_batch import BatchHeader, walk_headers
from kafscale.tools.dump.findings import Problem
from kafscale.tools.dump.piece_reader import PieceReader


class IndexedBatches:
    """Goes through the batches' headers as far as the entries do. `interval`: messages between entries."""

    def __init__(self, segment: PieceReader, interval: int) -> None:
        self._name = segment.name
        self._interval = interval
        self._batches = walk_headers(
            segment.batch_header, HEADER_SIZE, segment.size_bytes - FOOTER_SIZE, segment.name
        )
        self._next: tuple[int, BatchHeader] | None = None
        self._problem = ""
        self._passed_records = 0
        self._last_position = HEADER_SIZE
        self._missing = 0
        self._first_missing = 0
        self._advance()

    def compare(self, offset: int, position: int) -> Iterator[Problem]:
        """The faults of the next entry. Entries come with increasing positions."""
        while self._next is not None and self._next[0] < position:
            self._pass(is_indexed=False)
        if self._next is None:
            yield from self._after_the_end(offset, position)
        elif self._next[0] != position:
            near = f"{self._last_position} and {self._next[0]}"
            yield _wrong(offset, position, f"no batch starts there; the nearest start at {near}")
        else:
            found = self._next[1].base_offset
            if found != offset:
                yield _wrong(offset, position, f"the batch there has the base offset {found}")
            self._pass(is_indexed=True)

    def finish(self) -> Iterator[Problem]:
        """The faults of the whole, after the last entry."""
        while self._next is not None:
            self._pass(is_indexed=False)
        if self._problem:
            yield Problem(text=f"compared with a part of its batches only: {self._problem}")
        if self._missing:
            yield Problem(
                text=f"{self._missing} entries are missing, the first for the batch at position "
                f"{self._first_missing}: one is due every {self._interval} messages"
            )

    def _after_the_end(self, offset: int, position: int) -> Iterator[Problem]:
        if not self._problem:
            last = self._last_position
            yield _wrong(offset, position, f"no batch starts there; the last one starts at {last}")

    def _pass(self, *, is_indexed: bool) -> None:
        assert self._next is not None
        position, header = self._next
        is_due = self._passed_records >= self._interval or position == HEADER_SIZE
        if is_due and not is_indexed:
            self._first_missing = self._first_missing or position
            self._missing += 1
        if is_due or is_indexed:
            self._passed_records = 0
        self._passed_records += header.record_count
        self._last_position = position
        self._advance()

    def _advance(self) -> None:
        try:
            self._next = next(self._batches, None)
        except CorruptDataError as problem:
            self._next = None
            self._problem = str(problem)


def _wrong(offset: int, position: int, problem: str) -> Problem:
    return Problem(text=f"entry of offset {offset} at position {position}: {problem}")
