"""Members and topics for the tests of assignors."""

import uuid
from collections.abc import Mapping

from hypothesis import strategies as st

from kafscale.groups.assignors.registry import Assignor
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.modern.assignment import Assignment

Members = dict[str, Subscription]
Counts = dict[uuid.UUID, int]

T1, T2, T3, T4, GONE = (uuid.UUID(int=number << 64) for number in range(1, 6))
TOPICS = (T1, T2, T3, T4)


def partitions(owned: Mapping[uuid.UUID, set[int]]) -> Assignment:
    return {topic_id: frozenset(numbers) for topic_id, numbers in owned.items()}


def subscribed(
    *topic_ids: uuid.UUID, instance: str | None = None, owned: Mapping[uuid.UUID, set[int]] | None = None
) -> Subscription:
    return Subscription(frozenset(topic_ids), instance, partitions(owned or {}))


def owning(members: Mapping[str, Subscription], assigned: Mapping[str, Assignment]) -> Members:
    """The members with what they were assigned; those that are new own nothing."""
    return {
        name: Subscription(member.topic_ids, member.instance_id, assigned.get(name, {}))
        for name, member in members.items()
    }


def moved_partitions(members: Mapping[str, Subscription], assigned: Mapping[str, Assignment]) -> int:
    """The number of owned partitions that their owners lose."""
    return sum(
        len(owned - assigned[name].get(topic_id, frozenset()))
        for name, member in members.items()
        for topic_id, owned in member.owned.items()
    )


def check_each_partition_once(members: Members, counts: Counts, assigned: Mapping[str, Assignment]) -> None:
    """Every partition of a subscribed topic has one owner, which subscribes; there is nothing else."""
    assert set(assigned) == set(members)
    given = [
        (topic_id, partition)
        for name, assignment in assigned.items()
        for topic_id, numbers in assignment.items()
        for partition in numbers
        if topic_id in members[name].topic_ids
    ]
    assert len(given) == sum(len(numbers) for one in assigned.values() for numbers in one.values())
    assert all(numbers for assignment in assigned.values() for numbers in assignment.values())
    subscribed_ids = {topic_id for member in members.values() for topic_id in member.topic_ids}
    assert sorted(given) == [(t, p) for t in sorted(subscribed_ids) for p in range(counts[t])]


def check_idempotent(assign: Assignor, members: Members, counts: Counts) -> None:
    assigned = assign(members, counts)
    assert assign(owning(members, assigned), counts) == assigned


counts_of_topics = st.fixed_dictionaries(dict.fromkeys(TOPICS, st.integers(0, 9)))
_claims = st.dictionaries(
    st.sampled_from((*TOPICS, GONE)), st.frozensets(st.integers(-1, 10), min_size=1, max_size=8), max_size=5
)
_subscriptions = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def groups(draw: st.DrawFn, same_topics: bool | None = None) -> Members:
    """Members that claim what they like: partitions that are gone, not theirs, or claimed by others too.

    With `same_topics` all subscribe to the same; None is either.
    """
    names = draw(st.lists(st.text("abcdef", min_size=1, max_size=3), unique=True, max_size=8))
    if same_topics is None:
        same_topics = draw(st.booleans())
    common = draw(_subscriptions)
    return {
        name: Subscription(
            common if same_topics else draw(_subscriptions),
            f"instance-{name[::-1]}" if draw(st.booleans()) else None,
            draw(_claims),
        )
        for name in names
    }
