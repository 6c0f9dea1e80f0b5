"""Neighbouring slices of one partition as one: a whole segment image, made of their batches. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from kafscale.errors import CorruptDataError
from kafscale.formats.partition_record import SegmentReference
from kafscale.formats.segment import FOOTER_SIZE, HEADER_SIZE, body_crc, encode_footer, encode_header
from kafscale.protocol.compression import Codec
from kafscale.protocol.record_batch import HEADER_SIZE as BATCH_HEADER_SIZE

_BATCH_SPAN = Struct(">qi11xi")
_BATCH_PREFIX_BYTES = 12


@dataclass(frozen=True, slots=True)
class SliceBody:
    """A slice and its batches, without header and footer."""

    reference: SegmentReference
    batches: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedSlice:
    """The image in parts. `reference` lacks the object."""

    reference: SegmentReference
    header: bytes
    body: bytes
    footer: bytes
    body_crc: int

    @property
    def parts(self) -> tuple[bytes, bytes, bytes]:
        """The image."""
        return self.header, self.body, self.footer


def combine(bodies: Sequence[SliceBody], created_ms: int) -> CombinedSlice:
    """The slices, at least one, as one. `created_ms`: Unix milliseconds."""
    references = [one.reference for one in bodies]
    first, newest = references[0], references[-1]
    body = b"".join(one.batches for one in bodies)
    record_count = sum(one.record_count for one in references)
    # The batches' codec is not looked for: a reader takes it from each batch.
    header = encode_header(
        codec=Codec.NONE, base_offset=first.base_offset, message_count=record_count, created_ms=created_ms
    )
    crc = body_crc([body])
    return CombinedSlice(
        reference=SegmentReference(
            base_offset=first.base_offset,
            last_offset=newest.last_offset,
            record_count=record_count,
            leader_epoch=newest.leader_epoch,
            size_bytes=HEADER_SIZE + len(body) + FOOTER_SIZE,
            max_timestamp_ms=max(one.max_timestamp_ms for one in references),
        ),
        header=header,
        body=body,
        footer=encode_footer(body_crc=crc, last_offset=newest.last_offset),
        body_crc=crc,
    )


def places_of_slices(bodies: Sequence[SliceBody]) -> list[tuple[int, int, int]]:
    """The combined slice's (base offset, position, record count) of each slice: enough for an index in memory."""
    places, position = [], HEADER_SIZE
    for one in bodies:
        places.append((one.reference.base_offset, position, one.reference.record_count))
        position += len(one.batches)
    return places


def places_of_batches(name: str, body: bytes) -> list[tuple[int, int, int]]:
    """The (base offset, position, record count) of each batch, for a stored index. Raises `CorruptDataError`."""
    places, position = [], 0
    while position < len(body):
        size_bytes = BATCH_HEADER_SIZE
        if len(body) - position >= size_bytes:
            base_offset, length, last_delta = _BATCH_SPAN.unpack_from(body, position)
            size_bytes = max(size_bytes, _BATCH_PREFIX_BYTES + length)
        if size_bytes > len(body) - position:
            raise CorruptDataError(name, f"the batch at position {HEADER_SIZE + position} does not end in it")
        places.append((base_offset, HEADER_SIZE + position, last_delta + 1))
        position += size_bytes
    return places
