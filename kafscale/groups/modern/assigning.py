"""Runs an assignor, off the event loop where it takes long."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Final

from kafscale.groups.assignors.registry import Assignor
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.modern.assignment import Assignment
from kafscale.groups.modern.events import Topics

LARGEST_ON_THE_LOOP: Final = 5_000
"""Subscriptions and partitions together: up to here the computation takes a few milliseconds."""


async def run_assignor(
    assign: Assignor, members: Mapping[str, Subscription], topics: Topics
) -> Mapping[str, Assignment]:
    """The target of each member."""
    counts: dict[uuid.UUID, int] = {topic.topic_id: topic.partition_count for topic in topics.values()}
    subscriptions = sum(len(one.topic_ids) for one in members.values())
    if subscriptions + sum(counts.values()) <= LARGEST_ON_THE_LOOP:
        return assign(members, counts)
    return await asyncio.to_thread(assign, members, counts)
