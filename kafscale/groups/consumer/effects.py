"""The effects of a consumer group's events that a classic group's do not have. See `kafscale/groups/effects.py`."""

from dataclasses import dataclass

from kafscale.formats.group_record import GroupRecord
from kafscale.groups.group import Group


@dataclass(frozen=True, slots=True, kw_only=True)
class Downgraded:
    """The group is this classic group from here on. `record` and `removed` make that durable, in this order.

    `removed`: the ids of all members.
    """

    group: Group
    record: GroupRecord
    removed: tuple[str, ...]
