"""The requests of share groups and their answers, as the coordinator takes and gives them."""

from dataclasses import dataclass

from kafscale.groups.modern.assignment import Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """A member's ShareGroupHeartbeat. None: as in the member's last heartbeat.

    `member_epoch`: that of the member, 0 to join, -1 to leave.
    """

    group_id: str
    member_id: str
    member_epoch: int
    rack_id: str | None
    subscribed_topic_names: tuple[str, ...] | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeatAnswer:
    """The answer to a heartbeat that was accepted. `assignment`: the partitions to read; None: as before."""

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Assignment | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareMember:
    """A member as ShareGroupDescribe shows it."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: frozenset[str]
    assignment: Assignment


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedShareGroup:
    """A share group as ShareGroupDescribe shows it. `state`: by the name that Kafka's tools print."""

    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor_name: str
    members: tuple[DescribedShareMember, ...]
