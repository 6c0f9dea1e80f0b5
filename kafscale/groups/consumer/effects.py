"""The effects of a consumer group's events that a classic group's do not have. See `kafscale/groups/effects.py`."""

from dataclasses import dataclass

from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.formats.group_record import GroupRecord
from kafscale.groups.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChanges:
    """Make these changes durable, in the order of the effects; `Stored` follows.

    `record`: None if it is as it was.
    """

    store_id: int
    record: ConsumerGroupRecord | None
    members: tuple[ConsumerMember, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Compute the target assignment of this group epoch; `Assigned` follows."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Downgraded:
    """The group is this classic group from here on. `record` and `removed` make that durable, in this order.

    `removed`: the ids of all members.
    """

    group: Group
    record: GroupRecord
    removed: tuple[str, ...]
