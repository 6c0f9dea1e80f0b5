"""The partitions that members own and may keep, and those that are free."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.groups.assignors.subscription import Subscription, subscribed_topics


@dataclass(frozen=True, slots=True)
class Claims:
    """Every partition of a subscribed topic, once: in `kept` of one member or in `free`.

    `kept` has every member and no empty sets; `free` has every subscribed topic, in ascending order of ids.
    """

    kept: dict[str, dict[uuid.UUID, frozenset[int]]]
    free: dict[uuid.UUID, set[int]]


def settle_claims(
    members: Mapping[str, Subscription], order: list[str], partition_counts: Mapping[uuid.UUID, int]
) -> Claims:
    """Sort out what members own: of two that claim a partition, the first in `order` keeps it."""
    free = {topic_id: set(range(partition_counts[topic_id])) for topic_id in subscribed_topics(members)}
    kept: dict[str, dict[uuid.UUID, frozenset[int]]] = {}
    for member in order:
        subscription = members[member]
        kept[member] = own = {}
        for topic_id, claimed in subscription.owned.items():
            if topic_id not in subscription.topic_ids:
                continue
            unclaimed = free[topic_id]
            valid = claimed if claimed <= unclaimed else claimed & unclaimed
            if valid:
                own[topic_id] = valid
                unclaimed -= valid
    return Claims(kept, free)
