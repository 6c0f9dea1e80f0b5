"""What can happen to a group. `now_ms` is the coordinator's clock, which never goes back.

Each request carries a `reply_id`, which exactly one `Answer` names sooner or later (effects.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.protocol.error_codes import ErrorCode

NO_MEMBER_ID = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """A way of assigning partitions that a member can follow, and what it says to the leader under it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `new_member_id`: the id that the member gets if it has none. `reason`: for the log.

    `member_id_required`: a dynamic member must come again with the id it was given (KIP-394).
    `can_skip_assignment`: a leader that comes back can be told not to assign anew (KIP-814).
    """

    now_ms: int
    reply_id: int
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool
    can_skip_assignment: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """SyncGroup. `assignments` by member id, from the leader only. Protocol type and name: null in old versions."""

    now_ms: int
    reply_id: int
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Heartbeat."""

    now_ms: int
    reply_id: int
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True)
class LeavingMember:
    """One member of a LeaveGroup; an administrator names a static member by its instance id alone.

    `reason`: for the log.
    """

    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """LeaveGroup."""

    now_ms: int
    reply_id: int
    members: tuple[LeavingMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """OffsetCommit: may this member, or somebody outside the group, commit now?"""

    now_ms: int
    reply_id: int
    member_id: str
    group_instance_id: str | None
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """DeleteGroups, or the end of an empty group whose offsets have expired."""

    now_ms: int
    reply_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """The clock. Not sooner than `Group.next_deadline_ms` says is early, and does nothing."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What `Store` asked for is durable."""

    now_ms: int
    store_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """It was not stored in time, or it is not known whether it was; the members hear `error_code`."""

    now_ms: int
    store_id: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """This broker is the group's coordinator no longer."""

    now_ms: int


Event = Join | Sync | Heartbeat | Leave | Commit | Remove | TimePassed | Stored | StoreFailed | Unload
