"""The walk over a whole segment, from header to footer, as its file arrives piece by piece.

Pure. Every reader of whole segments is this walk with a visitor: the scan for an index, the inspection for merging,
fsck and recovery. Memory: one piece, and what has arrived of one batch.
"""

import sys
from collections.abc import Callable

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_walk import BatchWalk, BrokenChainError, Chain
from kafscale.formats.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    parse_footer,
    parse_header,
)
from kafscale.memory.pieces import Pieces
from kafscale.protocol.record_batch import BatchHeader


class SegmentWalk:
    """One file of `size_bytes`, fed from its first byte to its last; `finish` returns its header and footer.

    Both raise `CorruptDataError` that says `name`, `UnknownFormatVersionError` among them. `first_offset`: the base
    offset of the first batch; None for any. The other options are those of `BatchWalk`.
    """

    def __init__(
        self,
        name: str,
        size_bytes: int,
        *,
        first_offset: int | None = None,
        checks_crcs: bool = True,
        interval: int = sys.maxsize,
        chunk_bytes: int = sys.maxsize,
        visit: Callable[[int, BatchHeader], None] | None = None,
    ) -> None:
        if size_bytes < HEADER_SIZE + FOOTER_SIZE:
            raise CorruptDataError(name, f"{size_bytes} bytes are too few for a segment's header and footer")
        self._name = name
        self._size_bytes = size_bytes
        self._body_end = size_bytes - FOOTER_SIZE
        self._batches = BatchWalk(
            name,
            HEADER_SIZE,
            first_offset or 0,
            interval=interval,
            checks_crcs=checks_crcs,
            may_begin_later=first_offset is None,
            chunk_bytes=chunk_bytes,
            body_end=self._body_end,
            visit=visit,
        )
        self._start = b""
        self._end = b""
        self._header: SegmentHeader | None = None
        # The body's bytes that have arrived and belong to no batch of the chain yet.
        self._rest = memoryview(b"")
        self._fed = 0
        self._body_crc = 0

    @property
    def chain(self) -> Chain:
        """The batches that were passed so far."""
        return self._batches.chain

    def feed(self, piece: memoryview) -> list[memoryview]:
        """Take the next bytes of the file; returns the next bytes of the body that are checked, as views.

        They end where a batch ends, or, without `checks_crcs`, inside a batch that the walk has passed.
        """
        start, self._fed = self._fed, self._fed + len(piece)
        self._end += piece[max(0, self._body_end - start) :]
        if self._header is None:
            self._start += piece[: max(0, HEADER_SIZE - start)]
            if len(self._start) == HEADER_SIZE:
                self._header = parse_header(self._name, self._start)
        body = piece[max(0, HEADER_SIZE - start) : max(0, self._body_end - start)]
        if not body:
            return []
        pieces = Pieces([self._rest, body], max(start, HEADER_SIZE) - len(self._rest))
        self._batches.walk(pieces, pieces.end)
        known_end = min(self.chain.next_position, pieces.end)
        passed = pieces.slices(pieces.start, known_end)
        for view in passed:
            self._body_crc = crc32c(view, self._body_crc)
        # A copy, so that the piece can go.
        self._rest = memoryview(b"".join(pieces.slices(known_end, pieces.end)))
        return passed

    def finish(self) -> tuple[SegmentHeader, SegmentFooter]:
        """Check the end of the file and the body's CRC, after the last byte.

        What header and footer say of the batches is not compared: see `check_totals`.
        """
        name = self._name
        if self._fed != self._size_bytes or self._header is None:
            raise CorruptDataError(name, f"{self._fed} bytes where there should be {self._size_bytes}")
        footer = parse_footer(name, self._end)
        position, room = self.chain.next_position, self._body_end - self.chain.next_position
        if self._rest or room < 0:
            raise BrokenChainError(
                name,
                f"{room} bytes at position {position} are shorter than a header"
                if room > 0
                else f"its batches end at position {position}, the body at {self._body_end}",
            )
        if self._body_crc != footer.body_crc:
            raise CorruptDataError(
                name,
                f"the body's CRC-32C is {self._body_crc:#010x}, the footer says {footer.body_crc:#010x}",
            )
        if not self.chain.batch_count:
            raise CorruptDataError(name, "a segment without a batch")
        return self._header, footer


def check_totals(name: str, chain: Chain, header: SegmentHeader, footer: SegmentFooter) -> None:
    """Raise `CorruptDataError` unless the batches hold what header and footer say."""
    first, last, count = chain.offsets[0], chain.next_offset - 1, chain.record_count
    says = (header.base_offset, footer.last_offset, header.message_count)
    if says != (first, last, count):
        raise CorruptDataError(
            name,
            f"the batches hold {count} records at offsets {first} to {last}, header and footer say "
            f"{header.message_count} at {header.base_offset} to {footer.last_offset}",
        )
