"""Balance among members that subscribe to different topics, as in Kafka's uniform assignor.

A topic is level when none of its holders has two partitions (of any topic) more than one of its subscribers.
First the free partitions go to the subscribers that have the fewest. Then partitions move, topic by topic, from
the holder that has the most to the subscriber that has the fewest, until all topics are level. Each move
lowers the sum of the squares of the members' counts, so that this ends, and where it ends nothing moves when it is
done again. Kafka stops after 16 rounds, level or not.

Level topics do not make the best balance there is: three members in a row, the first two with one topic and
the last two with another, may end with 9, 10 and 11 partitions. Better would take moves that help only together.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from kafscale.groups.assignors.claims import Claims
from kafscale.groups.assignors.subscription import Subscription, subscribers_by_topic
from kafscale.groups.modern.assignment import Assignment


@dataclass(frozen=True, slots=True)
class _Topic:
    topic_id: uuid.UUID
    subscribers: Sequence[int]
    """Ascending indexes of members."""

    held: dict[int, list[int]]
    """By member, partitions in ascending order, then those that it got here: the last is given up first."""

    free: list[int]


def assign_mixed(
    members: Mapping[str, Subscription], order: list[str], claims: Claims
) -> dict[str, Assignment]:
    """The partitions of each member; `order` has the sorted member ids."""
    topics = _topics(subscribers_by_topic(members, order), claims)
    counts = [0] * len(order)
    for index, own in enumerate(claims.kept.values()):
        for topic_id, partitions in own.items():
            topics[topic_id].held[index] = sorted(partitions)
            counts[index] += len(partitions)
    hardest_first = sorted(topics.values(), key=_by_partitions_per_subscriber)
    for topic in hardest_first:
        _share_out(topic, counts)
    _level_all(hardest_first, counts)
    assigned: list[dict[uuid.UUID, frozenset[int]]] = [{} for _ in order]
    for topic in topics.values():
        for member, held in topic.held.items():
            assigned[member][topic.topic_id] = frozenset(held)
    return dict(zip(order, assigned, strict=True))


def _topics(subscribers: Mapping[uuid.UUID, Sequence[int]], claims: Claims) -> dict[uuid.UUID, _Topic]:
    return {
        topic_id: _Topic(topic_id, subscribers[topic_id], {}, sorted(partitions))
        for topic_id, partitions in claims.free.items()
    }


def _by_partitions_per_subscriber(topic: _Topic) -> tuple[float, int, int]:
    """Topics with the most partitions for each subscriber come first: the others even out what they leave."""
    partitions = len(topic.free) + sum(map(len, topic.held.values()))
    subscribers = len(topic.subscribers)
    return -partitions / subscribers, subscribers, topic.topic_id.int


def _share_out(topic: _Topic, counts: list[int]) -> None:
    """Give each free partition to the subscriber that has the fewest."""
    if not topic.free:
        return
    ranked = sorted(topic.subscribers, key=counts.__getitem__)
    # An entry is count * ranks + rank: whole numbers compare faster than tuples.
    ranks = len(ranked)
    fewest = [counts[member] * ranks + rank for rank, member in enumerate(ranked)]
    for partition in topic.free:
        count, rank = divmod(fewest[0], ranks)
        _give(topic, ranked[rank], partition)
        counts[ranked[rank]] = count + 1
        heapreplace(fewest, fewest[0] + ranks)


def _level_all(topics: list[_Topic], counts: list[int]) -> None:
    """Level each topic, and again those of members whose counts have changed, until none has."""
    changed = set(range(len(counts)))
    while changed:
        suspects, changed = changed, set()
        for topic in topics:
            if any(map(suspects.__contains__, topic.subscribers)):
                moved = _level(topic, counts)
                suspects |= moved
                changed |= moved


def _level(topic: _Topic, counts: list[int]) -> set[int]:
    """Move partitions until the topic is level. Returns the members whose counts changed."""
    changed: set[int] = set()
    if not topic.held or max(map(counts.__getitem__, topic.held)) - 1 <= min(
        map(counts.__getitem__, topic.subscribers)
    ):
        return changed
    ranked = sorted(topic.subscribers, key=counts.__getitem__)
    ranks = len(ranked)
    fewest = [counts[member] * ranks + rank for rank, member in enumerate(ranked)]
    most = [-entry for entry, member in zip(fewest, ranked, strict=True) if member in topic.held]
    heapify(most)
    # Who gave never has fewer than who got, so that entries of `fewest` which are outdated are never on its top,
    # and who got has nothing to give.
    while most:
        count, rank = divmod(-most[0], ranks)
        fewest_count, fewest_rank = divmod(fewest[0], ranks)
        if count - fewest_count <= 1:
            break
        giver, receiver = ranked[rank], ranked[fewest_rank]
        _give(topic, receiver, topic.held[giver].pop())
        counts[giver], counts[receiver] = count - 1, fewest_count + 1
        changed.update((giver, receiver))
        heapreplace(fewest, fewest[0] + ranks)
        if topic.held[giver]:
            heapreplace(most, most[0] + ranks)
        else:
            del topic.held[giver]
            heappop(most)
    return changed


def _give(topic: _Topic, member: int, partition: int) -> None:
    topic.held.setdefault(member, []).append(partition)
