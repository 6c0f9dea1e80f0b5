"""A segment whose bytes are final, and how a buffer becomes one."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.formats.index import build_index, interval_for
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, encode_footer, encode_header
from kafscale.log.writing.segment_buffer import SegmentBuffer
from kafscale.protocol.types import Buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedSegment:
    """A segment whose bytes are final unless its key turns out to be taken."""

    buffer: SegmentBuffer
    reference: SegmentReference
    parts: Sequence[Buffer]
    index: bytes
    index_version: int
    created_ms: int


def seal_buffer(
    buffer: SegmentBuffer, base_offset: int, leader_epoch: int, created_ms: int, index_version: int
) -> SealedSegment:
    """Write the offsets and the leader epoch into the buffer's batches, and add header, footer and index.

    A buffer may be sealed again with another base offset. `created_ms`: Unix milliseconds; `index_version`: see
    `index_version_at`.
    """
    buffer.stamp(base_offset, leader_epoch)
    body = buffer.body()
    last_offset = base_offset + buffer.record_count - 1
    header = encode_header(
        codec=buffer.codec,
        base_offset=base_offset,
        message_count=buffer.record_count,
        created_ms=created_ms,
    )
    return SealedSegment(
        buffer=buffer,
        reference=SegmentReference(
            base_offset=base_offset,
            last_offset=last_offset,
            record_count=buffer.record_count,
            leader_epoch=leader_epoch,
            size_bytes=HEADER_SIZE + buffer.size_bytes + FOOTER_SIZE,
            max_timestamp_ms=buffer.max_timestamp_ms,
        ),
        parts=(header, *body, encode_footer(body_crc=body_crc(body), last_offset=last_offset)),
        index=build_index(
            buffer.index_entries(base_offset),
            interval_for(buffer.size_bytes, buffer.record_count),
            version=index_version,
        ),
        index_version=index_version,
        created_ms=created_ms,
    )
