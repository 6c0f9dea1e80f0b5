"""The offsets of a group in one producer's open transaction: stored bytes and value.

Stored format: docs/format/pending-offsets.md. The key says of which group and producer id. All integers are
big-endian; strings are Kafka's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.formats.committed_offset import CommittedOffset, decode_committed_offset
from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError, read_string, string

TopicPartition = tuple[str, int]

VERSION: Final = 1

MAX_PENDING_OFFSETS_BYTES: Final = 1024 * 1024
"""The largest value that is written: etcd takes requests of up to 1.5 MiB by default."""

_VERSION = Struct(">H")
_EPOCH = Struct(">h")
_COUNT = Struct(">i")
_OFFSET = Struct(">iqi")
_MIN_OFFSET_BYTES = 2 + _OFFSET.size


@dataclass(frozen=True, slots=True)
class PendingOffset:
    """The offset of one partition. `value`: a committed offset's stored bytes (`committed_offset.py`).

    `order`: of two offsets that are pending for a partition of the group, the later one has the higher order.
    """

    order: int
    value: bytes

    def committed(self, name: str) -> CommittedOffset:
        """The offset that is committed with the transaction. Raises as `decode_committed_offset` does."""
        return decode_committed_offset(name, self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffsets:
    """All offsets of a group in a producer's open transaction."""

    transactional_id: str
    producer_epoch: int
    offsets: Mapping[TopicPartition, PendingOffset]


def encode_pending_offsets(pending: PendingOffsets) -> bytes:
    """The stored bytes; may be more than `MAX_PENDING_OFFSETS_BYTES`, which the caller refuses."""
    parts = [
        _VERSION.pack(VERSION),
        _EPOCH.pack(pending.producer_epoch),
        string(pending.transactional_id),
        _COUNT.pack(len(pending.offsets)),
    ]
    for (topic, index), offset in sorted(pending.offsets.items()):
        parts += (string(topic), _OFFSET.pack(index, offset.order, len(offset.value)), offset.value)
    return b"".join(parts)


def decode_pending_offsets(name: str, data: bytes) -> PendingOffsets:
    """The offsets, each of which can be read. `name` says which ones in errors.

    Raises `CorruptDataError`, `UnknownFormatVersionError`.
    """
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"pending offsets of {len(data)} bytes are too short")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        return _decode(name, data)
    except (MalformedRequestError, *UNDERRUN_ERRORS) as problem:
        raise CorruptDataError(name, f"pending offsets: {problem}") from problem


def _decode(name: str, data: bytes) -> PendingOffsets:
    (epoch,) = _EPOCH.unpack_from(data, _VERSION.size)
    transactional_id, position = read_string(data, _VERSION.size + _EPOCH.size, "transactional id")
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    if not 0 <= count * _MIN_OFFSET_BYTES <= len(data) - position:
        raise MalformedRequestError(f"{count} offsets in {len(data) - position} bytes")
    offsets: dict[TopicPartition, PendingOffset] = {}
    before: TopicPartition = ("", -1)
    for _ in range(count):
        place, offset, position = _read_offset(name, data, position)
        if place[1] < 0 or place <= before:
            raise MalformedRequestError(f"partition {place[0]!r:.80}-{place[1]} is out of order")
        offsets[place] = offset
        before = place
    if position != len(data):
        raise MalformedRequestError(f"{len(data) - position} bytes follow the last offset")
    return PendingOffsets(transactional_id=transactional_id, producer_epoch=epoch, offsets=offsets)


def _read_offset(name: str, data: bytes, position: int) -> tuple[TopicPartition, PendingOffset, int]:
    topic, position = read_string(data, position, "topic")
    index, order, length = _OFFSET.unpack_from(data, position)
    position += _OFFSET.size
    if not 0 <= length <= len(data) - position:
        raise MalformedRequestError(f"an offset of {length} bytes in {len(data) - position}")
    offset = PendingOffset(order, data[position : position + length])
    offset.committed(name)
    return (topic, index), offset, position + length
