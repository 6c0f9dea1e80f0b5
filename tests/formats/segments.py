"""Segments for tests: made from batches, and those that another writer of the format left."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kafscale.formats.segment import (
    FOOTER_SIZE,
    HEADER_SIZE,
    SegmentFooter,
    SegmentHeader,
    body_crc,
    encode_footer,
    encode_header,
    parse_footer,
    parse_header,
)
from kafscale.formats.segment_walk import SegmentWalk, check_totals
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import BatchHeader, read_header
from kafscale.protocol.record_builder import encode_batch
from kafscale.protocol.records import Record

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN_BUCKET = REPOSITORY / "tests" / "golden" / "stored"
SAMPLE_BUCKET = REPOSITORY.parent / "shared" / "samples" / "bucket"


def batch(base_offset: int, record_count: int, *, codec: Codec = Codec.NONE, value_bytes: int = 20) -> bytes:
    """A batch with `record_count` records at consecutive offsets."""
    return encode_batch(
        [
            Record(offset, 1_700_000_000_000 + offset, None, b"%d" % offset * value_bytes)
            for offset in range(base_offset, base_offset + record_count)
        ],
        codec=codec,
        partition_leader_epoch=3,
    )


def segment_of(batches: Sequence[bytes], *, codec: Codec = Codec.NONE, created_ms: int = 1) -> bytes:
    """A segment file that holds the batches."""
    headers = [read_header(data, 0) for data in batches]
    header = encode_header(
        codec=codec,
        base_offset=headers[0].base_offset,
        message_count=sum(header.record_count for header in headers),
        created_ms=created_ms,
    )
    footer = encode_footer(body_crc=body_crc(batches), last_offset=headers[-1].last_offset)
    return b"".join((header, *batches, footer))


def stored_segments(bucket: Path) -> Iterator[tuple[str, bytes, bytes]]:
    """Key, `.kfs` and `.index` of every segment in a bucket's folder."""
    for path in sorted(bucket.rglob("*.kfs")):
        yield path.relative_to(bucket).as_posix(), path.read_bytes(), path.with_suffix(".index").read_bytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A whole file, its header and its footer."""

    name: str
    header: SegmentHeader
    footer: SegmentFooter
    data: memoryview

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.footer.last_offset

    @property
    def body_end(self) -> int:
        """The position after the last batch."""
        return len(self.data) - FOOTER_SIZE

    @property
    def body(self) -> memoryview:
        return self.data[HEADER_SIZE : self.body_end]


def parse_segment(name: str, data: bytes) -> Segment:
    """The segment, its body unread. Raises `CorruptDataError`."""
    header, footer = parse_header(name, data), parse_footer(name, data)
    return Segment(name=name, header=header, footer=footer, data=memoryview(data).toreadonly())


def verify_segment(segment: Segment) -> list[tuple[int, BatchHeader]]:
    """Position and header of every batch of a sound segment. Raises `CorruptDataError`."""
    batches: list[tuple[int, BatchHeader]] = []
    walk = SegmentWalk(
        segment.name, len(segment.data), visit=lambda position, header: batches.append((position, header))
    )
    walk.feed(segment.data)
    check_totals(segment.name, walk.chain, *walk.finish())
    return batches
