"""Committed offsets: reading what a group has in the store, and what of it has expired.

They are not kept in memory: every read asks the store, so it shows each commit that was acknowledged,
whoever coordinated the group then.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import Final

from kafscale.errors import CorruptDataError, StoreError
from kafscale.groups.group import Group
from kafscale.groups.states import GroupState
from kafscale.groups.subscription import CONSUMER_PROTOCOL_TYPE
from kafscale.metadata import keys
from kafscale.metadata.committed_offset import CommittedOffset, decode_committed_offset
from kafscale.metadata.store import MetadataStore
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.protocol.quoting import quoted

logger = logging.getLogger(__name__)

TopicPartition = tuple[str, int]

TopicId = Callable[[str], uuid.UUID | None]
"""The id of the topic that has this name now, None when there is none."""

NEVER: Final = None


async def read_offsets(store: MetadataStore, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Everything that the store holds for the group, of topics that are gone as well.

    Raises `KafkaError` COORDINATOR_NOT_AVAILABLE when the store is away, UNKNOWN_SERVER_ERROR for bytes that
    cannot be read.
    """
    try:
        snapshot = await store.range(keys.group_offsets(group_id))
        return {
            keys.offset_topic_and_partition(item.key): decode_committed_offset(item.key, item.value)
            for item in snapshot.items
        }
    except StoreError as problem:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, str(problem)) from problem
    except CorruptDataError as problem:
        logger.error(
            "offsets cannot be read", extra={"group": quoted(group_id), "problem": quoted(str(problem), 500)}
        )
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(problem)) from problem


def of_existing_topics(
    offsets: Mapping[TopicPartition, CommittedOffset], topic_id: TopicId
) -> dict[TopicPartition, CommittedOffset]:
    """Those that mean a topic as it is now: a deleted topic takes its offsets with it, as in Kafka."""
    ids: dict[str, uuid.UUID | None] = {topic: topic_id(topic) for topic, _ in offsets}
    return {key: committed for key, committed in offsets.items() if committed.topic_id == ids[key[0]]}


def expires_at_ms(
    group: Group,
    topic: str,
    committed: CommittedOffset,
    retention_ms: int,
    subscribed: Collection[str] | None,
) -> int | None:
    """When the offset expires as things are, Unix milliseconds; `NEVER` while the group may need it (KIP-211).

    `subscribed`: the topics that a stable consumer group reads; None when that is not known.
    """
    if group.state is GroupState.EMPTY:
        if committed.expire_timestamp_ms is not None:
            return committed.expire_timestamp_ms
        # Without a protocol type nobody was ever a member: the last commit is the last sign of life.
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
