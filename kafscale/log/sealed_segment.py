"""A segment whose bytes are final, and how a buffer becomes one."""

from collections.abc import Sequence
from dataclasses import dataclass

from kafscale.formats.index import SparseIndex, interval_for, sparse_index
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, encode_footer, encode_header
from kafscale.log.writing.segment_buffer import SegmentBuffer
from kafscale.protocol.types import Buffer


@dataclass(slots=True, kw_only=True, eq=False)
class SealedSegment:
    """A segment whose bytes are final. `reference` is that of an object of its own.

    `index`: None where it would have one entry only. `body_crc`: the footer's. `is_refused`: its entry is known not
    to count.
    """

    buffer: SegmentBuffer
    reference: SegmentReference
    parts: Sequence[Buffer]
    index: SparseIndex | None
    body_crc: int
    is_refused: bool = False


def seal_buffer(buffer: SegmentBuffer, base_offset: int, leader_epoch: int, created_ms: int) -> SealedSegment:
    """Write the offsets and the leader epoch into the buffer's batches, and add header, footer and index.

    `created_ms`: Unix milliseconds.
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
    crc = body_crc(body)
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
        parts=(header, *body, encode_footer(body_crc=crc, last_offset=last_offset)),
        index=_index(buffer, base_offset),
        body_crc=crc,
    )


def _index(buffer: SegmentBuffer, base_offset: int) -> SparseIndex | None:
    interval = interval_for(buffer.size_bytes, buffer.record_count)
    if buffer.record_count <= interval:
        return None
    return sparse_index("published segment", buffer.index_entries(base_offset), interval)
