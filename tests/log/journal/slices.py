"""Slices for tests of journals: whole segments, small ones."""

import uuid

from kafscale.formats.journal_entry import EntrySlice
from kafscale.formats.segment import body_crc, encode_footer, encode_header
from kafscale.log.journal.writer import JournalWriter, SliceImage
from kafscale.protocol.compression import Codec

TOPIC_ID = uuid.UUID(int=7)


def image(value: bytes, base_offset: int, partition: int = 0) -> SliceImage:
    """A segment of one record, whose body stands for a batch."""
    header = encode_header(codec=Codec.NONE, base_offset=base_offset, message_count=1, created_ms=0)
    crc = body_crc([value])
    parts = [header, value, encode_footer(body_crc=crc, last_offset=base_offset)]
    row = EntrySlice(
        topic_id=TOPIC_ID,
        topic="events",
        partition=partition,
        leader_epoch=0,
        base_offset=base_offset,
        last_offset=base_offset,
        record_count=1,
        max_timestamp_ms=-1,
        size_bytes=sum(map(len, parts)),
        body_crc=crc,
    )
    return SliceImage(row, parts)


async def write_entry(writer: JournalWriter, *images: SliceImage) -> int:
    """Seal an entry of these slices and put it; returns its sequence once it is committed."""
    entry = writer.seal(images)
    await writer.put(entry)
    return entry.sequence
