"""A member as assignors see it, and the order in which they take members and topics."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from kafscale.groups.modern.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics of a member, and the partitions that it would rather keep.

    `owned` is the member's former target, or what it has. It may name partitions that are gone, that the
    member is not subscribed to any more, or that another member claims too: assignors ignore those.
    """

    topic_ids: frozenset[uuid.UUID]
    instance_id: str | None
    owned: Assignment


def sort_members(members: Mapping[str, Subscription]) -> list[str]:
    """The member ids: static members first, by instance id, then the others by member id.

    The order of Kafka's range assignor. A static member that restarts keeps its place under its new member id.
    """

    def place(member: str) -> tuple[bool, str, str]:
        instance_id = members[member].instance_id
        return instance_id is None, instance_id or "", member

    return sorted(members, key=place)


def sort_topics(topic_ids: Iterable[uuid.UUID]) -> list[uuid.UUID]:
    """The ids in ascending order."""
    return sorted(topic_ids, key=attrgetter("int"))


def is_homogeneous(members: Mapping[str, Subscription]) -> bool:
    """True if all members subscribe to the same topics."""
    subscriptions = iter(members.values())
    first = next(subscriptions, None)
    # `==` compares a set with itself topic by topic, `is` does not.
    return first is None or all(
        other.topic_ids is first.topic_ids or other.topic_ids == first.topic_ids for other in subscriptions
    )


def subscribed_topics(members: Mapping[str, Subscription]) -> list[uuid.UUID]:
    """The topics that have a subscriber, in ascending order of their ids."""
    if is_homogeneous(members):
        return sort_topics(next(iter(members.values())).topic_ids if members else ())
    return sort_topics(frozenset().union(*(member.topic_ids for member in members.values())))


def subscribers_by_topic(
    members: Mapping[str, Subscription], order: list[str]
) -> dict[uuid.UUID, Sequence[int]]:
    """The subscribers of each topic, as ascending indexes into `order`, the sorted members."""
    topics = subscribed_topics(members)
    if is_homogeneous(members):
        return dict.fromkeys(topics, range(len(order)))
    subscribers: dict[uuid.UUID, list[int]] = {topic_id: [] for topic_id in topics}
    for index, member in enumerate(order):
        for topic_id in members[member].topic_ids:
            subscribers[topic_id].append(index)
    return dict(subscribers)
