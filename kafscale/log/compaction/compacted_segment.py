"""A compacted segment while its batches are written: what header, footer, index and reference say of them. Pure."""

from collections.abc import Sequence

from crc32c import crc32c

from kafscale.formats.index import build_index, interval_for
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, SegmentHeader, encode_footer, encode_header
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import NO_TIMESTAMP, read_header


class CompactedSegment:
    """Fed with the bytes of its batches, whole ones, in order.

    `sources`: the segments in whose place it comes; `newest`: the header of the last one.
    """

    def __init__(self, sources: Sequence[SegmentReference], newest: SegmentHeader) -> None:
        self._sources = sources
        self._newest = newest
        self._crc = 0
        self._position = HEADER_SIZE
        # As many as there were: the index is as dense as theirs.
        source_records = sum(source.record_count for source in sources)
        self._interval = interval_for(sum(source.size_bytes for source in sources), source_records)
        self._since_entry = self._interval
        self._entries: list[tuple[int, int, int]] = []
        self.record_count = 0
        self.max_timestamp_ms = NO_TIMESTAMP

    def add(self, batches: bytes) -> None:
        """The next batches."""
        self._crc = crc32c(batches, self._crc)
        position, size = 0, len(batches)
        while position < size:
            header = read_header(batches, position)
            if self._since_entry >= self._interval:
                self._entries.append((header.base_offset, self._position + position, self._interval))
                self._since_entry = 0
            # An empty batch counts as one, so that very many of them have entries, too.
            self._since_entry += max(1, header.record_count)
            self.record_count += header.record_count
            self.max_timestamp_ms = max(self.max_timestamp_ms, header.max_timestamp)
            position += header.size_bytes
        self._position += size

    @property
    def size_bytes(self) -> int:
        """The whole object, with what was added so far."""
        return self._position + FOOTER_SIZE

    @property
    def header(self) -> bytes:
        """The object's first bytes, once all batches were added."""
        return encode_header(
            codec=self._newest.codec or Codec.NONE,
            base_offset=self._sources[0].base_offset,
            message_count=self.record_count,
            created_ms=self._newest.created_ms,
        )

    @property
    def footer(self) -> bytes:
        """The object's last bytes."""
        return encode_footer(body_crc=self._crc, last_offset=self._sources[-1].last_offset)

    def index(self, version: int) -> bytes:
        """The index. Raises `IndexPositionError`."""
        return build_index(self._entries, self._interval, version=version)

    def reference(self, object_key: str) -> SegmentReference:
        """The reference for the partition's record."""
        newest = self._sources[-1]
        return SegmentReference(
            base_offset=self._sources[0].base_offset,
            last_offset=newest.last_offset,
            record_count=self.record_count,
            leader_epoch=newest.leader_epoch,
            size_bytes=self.size_bytes,
            max_timestamp_ms=self.max_timestamp_ms,
            object_key=object_key,
        )
