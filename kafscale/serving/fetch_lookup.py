"""Partitions of a fetch that need the metadata store: led by another broker, or asked for above their end."""

import asyncio
import logging
import uuid
from collections.abc import Sequence
from typing import Final

from kafscale.cluster.view import ClusterView
from kafscale.errors import CorruptDataError, StoreError
from kafscale.log.manager import LogManager
from kafscale.protocol.error_codes import ErrorCode, KafkaError
from kafscale.serving.leader_epoch import check_leader_epoch
from kafscale.serving.partition_fetch import PartitionFetch, TopicFetch
from kafscale.tasks.concurrently import for_each

logger = logging.getLogger(__name__)

FOLLOWED_AT_ONCE: Final = 1_000
"""Partitions that begin to be followed together share the reading of what their leader's journal has of them."""


def needs_store(fetch: PartitionFetch) -> bool:
    """True if the partition must be looked up before it can be read."""
    return fetch.to_follow is not None or fetch.is_above_end


async def look_up(logs: LogManager, fetches: Sequence[PartitionFetch], deadline_sec: float) -> None:
    """Look up those that need it, concurrently; `deadline_sec` by the loop's clock. Failures become error codes."""
    await for_each(
        [fetch for fetch in fetches if needs_store(fetch)],
        lambda fetch: _look_up(logs, fetch, deadline_sec),
        FOLLOWED_AT_ONCE,
    )


async def _look_up(logs: LogManager, fetch: PartitionFetch, deadline_sec: float) -> None:
    try:
        async with asyncio.timeout_at(deadline_sec):
            await _follow_and_check(logs, fetch)
    except KafkaError as refusal:
        fetch.error_code = refusal.code
    except (StoreError, CorruptDataError, TimeoutError) as problem:
        logger.warning("could not look up a partition", extra={"problem": str(problem)})
        fetch.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER


async def _follow_and_check(logs: LogManager, fetch: PartitionFetch) -> None:
    if fetch.to_follow is not None:
        fetch.partition = await logs.follow(fetch.to_follow, fetch.wanted.partition)
        if fetch.partition is None:
            fetch.error_code = fetch.unknown
        else:
            check_leader_epoch(fetch.partition, fetch.wanted.current_leader_epoch)
    if fetch.is_above_end and fetch.partition is not None:
        fetch.error_code = await logs.stored.check_beyond_end(fetch.partition, fetch.wanted.fetch_offset)


def refuse_another_topic(view: ClusterView, topic: TopicFetch) -> None:
    """Refuse partitions that were looked up by name if the topic of the request's id was deleted meanwhile.

    Another one may have the name by now; this broker's view may not show it yet, but a leader's record names it.
    """
    if topic.topic_id is None:
        return
    topic_id = uuid.UUID(bytes=topic.topic_id)
    is_known = view.topic_by_id(topic_id) is not None
    for fetch in topic.partitions:
        if fetch.to_follow is None or fetch.partition is None or fetch.error_code:
            continue
        position = fetch.partition.record.journal
        if not is_known or (position is not None and position.topic_id != topic_id):
            fetch.error_code = fetch.unknown
