"""Walks an index of either version and compares it with the segment beside it, or finds one entry of it.

Pure. Never more than a piece of either file is in memory.
"""

from collections.abc import Iterator
from itertools import islice

from kafscale.errors import CorruptDataError
from kafscale.formats.index import (
    ENTRY_SIZE,
    HEADER_SIZE,
    LARGE_VERSION,
    MAX_OFFSET,
    IndexHeader,
    parse_index_header,
    read_entries,
)
from kafscale.formats.object_keys import SegmentKey
from kafscale.formats.segment import HEADER_SIZE as SEGMENT_HEADER_SIZE
from kafscale.formats.segment import parse_header as parse_segment_header
from kafscale.tools.dump.findings import Finding, FoundEntry, FoundIndexHeader, Look, Note, Problem
from kafscale.tools.dump.indexed_batches import IndexedBatches
from kafscale.tools.dump.piece_reader import PieceReader

_ENTRIES_AT_ONCE = 4096


class IndexWalk:
    """One walk. `key`: what the file's name says; `segment`: the file beside it. Both may be None."""

    def __init__(
        self,
        reader: PieceReader,
        look: Look,
        *,
        key: SegmentKey | None = None,
        segment: PieceReader | None = None,
    ) -> None:
        self._reader = reader
        self._look = look
        self._key = key
        self._segment = segment
        self._base_offset: int | None = None
        self._batches: IndexedBatches | None = None

    def findings(self) -> Iterator[Finding]:
        """The findings, in the order of the file. Raises what the sources' `read` raises."""
        try:
            yield from self._findings()
        except CorruptDataError as problem:
            yield Problem(text=problem.problem if problem.name == self._reader.name else str(problem))

    def _findings(self) -> Iterator[Finding]:
        size = self._reader.size_bytes
        header = parse_index_header(self._reader.name, self._reader.view(0, HEADER_SIZE))
        problem = self._find_base_offset()
        yield FoundIndexHeader(
            version=header.version,
            entry_count=header.entry_count,
            interval=header.interval,
            base_offset=self._base_offset,
            size_bytes=size,
        )
        if header.entry_count * ENTRY_SIZE != size - HEADER_SIZE:
            yield Problem(
                text=f"{header.entry_count} entries do not fill the {size - HEADER_SIZE} bytes after the header"
            )
        elif not header.entry_count:
            yield Problem(text="an index without an entry")
        if self._look.verify:
            yield from self._prepare_comparison(header, problem)
        yield from self._walk(header)
        if self._batches is not None and self._look.is_whole:
            yield from self._batches.finish()

    def _find_base_offset(self) -> str:
        """From the segment, else from the name; what is wrong with the segment's header, if anything."""
        self._base_offset = None if self._key is None else self._key.base_offset
        if self._segment is None:
            return ""
        try:
            header = parse_segment_header(self._segment.name, self._segment.view(0, SEGMENT_HEADER_SIZE))
        except CorruptDataError as problem:
            return str(problem)
        self._base_offset = header.base_offset
        return ""

    def _prepare_comparison(self, header: IndexHeader, problem: str) -> Iterator[Finding]:
        if self._segment is None:
            yield Note(text="there is no segment beside it: its entries are not compared with the batches")
        elif problem:
            yield Problem(text=f"its entries are not compared with the batches: {problem}")
        else:
            self._batches = IndexedBatches(self._segment, header.interval)

    def _walk(self, header: IndexHeader) -> Iterator[Finding]:
        is_relative = header.version == LARGE_VERSION and self._base_offset is None
        last: tuple[int, int] | None = None
        for offset, position in islice(self._wanted(header), self._look.max_batches):
            yield FoundEntry(offset=offset, position=position, is_relative=is_relative)
            problem = self._fault(offset, position, last, is_relative=is_relative)
            if problem:
                yield Problem(text=f"entry of offset {offset} at position {position}: {problem}")
            elif self._batches is not None:
                yield from self._batches.compare(offset, position)
            last = offset, position

    def _fault(self, offset: int, position: int, last: tuple[int, int] | None, *, is_relative: bool) -> str:
        """The fault of an entry by itself; empty for none."""
        if offset > MAX_OFFSET:
            return f"the offset is beyond Kafka's largest, {MAX_OFFSET}"
        if last is not None:
            return "" if offset > last[0] and position > last[1] else "it is not after the one before it"
        if self._look.from_offset is not None:
            return ""
        base_offset = 0 if is_relative else self._base_offset
        if base_offset is not None and offset != base_offset:
            return f"the first entry is not that of the first offset, {base_offset}"
        if position != SEGMENT_HEADER_SIZE:
            return f"the first batch is at position {SEGMENT_HEADER_SIZE}"
        return ""

    def _wanted(self, header: IndexHeader) -> Iterator[tuple[int, int]]:
        """The entries, from the last one at or before the offset that is wanted."""
        wanted = self._look.from_offset
        held: tuple[int, int] | None = None
        for entry in self._entries(header):
            if wanted is not None and entry[0] <= wanted:
                held = entry
                continue
            if held is not None:
                yield held
            wanted = held = None
            yield entry
        if held is not None:
            yield held

    def _entries(self, header: IndexHeader) -> Iterator[tuple[int, int]]:
        end = min(HEADER_SIZE + header.entry_count * ENTRY_SIZE, self._reader.size_bytes)
        for start in range(HEADER_SIZE, end, _ENTRIES_AT_ONCE * ENTRY_SIZE):
            length = min(end - start, _ENTRIES_AT_ONCE * ENTRY_SIZE)
            yield from read_entries(self._reader.view(start, length), header.version, self._base_offset or 0)


def entry_for(index: PieceReader, base_offset: int, offset: int) -> tuple[int, int]:
    """(offset, position) of the last entry at or before `offset`, else of the first, without reading the rest.

    `base_offset`: the segment's. The result must be checked against the segment. Raises `CorruptDataError`.
    """
    header = parse_index_header(index.name, index.view(0, HEADER_SIZE))
    count = min(header.entry_count, (index.size_bytes - HEADER_SIZE) // ENTRY_SIZE)
    if not count:
        raise CorruptDataError(index.name, "an index without an entry")

    def entry(number: int) -> tuple[int, int]:
        data = index.view(HEADER_SIZE + number * ENTRY_SIZE, ENTRY_SIZE)
        return read_entries(data, header.version, base_offset)[0]

    low, high = 0, count - 1
    while low < high:
        middle = (low + high + 1) // 2
        if entry(middle)[0] <= offset:
            low = middle
        else:
            high = middle - 1
    return entry(low)
