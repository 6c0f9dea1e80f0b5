"""The events of a group. `now_ms` is the coordinator's clock, which never goes back.

Each request carries a `reply_id`, which exactly one `Answer` names sooner or later (effects.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.protocol.error_codes import ErrorCode

NO_MEMBER_ID = ""
NO_GENERATION = -1


@dataclass(frozen=True, slots=True)
class Protocol:
    """An assignment protocol that a member supports, and its metadata for the leader."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """JoinGroup. `new_member_id`: the id that the member gets if it has none. `reason`: for the log.

    `member_id_required`: a dynamic member must join again with the id that it received (KIP-394).
    `can_skip_assignment`: the client understands that a returning leader is not to assign again (KIP-814).
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
    """The question if this member, or a client outside the group, may commit now.

    `is_transactional`: TxnOffsetCommit, else OffsetCommit. `knows_member_epochs`: the client knows the errors of
    consumer groups (KIP-848); `generation` is the member's epoch in these.
    """

    now_ms: int
    reply_id: int
    member_id: str
    group_instance_id: str | None
    generation: int
    is_transactional: bool = False
    knows_member_epochs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """DeleteGroups, or the expiry of an empty group without offsets."""

    now_ms: int
    reply_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimePassed:
    """The clock has advanced. Before `Group.next_deadline_ms` it has no effect."""

    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The record of a `Store` is durable."""

    now_ms: int
    store_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFailed:
    """The record was not stored in time, or the outcome is unknown; the members get `error_code`."""

    now_ms: int
    store_id: int
    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Unload:
    """This broker is no longer the group's coordinator."""

    now_ms: int


Event = Join | Sync | Heartbeat | Leave | Commit | Remove | TimePassed | Stored | StoreFailed | Unload
