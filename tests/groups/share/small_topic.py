"""A small topic that members of a share group read, and what is stored of the group."""

import uuid

from kafscale.groups.share.share_group import ShareGroup
from kafscale.metadata import keys
from tests.groups.coordination import (
    GROUP,
    Brokers,
    Coordinating,
)
from tests.groups.share.member import SharingMember

SMALL, SMALL_ID = "tasks", uuid.UUID(int=5)
OTHER, OTHER_ID = "returns", uuid.UUID(int=6)
SESSION_SEC = 45


async def started(brokers: Brokers, partitions: int = 3) -> Coordinating:
    """A broker, and a small topic."""
    await brokers.make_topic(SMALL, SMALL_ID, partitions)
    return await brokers.start()


def sharing(broker: Coordinating, *topics: str, group_id: str = GROUP) -> SharingMember:
    """A client that has not joined."""
    return SharingMember(broker.coordinator, group_id, topics or (SMALL,))


def group_of(broker: Coordinating) -> ShareGroup:
    """The group, which must be there."""
    group = broker.coordinator.any_group(GROUP)
    assert isinstance(group, ShareGroup)
    return group


async def starts(brokers: Brokers, group_id: str = GROUP) -> set[str]:
    """The partitions that have a start, as `topic id/index`."""
    prefix = keys.group_share_starts(group_id)
    return {item.key.removeprefix(prefix) for item in (await brokers.store.range(prefix)).items}


async def stored_keys(brokers: Brokers) -> list[str]:
    """The group's record and its members."""
    found = [await brokers.store.range(prefix) for prefix in (keys.group(GROUP), keys.group_members(GROUP))]
    return [item.key for snapshot in found for item in snapshot.items]
