"""The assignor `uniform`: as many partitions for each member as for any other, and as few moves as possible.

As in Kafka's UniformAssignor, balance comes before stickiness, and the counts are those of all topics together:
a member may have many partitions of one topic and none of another.
"""

import uuid
from collections.abc import Iterator, Mapping
from itertools import groupby, islice
from operator import itemgetter

from kafscale.groups.assignors.claims import Claims, settle_claims
from kafscale.groups.assignors.subscription import Subscription, is_homogeneous, sort_members, sort_topics
from kafscale.groups.assignors.uniform_mixed import assign_mixed
from kafscale.groups.modern.assignment import Assignment, count


def assign(
    members: Mapping[str, Subscription], partition_counts: Mapping[uuid.UUID, int]
) -> dict[str, Assignment]:
    """The partitions of each member. Every subscribed topic must be in `partition_counts`.

    If all members subscribe to the same topics, their counts differ by at most one, and no assignment with
    such counts leaves more partitions where they are.
    """
    order = sort_members(members)
    claims = settle_claims(members, order, partition_counts)
    if is_homogeneous(members):
        return _assign_evenly(claims)
    return assign_mixed(members, order, claims)


def _assign_evenly(claims: Claims) -> dict[str, Assignment]:
    quotas = _quotas(claims)
    for member, own in claims.kept.items():
        _take_surplus(own, count(own) - quotas[member], claims.free)
    free = _in_order(claims.free)
    for member, own in claims.kept.items():
        missing = islice(free, quotas[member] - count(own))
        for topic_id, partitions in groupby(missing, key=itemgetter(0)):
            own[topic_id] = own.get(topic_id, frozenset()).union(partition for _, partition in partitions)
    return dict(claims.kept)


def _quotas(claims: Claims) -> dict[str, int]:
    """The number of partitions for each member. Those that own more than others keep one more (KAFKA-18688)."""
    owned = {member: count(own) for member, own in claims.kept.items()}
    total = sum(owned.values()) + sum(map(len, claims.free.values()))
    smaller, larger_quotas = divmod(total, max(len(owned), 1))
    quotas = dict.fromkeys(owned, smaller)
    for member in sorted(owned, key=lambda member: owned[member] <= smaller)[:larger_quotas]:
        quotas[member] += 1
    return quotas


def _take_surplus(
    own: dict[uuid.UUID, frozenset[int]], surplus: int, free: Mapping[uuid.UUID, set[int]]
) -> None:
    """Free as many partitions of a member: the highest of the last topics."""
    if surplus <= 0:
        return
    for topic_id in reversed(sort_topics(own)):
        given_up = sorted(own[topic_id])[-surplus:]
        free[topic_id].update(given_up)
        own[topic_id] = own[topic_id].difference(given_up)
        if not own[topic_id]:
            del own[topic_id]
        surplus -= len(given_up)
        if not surplus:
            return


def _in_order(free: Mapping[uuid.UUID, set[int]]) -> Iterator[tuple[uuid.UUID, int]]:
    for topic_id, partitions in free.items():
        for partition in sorted(partitions):
            yield topic_id, partition
