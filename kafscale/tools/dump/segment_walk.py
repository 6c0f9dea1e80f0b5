"""The dump of a segment, from its header to its footer, past damage as far as it can be read.

Pure. Never more than a piece of the file, and of its records one batch, is in memory.
"""

from collections.abc import Iterator

from crc32c import crc32c

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.index import MAX_OFFSET
from kafscale.formats.object_keys import SegmentKey
from kafscale.formats.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
)
from kafscale.protocol.control_records import parse_control_record
from kafscale.protocol.record_batch import (
    ATTRIBUTES_POSITION,
    BatchHeader,
    absurdity,
    crc_problem,
    walk_headers,
)
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE
from kafscale.protocol.records import iterate_records
from kafscale.tools.dump.findings import (
    Finding,
    FoundBatch,
    FoundRecord,
    FoundSegmentFooter,
    FoundSegmentHeader,
    Look,
    Note,
    Problem,
)
from kafscale.tools.dump.index_walk import entry_for
from kafscale.tools.dump.piece_reader import PieceReader

MAX_RECORDS_BYTES = 128 * 2**20
"""Records of a batch that takes more than this, as it is stored or unpacked, are not shown: it may be a bomb."""


class SegmentWalk:
    """One walk. `key`: what the file's name says; `index`: the file beside it. Both may be None."""

    def __init__(
        self,
        reader: PieceReader,
        look: Look,
        *,
        key: SegmentKey | None = None,
        index: PieceReader | None = None,
        max_records_bytes: int = MAX_RECORDS_BYTES,
    ) -> None:
        self._reader = reader
        self._look = look
        self._key = key
        self._index = index
        self._max_records_bytes = max_records_bytes
        self._header: SegmentHeader | None = None
        self._footer: SegmentFooter | None = None
        self._footer_problem = ""
        self._body_end = reader.size_bytes
        # None: the body's CRC is not looked at.
        self._body_crc = 0 if look.verify and look.is_whole else None
        self._position = HEADER_SIZE
        self._first: BatchHeader | None = None
        self._last: BatchHeader | None = None
        self._record_count = 0
        self._is_broken = False

    def findings(self) -> Iterator[Finding]:
        """The findings, in the order of the file. Raises what the source's `read` raises."""
        try:
            yield from self._findings()
        except CorruptDataError as problem:
            yield Problem(text=_said(problem, self._reader.name))

    def _findings(self) -> Iterator[Finding]:
        try:
            self._header = parse_header(self._reader.name, self._reader.view(0, HEADER_SIZE))
            yield FoundSegmentHeader(header=self._header, size_bytes=self._reader.size_bytes)
        except UnknownFormatVersionError:
            raise
        except CorruptDataError as problem:
            yield Problem(text=f"header: {problem.problem}")
        self._read_footer()
        yield from self._seek()
        yield from self._batches()
        yield from self._end()

    def _read_footer(self) -> None:
        """First, because it says where the body ends. Without one that is the end of the file."""
        size = self._reader.size_bytes
        if size < HEADER_SIZE + FOOTER_SIZE:
            self._footer_problem = f"{size} bytes are too few for a segment's header and footer"
            return
        try:
            data = self._reader.aside(size - FOOTER_SIZE, FOOTER_SIZE)
            self._footer = parse_footer(self._reader.name, data)
            self._body_end = size - FOOTER_SIZE
        except CorruptDataError as problem:
            self._footer_problem = problem.problem

    def _seek(self) -> Iterator[Finding]:
        """Go where the index beside the file says that the wanted offset is, if that is true."""
        wanted = self._look.from_offset
        if wanted is None or self._index is None or self._header is None:
            return
        try:
            offset, position = entry_for(self._index, self._header.base_offset, wanted)
        except CorruptDataError as problem:
            yield Note(text=f"the index {self._index.name} is not used: {problem.problem}")
            return
        if self._is_batch(offset, position):
            self._position = position
        else:
            yield Note(
                text=f"the index {self._index.name} is not used: it says that offset {offset} is at position "
                f"{position}, where no sound batch with that base offset is"
            )

    def _is_batch(self, base_offset: int, position: int) -> bool:
        if not HEADER_SIZE <= position <= self._body_end - BATCH_HEADER_SIZE:
            return False
        header = self._reader.batch_header(position)
        if header.base_offset != base_offset or absurdity(header, self._body_end - position):
            return False
        return self._crc_of(position, header) == header.crc

    def _batches(self) -> Iterator[Finding]:
        shown = 0
        headers = walk_headers(self._reader.batch_header, self._position, self._body_end, self._reader.name)
        while shown != self._look.max_batches:
            try:
                found = next(headers, None)
            except CorruptDataError as problem:
                self._is_broken = True
                yield Problem(text=f"{problem.problem}; what follows cannot be read as batches")
                return
            if found is None:
                return
            self._position, header = found
            if self._look.from_offset is None or header.last_offset >= self._look.from_offset:
                shown += 1
                yield from self._batch(header)
            self._position += header.size_bytes

    def _at_batch(self, problem: str) -> Problem:
        return Problem(text=f"batch at position {self._position}: {problem}")

    def _batch(self, header: BatchHeader) -> Iterator[Finding]:
        is_read = self._look.verify or self._look.records
        if self._look.records and header.size_bytes <= self._max_records_bytes:
            self._reader.view(
                self._position, header.size_bytes
            )  # whole in memory before the CRC goes over it
        computed = self._crc_of(self._position, header) if is_read else header.crc
        is_valid = computed == header.crc
        yield FoundBatch(position=self._position, header=header, is_valid=is_valid if is_read else None)
        if not is_valid:
            yield self._at_batch(crc_problem(computed, header.crc))
        yield from self._oddities(header)
        self._first = self._first or header
        self._last = header
        self._record_count += header.record_count
        if self._look.records and is_valid:
            yield from self._records(header)

    def _oddities(self, header: BatchHeader) -> Iterator[Problem]:
        if self._last is not None and header.base_offset <= self._last.last_offset:
            yield self._at_batch(
                f"base offset {header.base_offset} is not after {self._last.last_offset}, the last offset before it"
            )
        if header.last_offset > MAX_OFFSET:
            yield self._at_batch(f"last offset {header.last_offset} is beyond Kafka's largest, {MAX_OFFSET}")
        try:
            _ = header.codec
        except CorruptDataError as problem:
            yield self._at_batch(problem.problem)

    def _crc_of(self, position: int, header: BatchHeader) -> int:
        """The batch's own CRC-32C; the body's goes along where it is wanted."""
        start = position + ATTRIBUTES_POSITION
        crc = 0
        if self._body_crc is not None:
            for piece in self._reader.pieces(position, start):
                self._body_crc = crc32c(piece, self._body_crc)
        for piece in self._reader.pieces(start, position + header.size_bytes):
            crc = crc32c(piece, crc)
            if self._body_crc is not None:
                self._body_crc = crc32c(piece, self._body_crc)
        return crc

    def _records(self, header: BatchHeader) -> Iterator[Finding]:
        limit = self._max_records_bytes
        if header.size_bytes > limit:
            yield self._at_batch(
                f"its {header.size_bytes} bytes are more than {limit}: records are not shown"
            )
            return
        try:
            batch = self._reader.view(self._position, header.size_bytes)
            for record in iterate_records(batch, limit):
                control = parse_control_record(record.key, record.value) if header.is_control else None
                yield FoundRecord(batch=header, record=record, control=control)
        except CorruptDataError as problem:
            yield self._at_batch(_said(problem, "record batch"))

    def _end(self) -> Iterator[Finding]:
        if self._footer is None:
            yield Problem(text=f"footer: {self._footer_problem}")
        else:
            yield from self._check_footer(self._footer)
        if self._look.is_whole and not self._is_broken:
            yield from self._check_whole()
        elif self._look.from_offset is not None and self._first is None and not self._is_broken:
            yield Note(text=f"no batch holds offset {self._look.from_offset} or a later one")

    def _check_footer(self, footer: SegmentFooter) -> Iterator[Finding]:
        if self._body_crc is None:
            yield FoundSegmentFooter(footer=footer, is_valid=None)
            return
        for piece in self._reader.pieces(self._position, self._body_end):
            self._body_crc = crc32c(piece, self._body_crc)
        yield FoundSegmentFooter(footer=footer, is_valid=self._body_crc == footer.body_crc)
        if self._body_crc != footer.body_crc:
            yield Problem(
                text=f"footer: the body's CRC-32C is {self._body_crc:#010x}, the footer says {footer.body_crc:#010x}"
            )

    def _check_whole(self) -> Iterator[Finding]:
        """Compare the batches with what header, footer and name say."""
        if self._first is None or self._last is None:
            yield Problem(text="a segment without a batch")
            return
        first, last, count = self._first.base_offset, self._last.last_offset, self._record_count
        if self._header is not None and self._header.base_offset != first:
            yield Problem(text=f"the first offset is {first}, the header says {self._header.base_offset}")
        if self._header is not None and self._header.message_count != count:
            yield Problem(
                text=f"the batches hold {count} records, the header says {self._header.message_count}"
            )
        if self._footer is not None and self._footer.last_offset != last:
            yield Problem(text=f"the last offset is {last}, the footer says {self._footer.last_offset}")
        if self._key is not None and self._key.base_offset != first:
            yield Problem(text=f"the first offset is {first}, the file's name says {self._key.base_offset}")
        if self._key is not None and self._key.last_offset not in (None, last):
            yield Problem(text=f"the last offset is {last}, the file's name says {self._key.last_offset}")


def _said(problem: CorruptDataError, name: str) -> str:
    """The problem without the name that stands beside it anyway."""
    return problem.problem if problem.name == name else str(problem)
