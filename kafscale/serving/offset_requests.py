"""The common part of OffsetCommit and TxnOffsetCommit: the offsets that may be stored, and each one's outcome."""

import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Container, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.committed_offset import CommittedOffset
from kafscale.formats.object_keys import topic_name_problem
from kafscale.metadata.model import TopicRecord
from kafscale.protocol.error_codes import ErrorCode
from kafscale.protocol.quoting import quoted
from kafscale.serving.error_per_partition import NamedPartition, NamedTopic, partitions_of
from kafscale.serving.store_deadline import store_deadline
from kafscale.tasks.in_turns import in_turns

if TYPE_CHECKING:
    from kafscale.serving.context import Broker

logger = logging.getLogger(__name__)

_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
# Errors of a topic itself: whether the member may commit changes nothing.
_SETTLED: Final = (_UNKNOWN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
# A view that lags behind lacks few topics; a client may name any number.
_MAX_TOPICS_TO_ASK_FOR: Final = 1024

_ANY_ID: Final[Mapping[str, uuid.UUID]] = {}

Offsets = dict[tuple[str, int], CommittedOffset]

Commit = Callable[[Offsets], Awaitable[tuple[ErrorCode, Collection[tuple[str, int]]]]]
"""Returns the outcome of the commit, and the offsets that are durable although it failed."""


class NamedOffset(NamedPartition, Protocol):
    """A partition's offset in a request."""

    @property
    def committed_offset(self) -> int:
        """The next one that the group reads."""

    @property
    def committed_leader_epoch(self) -> int:
        """-1: the client sent none."""

    @property
    def committed_metadata(self) -> str | None:
        """The client's own text."""


NamedOffsets = Sequence[NamedTopic[NamedOffset]]


async def commit_each(
    broker: "Broker",
    topics: NamedOffsets,
    hidden: Container[str],
    commit: Commit,
    *,
    expire_timestamp_ms: int | None = None,
    topic_ids: Mapping[str, uuid.UUID] = _ANY_ID,
) -> list[ErrorCode]:
    """Store all legal offsets or none; returns the code of each partition. `hidden`: topics not to be read.

    `topic_ids`: the ids that topics must have; another topic of the name is none.
    """
    records, absent = await _topics(broker, topics, hidden)
    records = [
        None
        if record is not None and topic_ids.get(record.name, record.topic_id) != record.topic_id
        else record
        for record in records
    ]
    codes, offsets = await _sort_out(broker, topics, records, absent, hidden, expire_timestamp_ms)
    if not any(code not in _SETTLED for code in codes):
        return codes
    failure, stored = await commit(offsets)
    if failure is ErrorCode.NONE:
        return codes
    return [
        # As in Kafka, a member that may not commit gets that error, whatever its texts.
        code if code in _SETTLED or (code is ErrorCode.NONE and partition in stored) else failure
        async for partition, code in in_turns(zip(named(topics), codes, strict=True))
    ]


def named(topics: NamedOffsets) -> Iterator[tuple[str, int]]:
    """Each partition of the request, as often as it is named."""
    return ((topic.name, one.partition_index) for topic in topics for one in topic.partitions)


async def _topics(
    broker: "Broker", topics: NamedOffsets, hidden: Container[str]
) -> tuple[list[TopicRecord | None], ErrorCode]:
    """Each topic of the request, and the error code of its other partitions.

    Topics that the view does not know as the client does are read from the store: the view may lag behind.
    """
    records = [broker.view.topic(topic.name) for topic in topics]
    unsettled: dict[str, None] = {}
    async for topic, record, wanted in in_turns(partitions_of(topics, records)):
        if topic.name in hidden:
            continue
        if record is None or wanted.partition_index >= record.partition_count:
            unsettled[topic.name] = None
    legal = [name for name in unsettled if topic_name_problem(name) is None][:_MAX_TOPICS_TO_ASK_FOR]
    if not legal:
        return records, _UNKNOWN
    try:
        async with store_deadline():
            stored = await broker.topics.stored(legal)
    except (StoreError, CorruptDataError) as problem:
        logger.info("could not ask for the topics of a commit", extra={"problem": quoted(str(problem), 500)})
        return records, ErrorCode.COORDINATOR_NOT_AVAILABLE
    return [stored.get(topic.name, record) for topic, record in zip(topics, records, strict=True)], _UNKNOWN


async def _sort_out(
    broker: "Broker",
    topics: NamedOffsets,
    records: list[TopicRecord | None],
    absent: ErrorCode,
    hidden: Container[str],
    expire_timestamp_ms: int | None,
) -> tuple[list[ErrorCode], Offsets]:
    """The error code of each partition that is refused beforehand, and the offsets of the others."""
    now_ms = broker.now_ms()
    metadata_max = broker.settings.offset_metadata_max_bytes
    codes: list[ErrorCode] = []
    offsets: Offsets = {}
    async for topic, record, wanted in in_turns(partitions_of(topics, records)):
        index, metadata = wanted.partition_index, wanted.committed_metadata or ""
        if topic.name in hidden:
            codes.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif record is None or not 0 <= index < record.partition_count:
            codes.append(absent)
        elif _length(metadata) > metadata_max:
            codes.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
        else:
            codes.append(ErrorCode.NONE)
            offsets[topic.name, index] = CommittedOffset(
                topic_id=record.topic_id,
                offset=wanted.committed_offset,
                leader_epoch=wanted.committed_leader_epoch,
                metadata=metadata,
                commit_timestamp_ms=now_ms,
                expire_timestamp_ms=expire_timestamp_ms,
            )
    return codes, offsets


def _length(text: str) -> int:
    """In UTF-16 code units, as Java counts, and with it Kafka's limit."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
