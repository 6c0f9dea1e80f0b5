"""Segments for tests: made from batches, and those that another writer of the format left."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from kafscale.formats.segment import body_crc, encode_footer, encode_header
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import read_header
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
