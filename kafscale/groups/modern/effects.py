"""The effects of every group whose coordinator assigns the partitions. See `kafscale/groups/effects.py`."""

from dataclasses import dataclass

from kafscale.formats.consumer_group_record import ConsumerGroupRecord
from kafscale.formats.consumer_member_record import ConsumerMember
from kafscale.formats.share_group_record import ShareGroupRecord
from kafscale.formats.share_member_record import ShareMember


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreChanges:
    """Make these changes durable, in the order of the effects; `Stored` follows.

    `record`: None if it is as it was.
    """

    store_id: int
    record: ConsumerGroupRecord | ShareGroupRecord | None
    members: tuple[ConsumerMember, ...] | tuple[ShareMember, ...]
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Assign:
    """Compute the target assignment of this group epoch; `Assigned` follows."""

    epoch: int
