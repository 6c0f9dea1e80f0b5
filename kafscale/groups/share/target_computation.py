"""Computes a share group's target assignment, from the topics as the metadata store has them now."""

from collections.abc import Callable

from kafscale.groups.assignors import simple_assignor
from kafscale.groups.assignors.subscription import Subscription
from kafscale.groups.modern.assigning import run_assignor
from kafscale.groups.modern.events import Assigned, Topics, topic_ids
from kafscale.groups.modern.topics import TopicsOfGroups
from kafscale.groups.share.share_group import ShareGroup


def subscriptions(group: ShareGroup, topics: Topics) -> dict[str, Subscription]:
    """The group's members, as the assignor takes them."""
    # Members mostly subscribe to the same topics: these are looked up once, and compared by identity from here on.
    names = {member.subscribed_topic_names for member in group.members.values()}
    ids = {subscribed: topic_ids(topics, subscribed) for subscribed in names}
    return {
        member_id: Subscription(
            topic_ids=ids[member.subscribed_topic_names],
            instance_id=None,
            owned=group.target_of(member_id) or member.assigned,
        )
        for member_id, member in sorted(group.members.items())
    }


async def compute_share_target(
    stored: TopicsOfGroups, group: ShareGroup, now_ms: Callable[[], int]
) -> Assigned:
    """The target of the group's epoch of now. Waits for the store, however long it takes."""
    found = await stored.to_assign(group.subscribed_topics)
    topics, epoch = found.topics, group.group_epoch
    members = subscriptions(group, topics)
    owners = [
        (one.member_id, one.subscribed_topic_names, members[one.member_id].owned)
        for one in group.members.values()
    ]
    target = found.with_kept(await run_assignor(simple_assignor.assign, members, topics), owners)
    return Assigned(now_ms=now_ms(), epoch=epoch, target=target, topics=topics)
