"""Requests as simulated clients send them, and what they read of the replies: Produce v8 and Fetch v13, by hand."""

import struct
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from kafscale.protocol.api_keys import ApiKey
from kafscale.protocol.record_batch import walk
from kafscale.protocol.records import decode_records
from kafscale.protocol.wire import read_uvarint, uvarint

PRODUCE_VERSION = 8
FETCH_VERSION = 13

_HEADER = struct.Struct(">hhih")
_NO_CLIENT_ID = -1
_PRODUCE = struct.Struct(">hhii")
_PRODUCED = struct.Struct(">iihq")
_FETCH = struct.Struct(">iiiibii")
_FETCH_PARTITION = struct.Struct(">iiqiqi")
_FETCHED = struct.Struct(">ihqqqBi")


class Produced(NamedTuple):
    """The answer for the one partition of a produce request."""

    error_code: int
    base_offset: int


class Fetched(NamedTuple):
    """The answer for the one partition of a fetch request; `records` are offset and value."""

    error_code: int
    high_watermark: int
    preferred_read_replica: int
    records: list[tuple[int, bytes]]
    next_offset: int
    """After the last batch, of which compaction may have left nothing else; 0 without any."""


def produce_frame(topic: str, index: int, batch: bytes, timeout_ms: int) -> bytes:
    """A Produce request with one batch for one partition, acks=all, without its length."""
    name = topic.encode()
    return b"".join(
        (
            _HEADER.pack(ApiKey.PRODUCE, PRODUCE_VERSION, 0, _NO_CLIENT_ID),
            _PRODUCE.pack(-1, -1, timeout_ms, 1),
            struct.pack(f">h{len(name)}siii", len(name), name, 1, index, len(batch)),
            batch,
        )
    )


def produced(frame: bytes) -> Produced:
    """The answer in a Produce response, which comes with its length."""
    (name_length,) = struct.unpack_from(">h", frame, 12)
    _, _, error_code, base_offset = _PRODUCED.unpack_from(frame, 14 + name_length)
    return Produced(error_code, base_offset)


def fetch_frame(
    topic_id: uuid.UUID,
    index: int,
    offset: int,
    *,
    leader_epoch: int,
    max_wait_ms: int,
    max_bytes: int,
    rack: str,
) -> bytes:
    """A Fetch request for one partition, without its length."""
    rack_id = rack.encode()
    return b"".join(
        (
            _HEADER.pack(ApiKey.FETCH, FETCH_VERSION, 0, _NO_CLIENT_ID),
            b"\0",
            _FETCH.pack(-1, max_wait_ms, 1, max_bytes, 0, 0, -1),
            b"\x02",
            topic_id.bytes,
            b"\x02",
            _FETCH_PARTITION.pack(index, leader_epoch, offset, -1, -1, max_bytes),
            b"\0\0\x01",
            uvarint(len(rack_id) + 1),
            rack_id,
            b"\0",
        )
    )


def fetched(frame: bytes) -> Fetched:
    """The answer in a Fetch response, which comes with its length."""
    error_code, high_watermark, *_, preferred = _FETCHED.unpack_from(frame, 37)[1:]
    length, start = read_uvarint(frame, 37 + _FETCHED.size)
    body = memoryview(frame)[start : start + length - 1]
    ends = [header.last_offset + 1 for _, header in walk(body, 0, len(body), "fetched")]
    return Fetched(error_code, high_watermark, preferred, list(_records(body)), max(ends, default=0))


def _records(body: memoryview) -> Iterator[tuple[int, bytes]]:
    for position, header in walk(body, 0, len(body), "fetched"):
        for record in decode_records(body[position : position + header.size_bytes], 1 << 20):
            yield record.offset, record.value or b""
