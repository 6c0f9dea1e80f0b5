"""The scan of a whole segment for its chunks and its index, as far as the partition record vouches for it.

Pure. What it finds was checked against the CRC of the body, which covers what the batches' own CRCs do not.
"""

from crc32c import crc32c

from kafscale.formats.batch_walk import BrokenChainError
from kafscale.formats.index import (
    LARGE_VERSION,
    LEGACY_VERSION,
    MAX_LEGACY_POSITION,
    build_index,
    interval_for,
)
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE
from kafscale.formats.segment_layout import SegmentLayout
from kafscale.formats.segment_walk import SegmentWalk


class SegmentScan:
    """Fed with the pieces of a segment's file, in order; `finish` returns its chunks.

    Both raise `CorruptDataError`, which says `name`.
    """

    def __init__(self, name: str, reference: SegmentReference, chunk_bytes: int) -> None:
        self._name = name
        self._reference = reference
        self._interval = interval_for(reference.size_bytes, reference.record_count)
        self._walk = SegmentWalk(
            name,
            reference.size_bytes,
            first_offset=reference.base_offset,
            checks_crcs=False,
            interval=self._interval,
            chunk_bytes=chunk_bytes,
        )
        self._position = HEADER_SIZE
        self._chunk_starts = [HEADER_SIZE]
        self._crcs = [0]

    def feed(self, piece: memoryview) -> None:
        """Take the next bytes of the file."""
        for view in self._walk.feed(piece):
            start, self._position = self._position, self._position + len(view)
            cuts = self._walk.chain.cuts
            while len(cuts) >= len(self._crcs) and cuts[len(self._crcs) - 1][1] < self._position:
                cut = cuts[len(self._crcs) - 1][1]
                self._crcs[-1] = crc32c(view[: cut - start], self._crcs[-1])
                view, start = view[cut - start :], cut
                self._chunk_starts.append(cut)
                self._crcs.append(0)
            self._crcs[-1] = crc32c(view, self._crcs[-1])

    def finish(self) -> SegmentLayout:
        """The chunks, after the last byte."""
        name, reference, chain = self._name, self._reference, self._walk.chain
        header, footer = self._walk.finish()
        if (header.base_offset, footer.last_offset, chain.next_offset - 1) != (
            reference.base_offset,
            reference.last_offset,
            reference.last_offset,
        ):
            raise BrokenChainError(
                name,
                f"it has offsets {header.base_offset} to {footer.last_offset}, its batches up to "
                f"{chain.next_offset - 1}; the partition record says {reference.base_offset} to "
                f"{reference.last_offset}",
            )
        return SegmentLayout(
            [reference.base_offset, *(offset for offset, _ in chain.cuts)],
            self._chunk_starts,
            last_offset=reference.last_offset,
            body_end=reference.size_bytes - FOOTER_SIZE,
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
