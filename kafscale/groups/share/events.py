"""The events of a share group that other groups do not have. See `kafscale/groups/events.py`."""

from dataclasses import dataclass, field

from kafscale.groups.modern.assignment import NO_PARTITIONS, Assignment
from kafscale.groups.modern.events import JOINS, ModernEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatReceived:
    """ShareGroupHeartbeat, checked for itself. What the client left out is None."""

    now_ms: int
    reply_id: int
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: frozenset[str] | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """True if the answer has the assignment, changed or not."""
        return self.member_epoch == JOINS or self.subscribed_topic_names is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsInitialized:
    """Each of these partitions has a start in the metadata store: the group can read from there.

    `refused`: those among them that have none, because there is no room for it.
    """

    now_ms: int
    partitions: Assignment
    refused: Assignment = field(default_factory=lambda: NO_PARTITIONS)


OnlyShareEvent = ShareHeartbeatReceived | StartsInitialized
ShareEvent = OnlyShareEvent | ModernEvent
