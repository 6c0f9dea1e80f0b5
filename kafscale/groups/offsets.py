"""Committed offsets: reading those of a group from the store, and when they expire.

They are not kept in memory: every read goes to the store, so that it returns each acknowledged commit, whichever
broker coordinated the group then.
"""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.cluster.stored_topics import stored_topics
from kafscale.errors import CorruptDataError, StoreError
from kafscale.formats.committed_offset import CommittedOffset, decode_committed_offset
from kafscale.formats.pending_offsets import decode_pending_offsets
from kafscale.formats.topic_record import decode_topic_record
from kafscale.groups.any_group import AnyGroup
from kafscale.groups.states import GroupState
from kafscale.groups.subscription import CONSUMER_PROTOCOL_TYPE
from kafscale.metadata import keys
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import KeyValue, MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]

NEVER: Final = None


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """A group's committed offsets, and the partitions for which an offset is pending in a transaction."""

    committed: Mapping[TopicPartition, CommittedOffset]
    unstable: frozenset[TopicPartition] = frozenset()


async def read_offsets(store: MetadataStore, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """All offsets of the group in the store, those of deleted topics included.

    Raises `KafkaError` COORDINATOR_NOT_AVAILABLE if the store is unavailable, UNKNOWN_SERVER_ERROR if a value
    cannot be read.
    """
    try:
        snapshot = await store.range(keys.group_offsets(group_id))
        return {
            place: decode_committed_offset(item.key, item.value)
            for item in snapshot.items
            if (place := offset_place(item.key)) is not None
        }
    except StoreError as problem:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)) from problem
    except CorruptDataError as problem:
        logger.error(
            "offsets cannot be read", extra={"group": quoted(group_id), "problem": quoted(str(problem), 500)}
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from problem


async def read_pending(store: MetadataStore, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of the group that wait for the end of a transaction; one for each partition.

    Raises as `read_offsets` does.
    """
    try:
        snapshot = await store.range(keys.group_pending_offsets(group_id))
        return {
            place: offset.committed(item.key)
            for item in snapshot.items
            for place, offset in decode_pending_offsets(item.key, item.value).offsets.items()
        }
    except StoreError as problem:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)) from problem
    except CorruptDataError as problem:
        logger.error(
            "pending offsets cannot be read",
            extra={"group": quoted(group_id), "problem": quoted(str(problem), 500)},
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from problem


def offset_place(key: str) -> TopicPartition | None:
    """The topic and partition of a committed offset; None, with a warning, for a key that no broker writes.

    Such a key does not keep the other offsets from being read.
    """
    try:
        return keys.offset_topic_and_partition(key)
    except ValueError:
        logger.warning("a key is that of no committed offset", extra={"key": quoted(key)})
        return None


async def of_existing_topics(
    store: MetadataStore, offsets: Mapping[TopicPartition, CommittedOffset]
) -> dict[TopicPartition, CommittedOffset]:
    """The offsets of topics that exist: a deleted topic's offsets are gone with it, as in Kafka.

    The topics are read from the store, not from this broker's view: a stale view would omit the offsets of a new
    topic and return those of a deleted one. Raises as `read_offsets` does.
    """
    try:
        found = await stored_topics(store, (topic for topic, _ in offsets))
    except StoreError as problem:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, quoted(str(problem), 500)) from problem
    topics = readable_topics(found)
    # A damaged record says nothing about the topic: once it is repaired, consumers resume from their commits.
    damaged = found.keys() - topics.keys()
    ids = {name: record.topic_id for name, record in topics.items() if record.state is TopicState.ACTIVE}
    return {
        (topic, index): committed
        for (topic, index), committed in offsets.items()
        if topic in damaged or committed.topic_id == ids.get(topic)
    }


def readable_topics(found: Mapping[str, KeyValue]) -> dict[str, TopicRecord]:
    """The topics whose records can be read; each of the others is logged as an error."""
    topics = {}
    for name, item in found.items():
        try:
            topics[name] = decode_topic_record(item.key, item.value)
        except CorruptDataError as problem:
            logger.error("a topic cannot be read", extra={"problem": quoted(str(problem), 500)})
    return topics


def expires_at_ms(
    group: AnyGroup,
    topic: str,
    committed: CommittedOffset,
    retention_ms: int,
    subscribed: Collection[str] | None,
) -> int | None:
    """When the offset expires, Unix milliseconds; `NEVER` while the group may need it (KIP-211).

    `subscribed`: the topics that a stable consumer group subscribes to; None if they are unknown.
    """
    if group.state is GroupState.EMPTY:
        if committed.expire_timestamp_ms is not None:
            return committed.expire_timestamp_ms
        # A group without a protocol type never had a member: its last commit is its last use.
        since_ms = committed.commit_timestamp_ms if group.protocol_type is None else group.state_since_ms
        return max(since_ms, committed.commit_timestamp_ms) + retention_ms
    if (
        group.state is GroupState.STABLE
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and subscribed is not None
        and topic not in subscribed
    ):
        if committed.expire_timestamp_ms is not None:
            return committed.expire_timestamp_ms
        return committed.commit_timestamp_ms + retention_ms
    return NEVER
