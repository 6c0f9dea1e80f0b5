"""Computes a group's target assignment, from the topics as the metadata store has them now."""

from collections.abc import Callable

from kafscale.groups.assignors.registry import ASSIGNORS
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.consumer.consumer_group import ConsumerGroup
from kafscale.groups.modern.assigning import run_assignor
from kafscale.groups.modern.events import Assigned, topic_ids
from kafscale.groups.modern.topics import TopicsOfGroups


async def compute_target(stored: TopicsOfGroups, group: ConsumerGroup, now_ms: Callable[[], int]) -> Assigned:
    """The target of the group's epoch of now. Waits for the store, however long it takes."""
    found = await stored.to_assign(group.subscribed_topics)
    topics, epoch = found.topics, group.group_epoch
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
    owners = [
        (member_id, group.topics_of(group.members[member_id]), one.owned)
        for member_id, one in members.items()
    ]
    target = found.with_kept(await run_assignor(assign, members, topics), owners)
    return Assigned(now_ms=now_ms(), epoch=epoch, target=target, topics=topics)
