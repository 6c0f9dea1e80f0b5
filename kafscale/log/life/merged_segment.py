"""Neighbouring segments merged into one: its bytes piece by piece, its index, and the reference to it. Pure.

The bytes depend only on the batches and the newest source's header, so that every merge of the same offsets of a
log, from any segments, writes the same object (docs/format/object-keys.md).
"""

from collections.abc import Sequence

from crc32c import crc32c

from kafscale.formats.index import build_index, interval_for
from kafscale.formats.object_keys import parse_segment_key
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE, SegmentHeader, encode_footer, encode_header
from kafscale.log.life.merge_planner import merged_size_bytes
from kafscale.log.reading.segment_inspection import SegmentInspection, check_reference
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import BatchHeader
from kafscale.protocol.types import Buffer


class MergedSegment:
    """A merged segment while its sources are fed, each from its first byte to its last, one after the other.

    `newest`: the header of the last source. Every source is checked on the way, against its own checksums and
    against the reference: `CorruptDataError` names the object, and what was made so far must not be used.
    """

    def __init__(self, sources: Sequence[SegmentReference], newest: SegmentHeader) -> None:
        self._sources = sources
        self.size_bytes = merged_size_bytes(sources)
        self.record_count = sum(source.record_count for source in sources)
        self.header = encode_header(
            codec=newest.codec or Codec.NONE,
            base_offset=sources[0].base_offset,
            message_count=self.record_count,
            created_ms=newest.created_ms,
        )
        self._crc = 0
        self._position = HEADER_SIZE
        self._entries: list[tuple[int, int, int]] = []
        self._interval = interval_for(self.size_bytes, self.record_count)
        self._since_entry = self._interval
        self._source: tuple[str, SegmentReference, SegmentInspection] | None = None

    def begin(self, key: str, source: SegmentReference) -> None:
        """Start the next source, the object under `key`."""
        inspection = SegmentInspection(
            key, parse_segment_key(key), source.size_bytes, self._add, lists_batches=False
        )
        self._source = key, source, inspection

    def feed(self, piece: Buffer) -> list[memoryview]:
        """Take the next piece of the source; returns the next bytes of the merged segment's body."""
        assert self._source is not None
        batches = self._source[2].feed(piece)
        for view in batches:
            self._crc = crc32c(view, self._crc)
        return batches

    def end(self) -> None:
        """Check the source, after its last piece. Raises `CorruptDataError`."""
        assert self._source is not None
        key, reference, inspection = self._source
        check_reference(key, inspection.finish(), reference)

    def _add(self, position: int, header: BatchHeader) -> None:
        if self._since_entry >= self._interval:
            self._entries.append((header.base_offset, self._position, self._interval))
            self._since_entry = 0
        self._since_entry += header.record_count
        self._position += header.size_bytes

    @property
    def footer(self) -> bytes:
        """The last bytes, after all sources."""
        return encode_footer(body_crc=self._crc, last_offset=self._sources[-1].last_offset)

    def index(self, version: int) -> bytes:
        """The index, after all sources. Raises `IndexPositionError`."""
        return build_index(self._entries, self._interval, version=version)

    def reference(self, object_key: str) -> SegmentReference:
        """The reference to the merged segment for the partition's record."""
        newest = self._sources[-1]
        return SegmentReference(
            base_offset=self._sources[0].base_offset,
            last_offset=newest.last_offset,
            record_count=self.record_count,
            leader_epoch=newest.leader_epoch,
            size_bytes=self.size_bytes,
            max_timestamp_ms=max(source.max_timestamp_ms for source in self._sources),
            object_key=object_key,
        )
