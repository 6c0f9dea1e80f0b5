"""Computes a group's target assignment, from the topics as the metadata store has them now."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kafscale.cluster.stored_topics import stored_topics
from kafscale.errors import StoreError
from kafscale.groups.assignors.registry import ASSIGNORS
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.consumer.assignment import Assignment
from kafscale.groups.consumer.consumer_group import ConsumerGroup, topic_ids
from kafscale.groups.consumer.events import Assigned, TopicIdAndCount, Topics
from kafscale.groups.offsets import readable_topics
from kafscale.metadata.model import TopicRecord, TopicState
from kafscale.metadata.store import MetadataStore

logger = logging.getLogger(__name__)

RETRY_SEC: Final = 0.2

LARGEST_ON_THE_LOOP: Final = 5_000
"""Subscriptions and partitions together: up to here the computation takes a few milliseconds."""


def topics_of_records(records: Mapping[str, TopicRecord]) -> Topics:
    """The topics that exist, as an assignment sees them."""
    return {
        name: TopicIdAndCount(record.topic_id, record.partition_count)
        for name, record in records.items()
        if record.state is TopicState.ACTIVE
    }


async def existing_topics(store: MetadataStore, names: Iterable[str]) -> Topics:
    """Those of the topics that exist, as the metadata store has them now. Raises `StoreError`."""
    return topics_of_records(readable_topics(await stored_topics(store, names)))


async def compute_target(store: MetadataStore, group: ConsumerGroup, now_ms: Callable[[], int]) -> Assigned:
    """The target of the group's epoch of now. Waits for the store, however long it takes."""
    while True:
        names = group.subscribed_topics()
        try:
            topics = await existing_topics(store, names)
        except StoreError as problem:
            logger.info("an assignment waits for the metadata store", extra={"problem": str(problem)})
            await asyncio.sleep(RETRY_SEC)
            continue
        if names == group.subscribed_topics():
            break
    epoch = group.group_epoch
    assign = ASSIGNORS[group.assignor]
    # Members mostly subscribe to the same topics: these are looked up once, and compared by identity from here on.
    ids = {names: topic_ids(topics, names) for names in set(map(group.topics_of, group.members.values()))}
    members = {
        member_id: Subscription(
            topic_ids=ids[group.topics_of(member)],
            instance_id=member.instance_id,
            owned=group.target_of(member_id) or member.assigned,
        )
        for member_id, member in sorted(group.members.items())
    }
    counts = {topic.topic_id: topic.partition_count for topic in topics.values()}
    target: Mapping[str, Assignment]
    subscriptions = sum(len(one.topic_ids) for one in members.values())
    if subscriptions + sum(counts.values()) <= LARGEST_ON_THE_LOOP:
        target = assign(members, counts)
    else:
        target = await asyncio.to_thread(assign, members, counts)
    return Assigned(now_ms=now_ms(), epoch=epoch, target=target, topics=topics)
