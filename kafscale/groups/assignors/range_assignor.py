"""The assignor `range`: neighbouring partitions of each topic to each subscriber, as in Kafka's RangeAssignor.

Members that subscribe to the same topics get the same partition numbers of topics that have the same number of
partitions: two topics with the same keys can be joined by their members. Only the order of members decides,
and that of static members does not change when they restart; what members own has no part in it.
"""

import uuid
from collections.abc import Mapping

from kafscale.groups.assignors.subscription import Subscription, sort_members, subscribers_by_topic
from kafscale.groups.modern.assignment import Assignment


def assign(
    members: Mapping[str, Subscription], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """The partitions of each member. Every subscribed topic must be in `partition_counts`."""
    order = sort_members(members)
    assigned: list[dict[uuid.UUID, frozenset[int]]] = [{} for _ in order]
    for topic_id, subscribers in subscribers_by_topic(members, order).items():
        smaller, larger_ranges = divmod(partition_counts[topic_id], len(subscribers))
        receivers = subscribers if smaller else subscribers[:larger_ranges]
        start = 0
        for position, member in enumerate(receivers):
            end = start + smaller + (position < larger_ranges)
            assigned[member][topic_id] = frozenset(range(start, end))
            start = end
    return dict(zip(order, assigned, strict=True))
