"""The effects of an event: answers to requests, records to store, rebalances to count."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from kafscale.formats.group_record import GroupRecord
from kafscale.groups.events import NO_GENERATION, NO_MEMBER_ID, LeavingMember
from kafscale.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader receives it. `metadata`: for the selected protocol."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The answer to a `Join`. `members` is filled for the leader only.

    `skip_assignment`: the leader is not to assign again; every member has an assignment of this generation.
    """

    error_code: ErrorCode = ErrorCode.NONE
    member_id: str = NO_MEMBER_ID
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Synced:
    """The answer to a `Sync`. `assignment`: as the leader sent it, empty when it sent none."""

    error_code: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Left:
    """The answer to a `Leave`: the result for each member, in the request's order."""

    error_code: ErrorCode
    members: tuple[tuple[LeavingMember, ErrorCode], ...] = ()


@dataclass(frozen=True, slots=True)
class Decided:
    """The answer to a `Heartbeat`, a `Commit` or a `Remove`."""

    error_code: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeated:
    """The answer to a heartbeat of the consumer protocol. `assignment`: None if the member has been told it."""

    error_code: ErrorCode = ErrorCode.NONE
    message: str = ""
    member_id: str = NO_MEMBER_ID
    member_epoch: int = 0
    assignment: Mapping[uuid.UUID, frozenset[int]] | None = None


Content = Joined | Synced | Left | Decided | Heartbeated


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer the request of this `reply_id`."""

    reply_id: int
    content: Content


@dataclass(frozen=True, slots=True)
class Store:
    """Make the record durable, in the order of the effects; `Stored` or `StoreFailed` follows for each."""

    store_id: int
    record: GroupRecord


@dataclass(frozen=True, slots=True)
class RebalanceStarted:
    """The members have to join again."""

    reason: str


@dataclass(frozen=True, slots=True)
class RebalanceCompleted:
    """Every member can fetch its assignment. `duration_ms`: since the rebalance started."""

    duration_ms: int


Effect = Answer | Store | RebalanceStarted | RebalanceCompleted
