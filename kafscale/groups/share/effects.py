"""The effects of a share group's events that other groups' do not have. See `kafscale/groups/effects.py`."""

from dataclasses import dataclass

from kafscale.groups.modern.assignment import Assignment


@dataclass(frozen=True, slots=True)
class InitializeStarts:
    """See to it that each of these partitions has a start; `StartsInitialized` follows. Some may have one already."""

    partitions: Assignment
