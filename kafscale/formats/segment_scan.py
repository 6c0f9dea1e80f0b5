"""Looks through a whole segment as it comes, without ever holding it: where its chunks start, and its index anew.

Pure. What comes out was held against the CRC of the body, which covers what the batches' own CRCs do not.
"""

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.formats.batch_chain import BrokenChainError, ChainWalk
from kafscale.formats.index import (
    LARGE_VERSION,
    LEGACY_VERSION,
    MAX_LEGACY_POSITION,
    build_index,
    interval_for,
)
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, parse_footer, parse_header
from kafscale.formats.segment_layout import SegmentLayout
from kafscale.memory.pieces import Pieces


class SegmentScan:
    """Fed with the pieces of a segment's file, one after the other; `finish` tells whether it is all right.

    Both raise `CorruptDataError`, which says `name`.
    """

    def __init__(self, name: str, reference: SegmentReference, chunk_bytes: int) -> None:
        self._name = name
        self._reference = reference
        self._body_end = reference.size_bytes - FOOTER_SIZE
        self._interval = interval_for(reference.size_bytes, reference.record_count)
        self._walk = ChainWalk(
            name, HEADER_SIZE, reference.base_offset, interval=self._interval, chunk_bytes=chunk_bytes
        )
        self._header = self._footer = b""
        # What of the body has come and is in no CRC yet: the beginning of a batch's header.
        self._rest = b""
        self._fed = 0
        self._body_crc = 0
        self._crcs = [0]
        self._chunk_starts = [HEADER_SIZE]

    def feed(self, piece: memoryview) -> None:
        """Take what follows next in the file."""
        start, self._fed = self._fed, self._fed + len(piece)
        self._header += piece[: max(0, HEADER_SIZE - start)]
        self._footer += piece[max(0, self._body_end - start) :]
        body = piece[max(0, HEADER_SIZE - start) : max(0, self._body_end - start)]
        if not body:
            return
        pieces = Pieces([memoryview(self._rest), body], max(start, HEADER_SIZE) - len(self._rest))
        begin = pieces.start
        self._walk.walk(pieces, pieces.end)
        known_end = min(self._walk.chain.next_position, pieces.end)
        self._add_crcs(pieces, begin, known_end)
        self._rest = b"".join(pieces.slices(known_end, pieces.end))

    def _add_crcs(self, pieces: Pieces, begin: int, end: int) -> None:
        for _, cut in self._walk.chain.cuts[len(self._chunk_starts) - 1 :]:
            self._add_crc(pieces, begin, cut)
            self._chunk_starts.append(cut)
            self._crcs.append(0)
            begin = cut
        self._add_crc(pieces, begin, end)

    def _add_crc(self, pieces: Pieces, begin: int, end: int) -> None:
        for part in pieces.slices(begin, end):
            self._crcs[-1] = crc32c(part, self._crcs[-1])
            self._body_crc = crc32c(part, self._body_crc)

    def finish(self) -> SegmentLayout:
        """The chunks, once everything was fed."""
        name, reference, chain = self._name, self._reference, self._walk.chain
        if self._fed != reference.size_bytes:
            raise CorruptDataError(
                name, f"{self._fed} bytes, the partition record says {reference.size_bytes}"
            )
        header, footer = parse_header(name, self._header), parse_footer(name, self._footer)
        if self._body_crc != footer.body_crc or self._rest:
            raise CorruptDataError(name, "the CRC of the body does not match the footer's")
        found = (header.base_offset, footer.last_offset, chain.next_offset - 1, chain.next_position)
        if found != (reference.base_offset, reference.last_offset, reference.last_offset, self._body_end):
            raise BrokenChainError(
                name,
                f"holds offsets {header.base_offset} to {footer.last_offset}, its batches up to "
                f"{chain.next_offset - 1} and position {chain.next_position}; the partition record says "
                f"{reference.base_offset} to {reference.last_offset} and {self._body_end}",
            )
        return SegmentLayout(
            [reference.base_offset, *(offset for offset, _ in chain.cuts)],
            self._chunk_starts,
            last_offset=reference.last_offset,
            body_end=self._body_end,
            crcs=self._crcs,
        )

    def index(self, version: int) -> bytes:
        """The segment's index, in `version` if its positions fit, after `finish`.

        Raises `IndexOffsetError` for offsets that lie too far apart for the version.
        """
        chain = self._walk.chain
        if version == LEGACY_VERSION and chain.positions[-1] > MAX_LEGACY_POSITION:
            version = LARGE_VERSION
        entries = zip(chain.offsets, chain.positions, (self._interval,) * len(chain.offsets), strict=True)
        return build_index(entries, self._interval, version=version)
