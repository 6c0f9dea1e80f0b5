"""A segment made of slices that are in memory: its bytes as they pass, then its footer, index and reference. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct

from crc32c import crc32c

from kafscale.errors import CorruptDataError
from kafscale.formats.index import build_index, interval_for
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import HEADER_SIZE, encode_footer, encode_header
from kafscale.log.life.merge_planner import merged_size_bytes
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE

CHUNK_BYTES = 1024 * 1024

_BATCH_SPAN = Struct(">qi11xi")
_BATCH_PREFIX_BYTES = 12


class SliceStream:
    """The segment `name` of these slices, whose batches are added in their order. `created_ms`: Unix milliseconds.

    Batches are not checked again: this broker checked them when they were produced.
    """

    def __init__(self, name: str, sources: Sequence[SegmentReference], created_ms: int) -> None:
        first, newest = sources[0], sources[-1]
        self._name = name
        self._crc = 0
        self._position = HEADER_SIZE
        self._entries: list[tuple[int, int, int]] = []
        self.reference = SegmentReference(
            base_offset=first.base_offset,
            last_offset=newest.last_offset,
            record_count=sum(one.record_count for one in sources),
            leader_epoch=newest.leader_epoch,
            size_bytes=merged_size_bytes(sources),
            max_timestamp_ms=max(one.max_timestamp_ms for one in sources),
            object_key=name,
        )
        self._interval = interval_for(self.reference.size_bytes, self.reference.record_count)
        self._passed = self._interval
        # The batches' codec is not looked for: a reader takes it from each batch.
        self.header = encode_header(
            codec=Codec.NONE,
            base_offset=first.base_offset,
            message_count=self.reference.record_count,
            created_ms=created_ms,
        )

    def add(self, batches: bytes | memoryview) -> None:
        """The next whole batches. Raises `CorruptDataError` if the last one does not end where they do."""
        self._crc = crc32c(batches, self._crc)
        at, end, unpack = 0, len(batches), _BATCH_SPAN.unpack_from
        interval, passed = self._interval, self._passed
        while at < end:
            if end - at < BATCH_HEADER_SIZE:
                self._damaged(at)
            base_offset, length, last_delta = unpack(batches, at)
            if passed >= interval:
                # The entry's own batch counts: the next one is due `interval` records later.
                self._entries.append((base_offset, self._position + at, interval))
                passed = 0
            passed += last_delta + 1
            at += max(BATCH_HEADER_SIZE, _BATCH_PREFIX_BYTES + length)
        if at != end:
            self._damaged(end)
        self._passed = passed
        self._position += end

    def _damaged(self, at: int) -> None:
        raise CorruptDataError(
            self._name, f"the batch before position {self._position + at} does not end there"
        )

    @property
    def footer(self) -> bytes:
        """The last bytes, after all batches."""
        return encode_footer(body_crc=self._crc, last_offset=self.reference.last_offset)

    def index(self, version: int) -> bytes:
        """The index, after all batches. Raises `IndexPositionError`."""
        return build_index(self._entries, self._interval, version=version)


def chunks_of(views: Iterable[memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in chunks that are worth a step of their own: small views are joined, large ones stay."""
    small: list[memoryview] = []
    small_bytes = 0
    for view in views:
        if len(view) >= CHUNK_BYTES // 4:
            if small:
                yield b"".join(small)
                small, small_bytes = [], 0
            yield view
            continue
        small.append(view)
        small_bytes += len(view)
        if small_bytes >= CHUNK_BYTES:
            yield b"".join(small)
            small, small_bytes = [], 0
    if small:
        yield b"".join(small)
