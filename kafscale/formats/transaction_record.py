"""The transaction record: all that is known of a transactional id. Stored bytes and value.

Stored format: docs/format/transaction-record.md. All integers are big-endian; strings are Kafka's.
"""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from struct import Struct
from typing import TypeVar

from kafscale.errors import CorruptDataError, UnknownFormatVersionError
from kafscale.protocol.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from kafscale.protocol.wire import UNDERRUN_ERRORS, MalformedRequestError, read_string, string

Name = TypeVar("Name", str, int)

VERSION = 1

MAX_TRANSACTION_RECORD_BYTES = 1024 * 1024
"""The largest record that is written: etcd takes requests of up to 1.5 MiB by default."""

NOT_STARTED = -1
"""`started_ms` of a transactional id without a transaction."""

_VERSION = Struct(">H")
_FIXED = Struct(">qqqhhiBBBqqi")
_COUNT = Struct(">i")
_TOPIC = Struct(">16si")
_MIN_TOPIC_BYTES = 2 + 1 + _TOPIC.size + 4
_MIN_GROUP_BYTES = 2


class TransactionState(IntEnum):
    """The states of Kafka's coordinator, with its numbers. The last two are never stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_STORED_STATES = frozenset(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


@dataclass(frozen=True, slots=True)
class TransactionTopic:
    """A topic's partitions in a transaction, ascending. `topic_id` means nothing to a later topic of the name."""

    name: str
    topic_id: uuid.UUID
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionRecord:
    """A transactional id: its producer, and its transaction, if it has one.

    `previous_producer_id`, `next_producer_id`: the producer id before and after this one when the epochs of one
    are used up (KIP-890), else `NO_PRODUCER_ID`. `last_producer_epoch`: the one before the last bump, by which
    a repeated request is recognized. `started_ms`: Unix milliseconds of the transaction's first partition or
    group. `transaction_version`: 1 or 2, that of the client which began the transaction. `topics` and `groups`:
    ascending by name. `markers_stored`: after the decision, whether all marker keys were put.
    """

    producer_id: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    producer_epoch: int
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    transaction_version: int = 1
    markers_stored: bool = False
    started_ms: int = NOT_STARTED
    updated_ms: int
    topics: tuple[TransactionTopic, ...] = ()
    groups: tuple[str, ...] = ()

    def partitions(self) -> Iterator[tuple[str, int]]:
        """Topic and partition of everything in the transaction, ascending."""
        return ((topic.name, index) for topic in self.topics for index in topic.partitions)


def encode_transaction_record(record: TransactionRecord) -> bytes:
    """The stored bytes; may be more than `MAX_TRANSACTION_RECORD_BYTES`, which the caller refuses."""
    return b"".join(
        (
            _VERSION.pack(VERSION),
            _FIXED.pack(
                record.producer_id,
                record.previous_producer_id,
                record.next_producer_id,
                record.producer_epoch,
                record.last_producer_epoch,
                record.timeout_ms,
                record.state,
                record.transaction_version,
                record.markers_stored,
                record.started_ms,
                record.updated_ms,
                len(record.topics),
            ),
            *(_encode_topic(topic) for topic in record.topics),
            _COUNT.pack(len(record.groups)),
            *(string(group) for group in record.groups),
        )
    )


def _encode_topic(topic: TransactionTopic) -> bytes:
    indexes = topic.partitions
    return (
        string(topic.name)
        + _TOPIC.pack(topic.topic_id.bytes, len(indexes))
        + Struct(f">{len(indexes)}i").pack(*indexes)
    )


def decode_transaction_record(name: str, data: bytes) -> TransactionRecord:
    """The record. `name` says which one in errors. Raises `CorruptDataError`, `UnknownFormatVersionError`."""
    if len(data) < _VERSION.size:
        raise CorruptDataError(name, f"a transaction record of {len(data)} bytes is too short")
    (version,) = _VERSION.unpack_from(data)
    if version != VERSION:
        raise UnknownFormatVersionError(name, version, str(VERSION))
    try:
        return _decode(data)
    except (MalformedRequestError, *UNDERRUN_ERRORS) as problem:
        raise CorruptDataError(name, f"transaction record: {problem}") from problem


def _decode(data: bytes) -> TransactionRecord:
    (
        producer_id,
        previous_producer_id,
        next_producer_id,
        producer_epoch,
        last_producer_epoch,
        timeout_ms,
        state,
        transaction_version,
        markers_stored,
        started_ms,
        updated_ms,
        topic_count,
    ) = _FIXED.unpack_from(data, _VERSION.size)
    _check("state", state, _STORED_STATES)
    _check("transaction version", transaction_version, (1, 2))
    _check("flag of stored markers", markers_stored, (0, 1))
    topics, position = _read_topics(data, _VERSION.size + _FIXED.size, topic_count)
    groups, position = _read_groups(data, position)
    if position != len(data):
        raise MalformedRequestError(f"{len(data) - position} bytes follow the last group")
    return TransactionRecord(
        producer_id=producer_id,
        previous_producer_id=previous_producer_id,
        next_producer_id=next_producer_id,
        producer_epoch=producer_epoch,
        last_producer_epoch=last_producer_epoch,
        timeout_ms=timeout_ms,
        state=TransactionState(state),
        transaction_version=transaction_version,
        markers_stored=bool(markers_stored),
        started_ms=started_ms,
        updated_ms=updated_ms,
        topics=topics,
        groups=groups,
    )


def _check(what: str, value: int, legal: frozenset[TransactionState] | tuple[int, ...]) -> None:
    if value not in legal:
        raise MalformedRequestError(
            f"{what} {value} is none of {', '.join(str(int(one)) for one in sorted(legal))}"
        )


def _check_count(what: str, count: int, element_bytes: int, bytes_left: int) -> None:
    if not 0 <= count * element_bytes <= bytes_left:
        raise MalformedRequestError(f"{count} {what} in {bytes_left} bytes")


def _check_ascending(what: str, names: Sequence[Name]) -> None:
    for before, name in pairwise(names):
        if before >= name:
            raise MalformedRequestError(f"{what} {name!r:.80} comes after {before!r:.80}")


def _read_topics(data: bytes, position: int, count: int) -> tuple[tuple[TransactionTopic, ...], int]:
    _check_count("topics", count, _MIN_TOPIC_BYTES, len(data) - position)
    topics: list[TransactionTopic] = []
    for _ in range(count):
        name, position = read_string(data, position, "topic")
        topic_id, partition_count = _TOPIC.unpack_from(data, position)
        position += _TOPIC.size
        _check_count("partitions", partition_count, 4, len(data) - position)
        partitions = Struct(f">{partition_count}i").unpack_from(data, position)
        position += 4 * partition_count
        if not partitions:
            raise MalformedRequestError(f"topic {name!r:.80} has no partitions")
        _check_ascending("partition", (-1, *partitions))
        topics.append(TransactionTopic(name, uuid.UUID(bytes=topic_id), partitions))
    _check_ascending("topic", ["", *(topic.name for topic in topics)])
    return tuple(topics), position


def _read_groups(data: bytes, position: int) -> tuple[tuple[str, ...], int]:
    (count,) = _COUNT.unpack_from(data, position)
    position += _COUNT.size
    _check_count("groups", count, _MIN_GROUP_BYTES, len(data) - position)
    groups: list[str] = []
    for _ in range(count):
        name, position = read_string(data, position, "group")
        groups.append(name)
    _check_ascending("group", groups)
    return tuple(groups), position
