"""Fetch (API 1), versions 4 to 13, by hand: it is the hot path out.

v5: log start offset. v7: sessions (KIP-227). v9: current leader epoch (KIP-320). v11: rack (KIP-392). v12:
flexible, last fetched epoch (KIP-595). v13: topic ids in place of names (KIP-516). Later versions are for
tiered storage and for replicas.
"""

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from kafscale.protocol.types import Buffer
from kafscale.protocol.wire import (
    MAX_ARRAY_ELEMENTS,
    UNDERRUN_ERRORS,
    MalformedRequestError,
    array_count,
    check_count,
    compact_string,
    read_compact_string,
    read_string,
    read_uvarint,
    skip_tagged_fields,
    string,
    uvarint,
)

MIN_VERSION: Final = 4
MAX_VERSION: Final = 13
FIRST_FLEXIBLE_VERSION: Final = 12
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13
_FIRST_VERSION_WITH_SESSIONS = 7
_FIRST_VERSION_WITH_RACK = 11


class IsolationLevel(IntEnum):
    """The records that a consumer sees (KIP-98): all that are published, or those that are committed."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


_READ_COMMITTED = int(IsolationLevel.READ_COMMITTED)
_INT32 = struct.Struct(">i")
_START = struct.Struct(">iiiib")
_SESSION = struct.Struct(">ii")
_TOPIC_ID_BYTES = 16


class FetchPartition(NamedTuple):
    """The part of a request for one partition. -1 stands for an epoch or offset the client did not send."""

    partition: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchTopic(NamedTuple):
    """Partitions of a topic, by `name` up to version 12 and by `topic_id` (16 bytes) from version 13."""

    name: str | None
    topic_id: bytes | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session, by name up to version 12 and by id (16 bytes) from version 13."""

    name: str | None
    topic_id: bytes | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    """A Fetch request. A client without a session has session id 0 and session epoch -1."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten_topics: list[ForgottenTopic]
    rack_id: str

    @property
    def reads_committed(self) -> bool:
        """True if the client sees only what is below the last stable offset."""
        return self.isolation_level == _READ_COMMITTED


class _Cursor:
    """Where a decoder stands in a request."""

    __slots__ = ("body", "elements_left", "flexible", "pos", "version")

    def __init__(self, body: memoryview, version: int) -> None:
        self.body = body
        self.version = version
        self.flexible = version >= FIRST_FLEXIBLE_VERSION
        self.pos = 0
        self.elements_left = MAX_ARRAY_ELEMENTS

    def read_count(self, min_element_bytes: int) -> int:
        """Read an array's count, checked against what is left of the request."""
        if self.flexible:
            count, self.pos = read_uvarint(self.body, self.pos)
            count -= 1
        else:
            (count,) = _INT32.unpack_from(self.body, self.pos)
            self.pos += 4
        self.elements_left = check_count(count, min_element_bytes, self.body, self.pos, self.elements_left)
        return count

    def read_text(self, what: str) -> str:
        read = read_compact_string if self.flexible else read_string
        value, self.pos = read(self.body, self.pos, what)
        return value

    def read_topic(self) -> tuple[str | None, bytes | None]:
        """Read a topic's name or, from version 13, its id."""
        if self.version < FIRST_VERSION_WITH_TOPIC_IDS:
            return self.read_text("topic name"), None
        topic_id = bytes(self.body[self.pos : self.pos + _TOPIC_ID_BYTES])
        if len(topic_id) < _TOPIC_ID_BYTES:
            raise MalformedRequestError(f"topic id at byte {self.pos} ends after the request")
        self.pos += _TOPIC_ID_BYTES
        return None, topic_id

    def skip_tags(self) -> None:
        if self.flexible:
            self.pos, self.elements_left = skip_tagged_fields(self.body, self.pos, self.elements_left)


def decode_fetch_request(body: memoryview, version: int) -> FetchRequest:
    """Decode a Fetch request's body (after the header). Everything in the result is a copy.

    Bytes after the last field are passed over, as Kafka does. Raises `MalformedRequestError` on any other byte
    that breaks the format.
    """
    if not MIN_VERSION <= version <= MAX_VERSION:
        raise ValueError(f"Fetch version {version} is not in {MIN_VERSION} to {MAX_VERSION}")
    try:
        return _decode(_Cursor(body, version))
    except (MalformedRequestError, *UNDERRUN_ERRORS) as error:
        raise MalformedRequestError(f"FetchRequest v{version} of {len(body)} bytes: {error}") from error


def _decode(cursor: _Cursor) -> FetchRequest:
    version = cursor.version
    replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level = _START.unpack_from(cursor.body)
    cursor.pos = _START.size
    session_id, session_epoch = 0, -1
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        session_id, session_epoch = _SESSION.unpack_from(cursor.body, cursor.pos)
        cursor.pos += _SESSION.size
    topics = [_read_topic(cursor) for _ in range(cursor.read_count(_min_topic_bytes(cursor)))]
    forgotten_topics: list[ForgottenTopic] = []
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        count = cursor.read_count(_min_topic_bytes(cursor))
        forgotten_topics = [_read_forgotten_topic(cursor) for _ in range(count)]
    rack_id = cursor.read_text("rack id") if version >= _FIRST_VERSION_WITH_RACK else ""
    # The only tag of these versions is the cluster id (KIP-595), which replicas send to each other.
    cursor.skip_tags()
    return FetchRequest(
        replica_id,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        topics,
        forgotten_topics,
        rack_id,
    )


def _min_topic_bytes(cursor: _Cursor) -> int:
    if cursor.version >= FIRST_VERSION_WITH_TOPIC_IDS:
        return _TOPIC_ID_BYTES + 1 + 1
    return 1 + 1 + 1 if cursor.flexible else 2 + 4


def _partition_layout(version: int) -> struct.Struct:
    """The fixed fields of a partition; from v12 with the count of its tagged fields, which is 0 as a rule."""
    leader_epoch = "i" if version >= 9 else ""
    last_fetched_epoch = "i" if version >= 12 else ""
    log_start_offset = "q" if version >= 5 else ""
    tag_count = "B" if version >= FIRST_FLEXIBLE_VERSION else ""
    return struct.Struct(f">i{leader_epoch}q{last_fetched_epoch}{log_start_offset}i{tag_count}")


_PARTITION_LAYOUTS = {version: _partition_layout(version) for version in range(MIN_VERSION, MAX_VERSION + 1)}


def _read_topic(cursor: _Cursor) -> FetchTopic:
    name, topic_id = cursor.read_topic()
    layout = _PARTITION_LAYOUTS[cursor.version]
    count = cursor.read_count(layout.size)
    body, pos = cursor.body, cursor.pos
    partitions: list[FetchPartition] = []
    if cursor.flexible:
        for _ in range(count):
            fields = layout.unpack_from(body, pos)
            partitions.append(FetchPartition._make(fields[:-1]))
            pos += layout.size
            if fields[-1]:
                pos, cursor.elements_left = skip_tagged_fields(body, pos - 1, cursor.elements_left)
    else:
        end = pos + count * layout.size
        partitions = [_partition_before_flexible(values) for values in layout.iter_unpack(body[pos:end])]
        pos = end
    cursor.pos = pos
    cursor.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _partition_before_flexible(fields: tuple[int, ...]) -> FetchPartition:
    match fields:
        case (partition, leader_epoch, fetch_offset, log_start_offset, max_bytes):
            return FetchPartition(partition, leader_epoch, fetch_offset, -1, log_start_offset, max_bytes)
        case (partition, fetch_offset, log_start_offset, max_bytes):
            return FetchPartition(partition, -1, fetch_offset, -1, log_start_offset, max_bytes)
        case (partition, fetch_offset, max_bytes):
            return FetchPartition(partition, -1, fetch_offset, -1, -1, max_bytes)
    raise AssertionError(f"a partition of {len(fields)} fields")


def _read_forgotten_topic(cursor: _Cursor) -> ForgottenTopic:
    name, topic_id = cursor.read_topic()
    count = cursor.read_count(4)
    partitions = list(struct.unpack_from(f">{count}i", cursor.body, cursor.pos))
    cursor.pos += 4 * count
    cursor.skip_tags()
    return ForgottenTopic(name, topic_id, partitions)


_FRAME_START = struct.Struct(">iii")
_FLEXIBLE_FRAME_START = struct.Struct(">iibi")
_ERROR_AND_SESSION = struct.Struct(">hi")
_LENGTH_BYTES = 4
_NO_TAGS: Final = b"\x00"

_V4_PARTITION: Final = struct.Struct(">ihqqii")
_V5_PARTITION: Final = struct.Struct(">ihqqqii")
_V11_PARTITION: Final = struct.Struct(">ihqqqiii")
_V12_PARTITION: Final = struct.Struct(">ihqqqBi")

_V4_PARTITION_START: Final = struct.Struct(">ihqq")
_V5_PARTITION_START: Final = struct.Struct(">ihqqq")
_ABORTED: Final = struct.Struct(">qq")
_FLEXIBLE_ABORTED: Final = struct.Struct(">qqB")


class FetchedPartition(NamedTuple):
    """The answer for one partition.

    `records` are sent one after the other as they are; `records_size_bytes` is their length in all. `aborted`
    are (producer id, first offset) of the aborted transactions in `records`, by first offset; they are sent to
    `read_committed` readers only. The tagged fields of a partition are left out: they are for replicas (KIP-595).
    """

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: Sequence[Buffer] = ()
    records_size_bytes: int = 0
    preferred_read_replica: int = -1
    aborted: Sequence[tuple[int, int]] = ()


class FetchedTopic(NamedTuple):
    """The partitions of one topic. Up to version 12 `name` is sent, from version 13 `topic_id` (16 bytes)."""

    name: str | None
    topic_id: bytes | None
    partitions: Sequence[FetchedPartition]


def encode_fetch_response(
    correlation_id: int,
    version: int,
    error_code: int,
    session_id: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_time_ms: int = 0,
    read_committed: bool = False,
) -> list[Buffer]:
    """Encode a whole Fetch response frame (4-byte length, header, body) as buffers to be written in order.

    The list of aborted transactions is null unless for a `read_committed` reader, as Kafka gives it.

    Raises `struct.error` when a value does not fit its field.
    """
    flexible = version >= FIRST_FLEXIBLE_VERSION
    buffers: list[Buffer] = []
    pending: list[bytes] = [b""]
    if version >= _FIRST_VERSION_WITH_SESSIONS:
        pending.append(_ERROR_AND_SESSION.pack(error_code, session_id))
    pending.append(uvarint(len(topics) + 1) if flexible else array_count(len(topics)))
    records_size_bytes = small_size_bytes = 0
    for topic in topics:
        pending.append(_topic_start(topic, version))
        for partition in topic.partitions:
            pending.append(_partition_start(partition, version, read_committed))
            if partition.records_size_bytes:
                joined = b"".join(pending)
                small_size_bytes += len(joined)
                records_size_bytes += partition.records_size_bytes
                buffers.append(joined)
                buffers.extend(partition.records)
                pending.clear()
            if flexible:
                pending.append(_NO_TAGS)
        if flexible:
            pending.append(_NO_TAGS)
    if flexible:
        pending.append(_NO_TAGS)
    last = b"".join(pending)
    size_bytes = small_size_bytes + len(last) + records_size_bytes
    if flexible:
        start = _FLEXIBLE_FRAME_START.pack(
            size_bytes + _FLEXIBLE_FRAME_START.size - _LENGTH_BYTES, correlation_id, 0, throttle_time_ms
        )
    else:
        start = _FRAME_START.pack(
            size_bytes + _FRAME_START.size - _LENGTH_BYTES, correlation_id, throttle_time_ms
        )
    if not buffers:
        return [start + last]
    buffers[0] = start + bytes(buffers[0])
    if last:
        buffers.append(last)
    return buffers


def _topic_start(topic: FetchedTopic, version: int) -> bytes:
    count = len(topic.partitions)
    if version >= FIRST_VERSION_WITH_TOPIC_IDS:
        if topic.topic_id is None:
            raise ValueError(f"Fetch v{version} names topics by id, topic {topic.name!r} has none")
        return topic.topic_id + uvarint(count + 1)
    if topic.name is None:
        raise ValueError(f"Fetch v{version} names topics by name, topic id {topic.topic_id!r} has none")
    if version >= FIRST_FLEXIBLE_VERSION:
        return compact_string(topic.name) + uvarint(count + 1)
    return string(topic.name) + array_count(count)


def _partition_start(partition: FetchedPartition, version: int, read_committed: bool) -> bytes:
    """Everything of a partition before the bytes of its records."""
    if read_committed and partition.aborted:
        return _partition_start_with_aborted(partition, version)
    index, error_code, high_watermark, last_stable_offset, log_start_offset = partition[:5]
    offsets = (high_watermark, last_stable_offset, log_start_offset)
    length = partition.records_size_bytes
    preferred = partition.preferred_read_replica
    if version >= FIRST_FLEXIBLE_VERSION:
        aborted = 1 if read_committed else 0
        return _V12_PARTITION.pack(index, error_code, *offsets, aborted, preferred) + uvarint(length + 1)
    aborted = 0 if read_committed else -1
    if version >= 11:
        return _V11_PARTITION.pack(index, error_code, *offsets, aborted, preferred, length)
    if version >= 5:
        return _V5_PARTITION.pack(index, error_code, *offsets, aborted, length)
    return _V4_PARTITION.pack(index, error_code, *offsets[:2], aborted, length)


def _partition_start_with_aborted(partition: FetchedPartition, version: int) -> bytes:
    """The same for a partition with aborted transactions: few have any."""
    offsets = (partition.high_watermark, partition.last_stable_offset, partition.log_start_offset)
    index_and_error = (partition.partition, partition.error_code)
    preferred = _INT32.pack(partition.preferred_read_replica)
    aborted, length = partition.aborted, partition.records_size_bytes
    if version >= FIRST_FLEXIBLE_VERSION:
        pack = _FLEXIBLE_ABORTED.pack
        return b"".join(
            (
                _V5_PARTITION_START.pack(*index_and_error, *offsets),
                uvarint(len(aborted) + 1),
                *(pack(producer_id, first_offset, 0) for producer_id, first_offset in aborted),
                preferred,
                uvarint(length + 1),
            )
        )
    if version >= 5:
        start = _V5_PARTITION_START.pack(*index_and_error, *offsets)
    else:
        start = _V4_PARTITION_START.pack(*index_and_error, *offsets[:2])
    return b"".join(
        (
            start,
            _INT32.pack(len(aborted)),
            *(_ABORTED.pack(producer_id, first_offset) for producer_id, first_offset in aborted),
            preferred if version >= _FIRST_VERSION_WITH_RACK else b"",
            _INT32.pack(length),
        )
    )
