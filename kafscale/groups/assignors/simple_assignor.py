"""The assignor `simple` of share groups, in the place of Kafka's SimpleAssignor: members may share partitions.

Every partition has a member, and every member has one if its topics have any. While there are no more members than
partitions, each partition has one member, and members have about as many; beyond, each member has one, and
partitions have about as many members. Racks do not matter.

First each partition gets one member, as by the assignor `uniform`; then members that have none join others at the
partitions that have the fewest members. What members have, and is no worse, stays.
"""

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping

from kafscale.groups.assignors import uniform_assignor
from kafscale.groups.assignors.subscription import Subscription, sort_topics, subscribed_topics
from kafscale.groups.modern.assignment import Assignment, TopicIdPartition, count, partitions_of

Members = Mapping[str, Subscription]
Counts = Mapping[uuid.UUID, int]


def assign(members: Members, partition_counts: Counts) -> dict[str, Assignment]:
    """The partitions of each member. Every subscribed topic must be in `partition_counts`."""
    current = {member: _valid(one, partition_counts) for member, one in members.items()}
    if not _is_complete(current, members, partition_counts):
        current = _compute(current, members, partition_counts)
    # Each step is better than the one before by whole numbers, so that it ends; mostly with the first one.
    while True:
        other = _compute(current, members, partition_counts)
        if _unevenness(other) >= _unevenness(current):
            return current
        current = other


def _valid(member: Subscription, partition_counts: Counts) -> Assignment:
    """The part of what the member has that it may keep."""
    return {
        topic_id: kept
        for topic_id, indexes in member.owned.items()
        if topic_id in member.topic_ids
        and (kept := frozenset(index for index in indexes if index < partition_counts[topic_id]))
    }


def _is_complete(current: Mapping[str, Assignment], members: Members, partition_counts: Counts) -> bool:
    """True if every partition has a member, and every member a partition, as far as there is one."""
    covered = {partition for assignment in current.values() for partition in partitions_of(assignment)}
    if len(covered) != sum(partition_counts[one] for one in subscribed_topics(members)):
        return False
    return all(
        current[member] or not any(partition_counts[topic_id] for topic_id in one.topic_ids)
        for member, one in members.items()
    )


def _unevenness(current: Mapping[str, Assignment]) -> tuple[int, int]:
    """Of members, and of partitions: sums of squares are the least where numbers are even."""
    at_partition = Counter(
        partition for assignment in current.values() for partition in partitions_of(assignment)
    )
    of_members = sum(count(assignment) ** 2 for assignment in current.values())
    return of_members, sum(number**2 for number in at_partition.values())


def _compute(
    current: Mapping[str, Assignment], members: Members, partition_counts: Counts
) -> dict[str, Assignment]:
    owning = {
        member: Subscription(one.topic_ids, one.instance_id, current[member])
        for member, one in members.items()
    }
    assigned = uniform_assignor.assign(owning, partition_counts)
    at_partition = Counter(
        partition for assignment in assigned.values() for partition in partitions_of(assignment)
    )
    alike: dict[frozenset[uuid.UUID], list[str]] = {}
    for member in sorted(members):
        if not assigned[member]:
            alike.setdefault(members[member].topic_ids, []).append(member)
    # Those that have the least choice come first.
    for topic_ids in sorted(alike, key=lambda one: (len(one), sort_topics(one))):
        partitions = [
            (topic_id, index)
            for topic_id in sort_topics(topic_ids)
            for index in range(partition_counts[topic_id])
        ]
        if partitions:
            for member, partition in _share(alike[topic_ids], partitions, current, at_partition).items():
                assigned[member] = {partition[0]: frozenset({partition[1]})}
                at_partition[partition] += 1
    return assigned


def _share(
    without: list[str],
    partitions: list[TopicIdPartition],
    current: Mapping[str, Assignment],
    at_partition: Mapping[TopicIdPartition, int],
) -> dict[str, TopicIdPartition]:
    """One partition for each of the members, so that partitions have about as many: its own, if there is room."""
    had = {member: list(partitions_of(current[member])) for member in without}
    wished = Counter(partition for ones in had.values() for partition in ones)
    room = _room(len(without), partitions, wished, at_partition)
    shared: dict[str, TopicIdPartition] = {}
    for member in without:
        kept = next((one for one in sorted(had[member], key=_place) if room.get(one, 0)), None)
        if kept is not None:
            shared[member] = kept
            room[kept] -= 1
    free = iter([partition for partition in partitions for _ in range(room[partition])])
    for member in without:
        if member not in shared:
            shared[member] = next(free)
    return shared


def _room(
    members: int,
    partitions: list[TopicIdPartition],
    wished: Mapping[TopicIdPartition, int],
    at_partition: Mapping[TopicIdPartition, int],
) -> Counter[TopicIdPartition]:
    """How many of the members each partition takes: all partitions are filled up to the same level, like vessels."""
    level = _level(members, [at_partition.get(one, 0) for one in partitions])
    room = Counter({one: max(level - at_partition.get(one, 0), 0) for one in partitions})
    rest = members - room.total()
    # One more for some of those that are at the level now, first where more wish to stay.
    at_level = [one for one in partitions if at_partition.get(one, 0) <= level]
    at_level.sort(key=lambda one: room[one] - wished.get(one, 0))
    room.update(at_level[:rest])
    return room


def _level(members: int, heights: Iterable[int]) -> int:
    """The highest level to which so many members fill all partitions up."""
    ascending = sorted(heights)
    below = 0
    for number, height in enumerate(ascending, 1):
        below += height
        level = (members + below) // number
        if number == len(ascending) or level < ascending[number]:
            return level
    return 0


def _place(partition: TopicIdPartition) -> tuple[int, int]:
    return partition[0].int, partition[1]
